"""Ctrl-C: who hears it."""

import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest

from verax.interrupts import deaf
from verax.studies.executors import processes

SLEEPER = """
import sys, time
from verax.interrupts import ignored
print("importing", flush=True)
sys.stdin.readline()
time.sleep(0.1)
ignored()
print("ready", flush=True)
sys.stdin.readline()
time.sleep(0.1)
print("done", flush=True)
"""


@pytest.mark.parametrize("context", [deaf, nullcontext])
def test_processes_that_are_started_deaf_hear_nothing(context):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with context():
        process = subprocess.Popen(
            [sys.executable, "-c", SLEEPER],
            **pipes,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    assert process.stdout.readline() == "importing\n"
    for word in ("ready\n", "done\n"):
        process.send_signal(signal.SIGINT)
        process.stdin.write("\n")
        with pytest.raises(BrokenPipeError) if context is nullcontext else nullcontext():
            process.stdin.flush()
            if process.stdout.readline() != word:
                raise BrokenPipeError
    _, err = process.communicate()
    assert (process.returncode == 0) is (context is deaf)
    assert ("KeyboardInterrupt" in err) is (context is nullcontext)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])  # the starter hears it again


def test_workers_are_started_deaf(monkeypatch):
    seen = []

    class Noted:
        pid = 0

        def __init__(self, **known):
            pass

        def start(self):
            seen.append(signal.pthread_sigmask(signal.SIG_BLOCK, []))

    context = processes.multiprocessing.get_context("spawn")
    monkeypatch.setattr(type(context), "Process", Noted)
    processes._start(b"", processes.torch.device("cpu"))
    assert seen == [{signal.SIGINT}]
