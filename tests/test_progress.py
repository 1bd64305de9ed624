"""Progress bars in narrow terminals."""

import io

import pytest
from rich.console import Console

from verax import progress

UNIT = "textbox/complex-cr1 cnn4 seed 0: {}"
METHODS = ("deeplift-reveal-cancel", "deeplift-rescale")


def drawn(monkeypatch, width, description, doing):
    """What stands in a terminal of that width."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    monkeypatch.setattr(progress, "errors", console)
    bar = progress.bar()
    row = bar.add_task(description, total=154, completed=78)
    bar.update(row, doing=doing)
    console.print(bar.get_renderable())
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_names_of_units_and_times_are_whole_in_80_columns(monkeypatch):
    for method in METHODS:
        line, below = drawn(monkeypatch, 80, "smerf-quick", UNIT.format(method))
        assert below.strip() == UNIT.format(method)
        assert "78/154" in line
        assert line.count(":") == 4  # both times
        assert "…" not in line


def test_the_end_of_a_name_is_kept_where_there_is_no_room(monkeypatch):
    below = [drawn(monkeypatch, 40, "smerf-quick", UNIT.format(method))[-1] for method in METHODS]
    assert [line.rpartition(" ")[2] for line in below] == list(METHODS)
    assert all(len(line) <= 40 and line.startswith("  …") for line in below)


@pytest.mark.parametrize("label", ["torchvision:resnet50 on photos of seabirds on their nests", "[bold]"])
def test_a_long_label_does_not_cut_count_and_times(monkeypatch, label):
    lines = drawn(monkeypatch, 80, label, "")
    assert lines[0].endswith(" 78/154 0:00:00 -:--:--")
    words = [word for line in lines for word in line.split() if word in label.split()]
    assert words == label.split()
