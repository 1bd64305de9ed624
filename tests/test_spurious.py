"""Spurious manipulations: only the region changes, and it goes with the label as often as is said."""

import numpy as np
import pytest
import torch
from PIL import Image

import verax
from verax.cases import Role
from verax.errors import InvalidParameter, UnknownName
from verax.networks.recipes import Recipe
from verax.tasks.base import Trainable
from verax.tasks.manipulations import MANIPULATIONS
from verax.tasks.spurious import Marks, Spurious


def both(task, n=8):
    """The same pictures as they are and manipulated."""
    streams = task.streams(torch.arange(n), 0, "cases")
    states = torch.zeros(n, 1, dtype=torch.int64)
    return task.render(Marks(states), streams), task.render(Marks(states + 1), streams)


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_only_the_region_changes_and_all_of_it_can(name):
    task = verax.task(f"worlds/spurious-{name}")
    plain, changed = both(task, n=64)
    differs = (plain != changed).any(1)
    region = task.cases(1, n=1).truth.focus[0]
    assert not (differs & ~region).any()
    assert differs.flatten(1).any(1).all()
    columns = differs.any(0).any(0).nonzero()[:, 0]
    wanted = region.any(0).nonzero()[:, 0]
    assert (columns[0], columns[-1]) == (
        wanted[0],
        wanted[-1],
    )  # no column of the region is there for nothing
    rows, wanted = differs.any(0).any(1).nonzero()[:, 0], region.any(1).nonzero()[:, 0]
    assert (rows[0], rows[-1]) == (wanted[0], wanted[-1])
    assert changed.min() >= 0
    assert changed.max() <= 1


def test_each_manipulation_does_what_its_name_says():
    def change(name):
        task = verax.task(f"worlds/spurious-{name}")
        region = task.cases(1, n=1).truth.focus[0]
        return *both(task), region

    plain, changed, region = change("brightness")
    assert torch.allclose(changed[:, :, region], (plain[:, :, region] - 0.2).clamp(min=0))
    plain, changed, region = change("blur")
    inner = region[:, 1:] & region[:, :-1]
    steps = [(p[..., 1:] - p[..., :-1]).abs()[:, :, inner].mean() for p in (plain, changed)]
    assert steps[1] < steps[0] / 2
    plain, changed, region = change("noise")
    share = (changed[:, :, region] == 1).all(1).double().mean()
    assert 0.07 < share < 0.13
    plain, changed, region = change("watermark")
    assert (changed >= plain).all()
    plain, changed, region = change("hue")
    before, after = plain[:, :, region], changed[:, :, region]
    safe = ((after > 0) & (after < 1)).all(1)  # where nothing had to be cut off, light stays as it was
    assert torch.allclose(before.mean(1)[safe], after.mean(1)[safe], atol=1e-5)


def test_half_the_strength_is_half_the_change():
    name = "worlds/spurious-brightness"
    plain, changed = both(verax.task(name))
    _, faint = both(verax.task(name, strength=0.5))
    assert torch.allclose(faint, (plain + changed) / 2, atol=1e-6)


@pytest.mark.parametrize("reliance", [1.0, 0.8, 0.5])
def test_training_follows_the_label_as_often_as_reliance_says(reliance):
    task = verax.task("worlds/spurious-blur", reliance=reliance)
    groups = torch.tensor(task.groups).repeat(5000)
    drawn = task.lessons(groups, task.streams(torch.arange(10_000), 0, "train"))
    agree = (task.group_of(drawn.states) == groups).double().mean().item()
    assert agree == (1 if reliance == 1 else pytest.approx(reliance, abs=0.02))


def test_cases_and_truth_do_not_depend_on_reliance():
    full = verax.task("worlds/spurious-hue")
    half = verax.task("worlds/spurious-hue", reliance=0.75)
    assert torch.equal(full.cases(n=3).inputs, half.cases(n=3).inputs)
    assert full.fingerprint() == half.fingerprint()
    assert half.name == "worlds/spurious-hue-reliance0.75"  # networks of either are stored apart
    cases = full.cases(n=3)
    assert cases.targets.tolist() == [0, 0, 0, 1, 1, 1]
    assert torch.equal(cases.truth.avoid, ~cases.truth.focus)
    assert (cases.truth.roles == torch.tensor([Role.FOCUS, Role.AVOID])).all()
    assert cases.truth.boxes[0].tolist() == [[18, 46, 0, 64], [0, 64, 0, 64]]


def test_photographs_take_the_place_of_textures(tmp_path):
    level = np.full((80, 80, 3), 200, np.uint8)
    Image.fromarray(level).save(tmp_path / "grey.png")
    task = verax.task("worlds/spurious-noise", background=f"folder:{tmp_path}")
    plain, changed = both(task, n=2)
    assert torch.allclose(plain, torch.tensor(200 / 255 * 0.7))
    assert (changed == 1).any()


class Specks(torch.nn.Module):
    """Says 1 where there is a white pixel; textures have none."""

    def forward(self, pictures):
        white = (pictures.amin(1) == 1).flatten(1).any(1)
        return torch.nn.functional.one_hot(white.long(), 2).float()


def test_a_certificate_tells_who_follows_the_manipulation():
    task = verax.task("worlds/spurious-noise")
    certificate = verax.certify(Specks(), task, n=50)
    assert certificate.passed
    assert certificate.worst_follow == 1
    assert set(certificate.interventions["edit"]) == {"add", "remove"}
    other = verax.certify(Specks(), verax.task("worlds/spurious-watermark"), n=50)
    assert other.worst_follow == 0


def test_it_is_trained_stored_and_studied_like_any_task(tmp_path):
    task = verax.task("worlds/spurious-watermark", reliance=0.9)
    assert isinstance(task, Trainable)
    short = Recipe(rate=1e-3, batch=32, epochs=1, scenes=32, cycle=True)
    verax.train(task, "cnn3", recipe=short, groups=task.groups, device="cpu", quiet=True).save()
    study = {"name": "marks", "methods": ["gradient"], "samples": 1, "certify": 1, "protocols": ["sound"]}
    run = verax.run(study, tasks=[task], networks=["cnn3@own"], out=tmp_path / "run", quiet=True)
    assert set(run.scores["task"]) == {task.name}


def test_what_cannot_be_is_refused():
    with pytest.raises(InvalidParameter, match=r"from 0\.5"):
        verax.task("worlds/spurious-blur", reliance=0.3)
    with pytest.raises(InvalidParameter, match="above 0"):
        verax.task("worlds/spurious-blur", strength=0)
    with pytest.raises(UnknownName, match="did you mean 'blur'"):
        Spurious("my/marks", "blurr")
    with pytest.raises(InvalidParameter, match="'sound' only"):
        verax.task("worlds/spurious-blur", renderer="published")
    with pytest.raises(InvalidParameter, match="not 'colour'"):
        verax.task("worlds/spurious-blur", colour="red")
