"""The oracle ceilings of the published metrics (facts of the SMERF code, measured on 300 images a bucket)."""

import pytest
import torch

from verax.cases import Role
from verax.metrics.scoring import score
from verax.tasks import task
from verax.tasks.textbox import renderers
from verax.tasks.textbox.settings import SETTINGS

N = 64


def ceilings(kind):
    """Task, group -> (focus objects, PAFL, PIOU) of the oracle whose map is the boxes or the ink."""
    found = {}
    for name in SETTINGS:
        world = task(f"textbox/{name}", renderer="published")
        cases = world.cases(n=N)
        if kind == "box":
            maps = cases.truth.focus.float()
        elif kind == "input":
            maps = cases.inputs.amax(1)
        else:
            layout = world.layout(cases.group, world.streams(cases.ids, 0, "cases"))
            roles = (cases.truth.roles == Role.FOCUS)[:, :, None, None]
            inks = [renderers.ink(world.renderer, layout, world.world, k) for k in range(3)]
            maps = (torch.stack(inks, 1) * roles).amax(1)
        table = score(maps[:, None].expand(-1, 3, -1, -1), cases, "published", transfer="plain")
        means = table.groupby("group")[["pafl", "piou"]].mean()
        for group, row in means.dropna().iterrows():
            scene = list(world.world.scenes())[group - 1]
            text = scene["text"] if kind == "ink" else "text"
            focus = sorted(text if n == "text" else n for n in world.reasoning.focus(scene))
            found[name, group] = (world.family, "+".join(focus), row.pafl, row.piou)
    return found


def mean(found, column, where):
    chosen = [row[column] for row in found.values() if where(row)]
    assert chosen
    return sum(chosen) / len(chosen)


@pytest.fixture(scope="module")
def box():
    return ceilings("box")


@pytest.fixture(scope="module")
def ink():
    return ceilings("ink")


@pytest.mark.parametrize(
    ("focus", "pafl", "piou"),
    [
        ("box1", 0.687, 0.82),
        ("text", 0.790, 0.847),
        ("box2", 0.33, 0.94),
        ("box1+box2", 0.637, 0.39),
        ("box2+text", 0.767, 0.424),
        ("box1+text", 0.775, 0.426),
    ],
)
def test_box_mask_oracle(box, focus, pafl, piou):
    assert mean(box, 2, lambda row: row[1] == focus) == pytest.approx(pafl, abs=0.01)
    assert mean(box, 3, lambda row: row[1] == focus) == pytest.approx(piou, abs=0.01)


@pytest.mark.parametrize(
    ("focus", "pafl", "piou"),
    [
        ("A", 0.880, 0.650),
        ("B", 0.837, 0.732),
        ("A+box2", 0.79, 0.28),
        ("B+box2", 0.77, 0.36),
        ("A+box1", 0.79, 0.30),
        ("B+box1", 0.776, 0.36),
    ],
)
def test_ink_mask_oracle(ink, focus, pafl, piou):
    assert mean(ink, 2, lambda row: row[1] == focus) == pytest.approx(pafl, abs=0.01)
    # PIOU of ink depends on the letters' shapes, and ours are not Arial's: A + box2 is 0.02 off
    assert mean(ink, 3, lambda row: row[1] == focus) == pytest.approx(piou, abs=0.025)


@pytest.mark.parametrize(
    ("kind", "family", "pafl", "piou"),
    [
        ("box", "simple", 0.746, 0.835),
        ("box", "complex", 0.658, 0.657),
        ("ink", "simple", 0.785, 0.746),
        ("ink", "complex", 0.675, 0.601),
    ],
)
def test_group_means(box, ink, kind, family, pafl, piou):
    found = {"box": box, "ink": ink}[kind]
    assert mean(found, 2, lambda row: row[0] == family) == pytest.approx(pafl, abs=0.01)
    assert mean(found, 3, lambda row: row[0] == family) == pytest.approx(piou, abs=0.01)


def test_numbers_of_buckets_and_of_impossible_ones(box):
    simple = [row for row in box.values() if row[0] == "simple"]
    complex_ = [row for row in box.values() if row[0] == "complex"]
    assert (len(simple), len(complex_)) == (14, 37)
    assert sum(row[3] < 0.5 for row in complex_) == 17
    assert sum(row[2] < 0.5 for row in complex_) == 6
    assert min(row[2] for row in complex_) == pytest.approx(0.33, abs=0.01)
    assert min(row[3] for row in complex_) == pytest.approx(0.39, abs=0.01)


def test_highlighting_every_object():
    found = ceilings("input")
    for family, pafl, piou in (("simple", 0.533, 0.576), ("complex", 0.516, 0.431)):
        assert mean(found, 2, lambda row, f=family: row[0] == f) == pytest.approx(pafl, abs=0.01)
        assert mean(found, 3, lambda row, f=family: row[0] == f) == pytest.approx(piou, abs=0.01)
