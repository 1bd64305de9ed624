"""Squares against circles: drawing, labels, truth, interventions, the network and its recipes."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import verax
from verax.cases import Role
from verax.errors import InvalidParameter
from verax.networks import batches, library
from verax.networks.certificates import certify
from verax.networks.recipes import Recipe, fitted
from verax.networks.shapes import shapes_cnn
from verax.networks.steps import Stepper
from verax.networks.training import initialise, train
from verax.tasks import shapes
from verax.tasks.base import Trainable


@pytest.fixture(scope="module")
def task():
    return verax.task("shapes")


@pytest.fixture(scope="module")
def laid(task):
    groups = torch.tensor(task.groups).repeat_interleave(40)
    streams = task.streams(torch.arange(len(groups)), 0, "test")
    return groups, task.layout(groups, streams)


def by_hand(layout, row):
    """The signed picture of one scene, pixel by pixel."""
    picture = [[0] * 65 for _ in range(65)]
    for slot in range(4):
        if not layout.present[row, slot]:
            continue
        outer, inner = int(layout.outer[row, slot]), int(layout.inner[row, slot])
        top, left = layout.corner[row, slot].tolist()
        middle = int(outer / math.sqrt(math.pi))
        for y in range(65):
            for x in range(65):
                if slot < 2:
                    rim = (outer - inner) // 2
                    inside = 0 <= y - top < outer and 0 <= x - left < outer
                    hole = rim <= y - top < rim + inner and rim <= x - left < rim + inner
                else:
                    away = math.hypot(y - top - middle, x - left - middle)
                    inside, hole = (away <= side / math.sqrt(math.pi) for side in (outer, inner))
                if inside and not hole:
                    assert picture[y][x] == 0
                    picture[y][x] = 1 if slot < 2 else -1
    return torch.tensor(picture)


def test_pictures_labels_and_truth_by_hand(task):
    cases = task.cases(n=2)
    layout = task.layout(cases.group, task.streams(cases.ids, 0, "cases"))
    assert cases.inputs.shape == cases.truth.values.shape == (16, 1, 65, 65)
    for row in range(len(cases)):
        signed = by_hand(layout, row)
        assert torch.equal(cases.inputs[row, 0], signed.abs().float())
        assert int(cases.targets[row]) == int(signed.sum() > 0)
        assert signed.sum() != 0
        wanted = signed.float() * (1 if signed.sum() > 0 else -1)
        assert torch.equal(cases.truth.values[row, 0], wanted)
        assert torch.equal(cases.truth.focus[row], signed != 0)
        assert not cases.truth.avoid[row].any()


def test_the_other_class_has_the_signs_turned_around(task):
    other = verax.task("shapes", explains="other")
    a, b = task.cases(n=3), other.cases(n=3)
    assert torch.equal(a.inputs, b.inputs)
    assert torch.equal(a.targets, b.targets)
    assert torch.equal(a.truth.values, -b.truth.values)
    assert task.fingerprint() != other.fingerprint()
    with pytest.raises(InvalidParameter, match="'label' or the 'other'"):
        verax.task("shapes", explains="both")


def test_sizes_places_and_counts(task, laid):
    groups, layout = laid
    there = layout.present
    assert (layout.outer[there] >= 12).all()
    assert (layout.outer[there] <= 22).all()
    assert (layout.inner[there] >= 7).all()
    assert (layout.inner[there] <= layout.outer[there] - 4).all()
    assert set(map(tuple, layout.states[:, :2].tolist())) == set(shapes.COUNTS)
    assert torch.equal(layout.present.view(-1, 2, 2).sum(2), layout.states[:, :2])
    frames = shapes.masks(layout)
    assert torch.equal(frames.sum((2, 3)), shapes.areas(layout.outer, layout.inner) * there)
    size = shapes.extents(layout.outer)
    assert (layout.corner[there] >= 0).all()
    assert ((layout.corner + size[..., None])[there] <= 65).all()
    # one empty pixel around every frame: enlarged by one, frames still touch no other
    wide = torch.nn.functional.max_pool2d(frames.float(), 3, 1, 1) > 0
    assert ((wide[:, :, None] & frames[:, None]).flatten(3).any(3) == torch.diag_embed(there)).all()
    assert torch.equal(task.group_of(layout.states), groups)
    assert torch.equal(layout.relabelled().states, layout.states)


def test_a_scene_is_the_same_alone_and_in_a_batch(task):
    whole = task.cases(n=30, seed=3)
    late = task.cases(group=12, n=1, seed=3, start=17)
    at = int((whole.ids == late.ids[0]).nonzero()[0, 0])
    assert torch.equal(whole.inputs[at], late.inputs[0])
    assert not torch.equal(task.cases(n=1).inputs, task.cases(n=1, seed=1).inputs)
    assert len(torch.unique(whole.inputs.flatten(1), dim=0)) == len(whole)


def test_shares_are_those_of_drawing_without_looking(task):
    """Counts from {0, 1, 2} without replacement, sizes as they come, equal areas drawn again."""
    assert abs(sum(task.shares.values()) - 1) < 1e-12
    generator = torch.Generator().manual_seed(0)
    many = 40_000
    squares = torch.randint(3, (many,), generator=generator)
    circles = (squares + 1 + torch.randint(2, (many,), generator=generator)) % 3
    outer = torch.randint(12, 23, (many, 4), generator=generator)
    inner = 7 + (torch.rand(many, 4, generator=generator) * (outer - 10)).long()
    slot = torch.arange(2)
    there = torch.cat([slot < squares[:, None], slot < circles[:, None]], 1)
    area = shapes.areas(outer, inner) * there
    difference = area[:, :2].sum(1) - area[:, 2:].sum(1)
    states = torch.stack([squares, circles, (difference > 0).long()], 1)[difference != 0]
    found = torch.bincount(task.group_of(states), minlength=20) / len(states)
    for group, share in task.shares.items():
        assert abs(float(found[group]) - share) < 0.01, task.describe(group)


def test_discs_have_the_area_of_squares():
    pixels, extent, _ = shapes._tables(torch.device("cpu"))
    side = torch.arange(12, 23)
    assert ((pixels[1, 12:] - side**2).abs() <= 0.06 * side**2).all()
    assert torch.equal(extent[1, 12:], 2 * (side / math.sqrt(math.pi)).long() + 1)


def test_interventions_change_one_frame_and_the_label_follows(task, laid):
    groups, layout = laid
    streams = task.streams(torch.arange(len(groups)), 0, "test")
    seen, turned = set(), 0
    for edit in task.edits(layout, streams):
        seen.add((edit.object, edit.name))
        slot = shapes.NAMES.index(edit.object)
        before, after = shapes.masks(layout[edit.rows]), shapes.masks(edit.layout)
        others = [k for k in range(4) if k != slot]
        assert torch.equal(before[:, others], after[:, others])
        grown = after[:, slot].sum((1, 2)) - before[:, slot].sum((1, 2))
        assert (grown >= 0).all() if edit.name == "grow" else (grown <= 0).all()
        sums = (after[:, :2].sum((1, 2, 3)) - after[:, 2:].sum((1, 2, 3))).sign()
        labels = task.labels(task.group_of(edit.layout.states))
        assert torch.equal(labels, torch.where(sums == 0, -1, (sums > 0).long()))
        turned += int(((labels >= 0) & (labels != task.labels(groups[edit.rows]))).sum())
    assert len(seen) == 12
    assert turned > 50


def test_words_roles_and_refusals(task):
    assert isinstance(task, Trainable)
    assert task.describe(3) == "1 circle"
    assert task.describe(12) == "1 square and 2 circles, squares cover more"
    truth = task.cases(group=5, n=1).truth
    assert truth.roles[0].tolist() == [Role.ABSENT, Role.ABSENT, Role.FOCUS, Role.FOCUS]
    assert truth.boxes[0, 0].tolist() == [0, 0, 0, 0]
    with pytest.raises(InvalidParameter, match="no cases of bucket 4"):
        task.cases(group=4)
    with pytest.raises(InvalidParameter, match="'exact' only"):
        task.retell(task.cases(n=1), "shapley")


def test_the_network_and_its_recipes(task):
    model = shapes_cnn()
    assert sum(weight.numel() for weight in model.parameters()) == 184_546
    assert model(torch.zeros(2, 1, 65, 65)).shape == (2, 2)
    published = fitted("published", "shapes-cnn", task)
    assert (published.optimiser, published.rate, published.batch, published.epochs) == ("sgd", 0.01, 128, 5)
    assert published.scenes * len(task.groups) == 450_000
    assert fitted("published", "cnn4", verax.task("textbox/simple-fr")).optimiser == "adam"
    pool = batches.fixed(task, task.groups, 0, 25, torch.device("cpu"))
    assert abs(len(pool) - 200) <= 4
    assert int((pool.groups == 12).sum()) == round(200 * task.shares[12])


def test_steps_of_plain_gradient_descent_are_those_of_torch(task):
    cases = task.cases(n=1)
    recipe = Recipe(rate=0.05, batch=8, epochs=1, scenes=1, cycle=False, optimiser="sgd")
    ours, theirs = (initialise("shapes-cnn", 2, 0) for _ in range(2))
    stepper = Stepper(ours, recipe, 3)
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.05)
    for _ in range(3):
        stepper(cases.inputs, cases.targets)
        optimiser.zero_grad()
        nn.functional.cross_entropy(theirs(cases.inputs), cases.targets).backward()
        optimiser.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_network_that_knows_nothing_fails_its_certificate(task):
    certificate = certify(initialise("shapes-cnn", 2, 0).eval(), task, n=10)
    assert not certificate.passed
    assert set(certificate.interventions["edit"]) == {"grow", "remove", "shrink"}
    assert certificate.left_out > 0  # nothing is left where the only frame is taken away


def test_the_stored_network_passes_its_certificate(task):
    certificate = certify(task.network(), task, n=60, seed=1)
    assert certificate.passed, str(certificate)


def test_the_published_recipe_in_small(task):
    """Plain gradient descent on a fixed set; it does not stop before its epochs are over."""
    small = replace(fitted("published", "shapes-cnn", task), scenes=40, epochs=3, batch=16, rate=0.05)
    one, two = (train(task, "shapes-cnn", recipe=small, groups=[3, 8], quiet=True) for _ in range(2))
    assert one.epochs == 3
    assert one.tries[0].ended == "epochs"
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_study_asks_about_both_classes(tmp_path):
    """The truth of the other output is what the network's other output deserves, sign by sign."""
    run = verax.run(
        {
            "name": "both",
            "tasks": ["shapes", "shapes?explains=other"],
            "networks": ["shapes-cnn"],
            "methods": ["input-x-gradient", "lrp-a"],
            "protocols": ["exact"],
            "samples": 2,
            "certify": 0,
        },
        out=tmp_path / "run",
        quiet=True,
    )
    rows = run.scores[run.scores["metric"] == "pearson"]
    means = rows.groupby(["method", "task"])["value"].mean().unstack()
    assert set(means.columns) == {"shapes", "shapes?explains=other"}
    assert (means.loc["oracle"] > 0.999).all()
    for method in ("input-x-gradient", "lrp-a"):  # signed: right for both
        assert (means.loc[method] > 0.4).all()
    assert means.loc["input", "shapes"] > 0.3  # blind to signs: as wrong for the one as right for the other
    assert means.loc["input", "shapes?explains=other"] == pytest.approx(-means.loc["input", "shapes"])


def test_a_network_is_found_under_both_names(task):
    other = verax.task("shapes?explains=other")
    assert other.explains == "other"
    assert library.find(other, "shapes-cnn", 0) == library.find(task, "shapes-cnn", 0)
    assert torch.equal(task.asked(torch.tensor([0, 1])), torch.tensor([0, 1]))
    assert torch.equal(other.asked(torch.tensor([0, 1])), torch.tensor([1, 0]))
    with pytest.raises(InvalidParameter, match="has the option explains, not 'size'"):
        verax.task("shapes", size=3)
