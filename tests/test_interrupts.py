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


FIRST = """
import multiprocessing, os, pathlib, signal, sys, threading, time
from verax.interrupts import deaf

def masked(pipe):
    status = pathlib.Path("/proc/self/status").read_text()
    pipe.send(int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=masked, args=(theirs,))
    with deaf():
        process.start()
    print(bool(ours.recv() & 1 << signal.SIGINT - 1))
    process.join()
    threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
    inside = after = False
    try:
        with deaf():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
            inside = True
    except KeyboardInterrupt:
        after = True
    print(inside, after, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


def test_the_first_process_too_is_started_deaf_and_its_starter_answers_afterwards(tmp_path):
    """The first process brings a tracker of resources with it; other threads hear what one does not."""
    (tmp_path / "first.py").write_text(FIRST)
    done = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split("\n")[:2] == ["True", "True True True"], done.stderr


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
