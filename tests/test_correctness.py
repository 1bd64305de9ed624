"""The page of correctness cannot lie: rows are measured again, ours hold, the peers' failures are real."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def command():
    spec = importlib.util.spec_from_file_location("correctness", ROOT / "benchmarks" / "correctness.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def page(command):
    """The table rows of the committed page: (peer, network, method)."""
    rows = [line.strip("| \n").split(" | ") for line in command.PAGE.read_text().splitlines() if "`" in line]
    return [(cells[0], cells[1], cells[-1].strip("`")) for cells in rows if len(cells) > 3]


def test_the_page_has_the_rows_of_the_command(command, page):
    rows = [*command.FAILURES, *command.AGREEMENTS]
    assert [(row.peer, row.network, row.ours) for row in rows] == page
    assert "python benchmarks/correctness.py" in command.PAGE.read_text()
    assert re.search(r"captum \d+\.\d+", command.PAGE.read_text())


def test_ours_hold_and_peers_fail(command):
    found = command.measured(command.FAILURES)
    assert {row.package for row, _, _ in found} >= {"captum", "zennit"}
    for row, theirs, mine in found:
        assert mine < 1e-5, (row.ours, row.network)
        assert theirs > 0.01, (row.peer, row.network)


def test_where_peers_are_right_we_agree(command):
    found = command.measured(command.AGREEMENTS)
    assert {row.package for row, _, _ in found} >= {"captum", "zennit"}
    for row, distance, _ in found:
        assert distance < 1e-6, (row.peer, row.ours)
