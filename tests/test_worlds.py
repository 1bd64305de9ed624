"""The extra worlds: tasks like any other, from a few lines of declaration."""

import json
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import verax
from verax.cases import Role
from verax.cli.main import app
from verax.errors import InvalidParameter
from verax.networks.recipes import Recipe
from verax.tasks import TASKS, is_builtin
from verax.tasks.worlds import WORLDS

RULED = [f"worlds/{name}" for name in WORLDS]


def truth_by_scene(task, n=1):
    """Scene in words -> (label, the objects in focus, the objects to avoid)."""
    cases = task.cases(n=n)
    found = {}
    for label, group, roles in zip(cases.targets, cases.group, cases.truth.roles, strict=True):
        named = dict(zip(cases.truth.names, roles.tolist(), strict=True))
        focus = {name for name, role in named.items() if role == Role.FOCUS}
        avoid = {name for name, role in named.items() if role == Role.AVOID}
        found[task.describe(int(group))] = (int(label), focus, avoid)
    return found


def test_xor_is_one_box_or_the_other():
    task = verax.task("worlds/xor")
    assert len(task.groups) == 12
    for scene, (label, focus, avoid) in truth_by_scene(task).items():
        boxes = {name for name in ("box1", "box2") if name in scene}
        assert label == (len(boxes) == 1), scene
        assert focus == boxes, scene
        assert avoid == ({"text"} if {"A", "B"} & set(scene.split(" + ")) else set()), scene


def test_xor_leaves_no_object_that_speaks_for_a_label_by_itself():
    cases = verax.task("worlds/xor").cases(n=1)
    share = {
        name: cases.targets[cases.truth.roles[:, k] != Role.ABSENT].double().mean().item()
        for k, name in enumerate(cases.truth.names)
    }
    assert share == {"box1": 0.5, "box2": 0.5, "text": 0.5}


def test_three_labels_need_one_box_sometimes_and_the_other_never():
    task = verax.task("worlds/three-labels")
    assert task.classes == 3
    found = truth_by_scene(task)
    assert {label for label, _, _ in found.values()} == {0, 1, 2}
    assert found["box1 + box2 + A"] == (0, {"box1", "text"}, {"box2"})
    assert found["box2 + A"] == (1, {"text"}, {"box2"})
    assert found["box1 + B"] == (2, {"text"}, {"box1"})


def test_colour_alone_decides():
    task = verax.task("worlds/colour")
    red, green = (task.world.bucket({"box": look, "bar": "green"}) for look in ("red", "green"))
    cases = task.cases([red, green], n=3, seed=4)
    assert cases.targets.tolist() == [1] * 3 + [0] * 3
    box = cases.truth.objects[:, task.world.names.index("box")]
    assert torch.equal(cases.truth.focus, box)
    assert torch.equal(box.sum((1, 2)), torch.full((6,), 100))  # the same shape in either colour
    for picture, mask, channel in zip(cases.inputs, box, [0, 0, 0, 1, 1, 1], strict=True):
        assert picture[:, mask].mean(1).argmax() == channel
        assert (picture[1 - channel][mask] == 0).all()


@pytest.mark.parametrize("name", RULED)
def test_a_wired_network_follows_each_world(name):
    task = verax.task(name)
    certificate = verax.certify(task.network("wired"), task, n=10)
    assert certificate.worst_accuracy == 1
    assert certificate.worst_follow == 1


@pytest.mark.parametrize("name", RULED)
def test_worlds_are_tasks_of_the_package_with_options(name):
    assert is_builtin(name)
    noisy = verax.task(name, background="noise").cases(n=1)
    plain = verax.task(name).cases(n=1)
    assert torch.equal(noisy.truth.focus, plain.truth.focus)
    assert not torch.equal(noisy.inputs, plain.inputs)
    with pytest.raises(InvalidParameter, match="renderer and background"):
        verax.task(name, colour="red")


def test_worlds_are_studied_like_settings(tmp_path):
    study = {"name": "worlds", "methods": ["gradient"], "samples": 1, "certify": 2}
    run = verax.run(study, tasks=RULED, networks=["wired"], out=tmp_path / "run", quiet=True)
    assert set(run.scores["task"]) == set(RULED)
    table = run.leaderboard().reset_index()
    assert "gradient" in set(table["method"])


def test_a_world_can_be_trained_on_and_its_network_is_kept():
    task = verax.task("worlds/colour")
    short = Recipe(rate=1e-3, batch=64, epochs=1, scenes=20, cycle=True)
    trained = verax.train(task, "cnn3", recipe=short, groups=task.groups, device="cpu", quiet=True)
    trained.save()
    inputs = task.cases(n=1).inputs
    with torch.no_grad():
        assert torch.allclose(task.network("cnn3@own")(inputs), trained.model(inputs), atol=1e-4)


def test_the_command_line_lists_and_certifies_worlds():
    listed = {
        row["name"]: row for row in json.loads(CliRunner().invoke(app, ["list", "tasks", "--json"]).output)
    }
    assert set(RULED) <= set(listed)
    assert listed["worlds/colour"]["reasoning"] == "box = red -> 1; box = green -> 0"
    done = CliRunner().invoke(
        app, ["certify", "worlds/xor", "--network", "wired", "--samples", "2", "--json"]
    )
    assert done.exit_code == 0
    assert json.loads(done.stdout)["worst_follow"] == 1


def test_the_page_lists_every_world_and_its_rules():
    page = (Path(__file__).parent.parent / "docs" / "tasks.md").read_text()
    for name in TASKS:
        if name.startswith("worlds/") and is_builtin(name):
            assert f"`{name}`" in page
    for name in RULED:
        assert f"| `{name}` | `{verax.task(name).reasoning}` |" in page


def test_a_new_object_and_reasoning_take_at_most_fifteen_lines():
    page = (Path(__file__).parent.parent / "docs" / "tasks.md").read_text()
    example = next(code for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "crosses" in code)
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    for step in ("Look(", "Reasoning.parse", "cases(", "retell(", '"wired"', "certify(", "leaderboard("):
        assert step in example
