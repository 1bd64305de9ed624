"""Memory of a process: what is kept, what is handed back, what is said about it."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, torch
from verax.devices import HEAP, Memory
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    HEAP.keep()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):  # 64 MiB, which malloc maps anew each time unless it is told otherwise
        torch.zeros(2**24).add(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
peaks = []
for _ in range(3):
    memory = Memory(torch.device("cpu"))
    held = torch.ones(2**24)
    peaks.append(memory.peak())
    del held
faults()
print(HEAP.kept, faults(), *peaks)
"""


def outcome(how):
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    kept, faults, *peaks = done.stdout.split()
    return kept == "True", int(faults), [int(peak) for peak in peaks]


def test_a_worker_keeps_freed_memory_and_still_tells_what_it_needs():
    if not sys.platform.startswith("linux"):
        pytest.skip("only glibc can be told")
    kept, few, peaks = outcome("keep")
    assert kept
    usual = outcome("usual")
    assert not usual[0]
    assert few < usual[1] / 4
    for peak in (*peaks, *usual[2]):  # 64 MiB, whatever was kept of the one before
        assert 60 * 2**20 < peak < 90 * 2**20
