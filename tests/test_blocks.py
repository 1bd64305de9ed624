"""Digits beside a null block: the digit's block is the truth, and training sees other digits than cases."""

import gzip
import json
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import verax
from verax.cases import Role
from verax.cli.main import app
from verax.errors import InvalidParameter, MissingExtra, MissingFile
from verax.networks.recipes import Recipe
from verax.tasks.base import Trainable
from verax.tasks.blocks import BlockDigits
from verax.tasks.digits import digits


def idx(path, values):
    header = bytes([0, 0, 8, values.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()))


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """Made-up digits in MNIST's files: digit d is a square of level 20 d + 20, in the test set 1 more."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    labels = np.arange(30, dtype=np.uint8)[::-1] % 10
    for part, more in (("train", 0), ("t10k", 1)):
        levels = (labels * 20 + 20 + more).astype(np.uint8)
        idx(
            folder / f"{part}-images-idx3-ubyte.gz",
            np.broadcast_to(levels[:, None, None], (30, 28, 28)).copy(),
        )
        idx(folder / f"{part}-labels-idx1-ubyte.gz", labels.copy())
    monkeypatch.setenv("VERAX_DATA", str(tmp_path / "data"))
    return folder


class Reader(torch.nn.Module):
    """Reads made-up digits by the level of one corner of each block, which the null block has black."""

    def __init__(self, blocks=(2, 34)):
        super().__init__()
        self.blocks = blocks

    def forward(self, pictures):
        corner = torch.stack([pictures[:, 0, row, 18] for row in self.blocks], 1).amax(1)
        digit = ((corner * 255 - 21) / 20).round().long().clamp(0, 9)
        return torch.nn.functional.one_hot(digit, 10).float()


def test_the_digit_is_in_focus_and_the_null_block_is_to_be_avoided(mnist):
    task = verax.task("worlds/block-digits")
    cases = task.cases(n=2)
    assert cases.targets.tolist() == [d for d in range(10) for _ in range(4)]
    level = torch.round(cases.inputs[:, 0] * 255)
    for picture, label, truth in zip(level, cases.targets, cases.truth.focus, strict=True):
        assert (picture[truth] == label * 20 + 21).all()
        assert truth.sum() == 28 * 28
    assert not (cases.truth.focus & cases.truth.avoid).any()
    background = ~(cases.truth.focus | cases.truth.avoid)
    assert (level[background] == 0).all()
    nulls = level[cases.truth.avoid].reshape(len(cases), 28, 28)
    assert (nulls == nulls[0]).all()  # the same in every picture
    assert 0 < (nulls[0] > 0).double().mean() < 0.5
    assert (cases.truth.roles == torch.tensor([Role.FOCUS, Role.AVOID])).all()
    for row, boxes in zip(cases.truth.objects, cases.truth.boxes, strict=True):
        for mask, (row0, row1, col0, col1) in zip(row, boxes.tolist(), strict=True):
            assert mask[row0:row1, col0:col1].all()
            assert mask.sum() == (row1 - row0) * (col1 - col0)


def test_buckets_say_digit_and_place(mnist):
    task = verax.task("worlds/block-digits")
    assert task.describe(7) == "3 above"
    assert task.describe(8) == "3 below"
    above, below = (task.cases(group, n=1).truth.focus[0] for group in (7, 8))
    assert torch.equal(above.nonzero()[:, 0].unique(), torch.arange(2, 30))
    assert torch.equal(below.nonzero()[:, 0].unique(), torch.arange(34, 62))
    with pytest.raises(InvalidParameter, match="no cases of bucket 21"):
        task.cases(21)


def test_a_case_is_the_same_alone_or_among_many():
    task = BlockDigits(source="scikit-learn")
    many = task.cases(n=6, seed=2)
    alone = task.cases(group=11, n=1, start=4, seed=2)
    row = int((many.ids == alone.ids).nonzero())
    assert torch.equal(many.inputs[row], alone.inputs[0])
    assert not torch.equal(many.inputs, task.cases(n=6, seed=3).inputs)


@pytest.mark.parametrize("source", ["mnist", "scikit-learn"])
def test_training_sees_other_digits_than_cases(source, mnist):
    task = BlockDigits(source=source)
    groups = torch.tensor(task.groups).repeat(10)
    streams = task.streams(torch.arange(len(groups)), 0, "train")
    seen = {tuple(ink.flatten().tolist()) for ink in task.lessons(groups, streams).ink}
    shown = {tuple(ink.flatten().tolist()) for ink in task.layout(groups, streams).ink}
    assert not seen & shown


def test_the_small_digits_have_their_labels():
    """Each digit looks like its own mean more than like any other's, nearly always."""
    train, test = (digits("scikit-learn", part) for part in ("train", "t10k"))
    means = torch.stack([part.mean(0) for part in train.pictures.split(train.count.tolist())]).flatten(1)
    nearest = torch.cdist(test.pictures.flatten(1), means).argmin(1)
    right = nearest == torch.arange(10).repeat_interleave(test.count)
    assert right.double().mean() > 0.8


def test_certificates_ask_for_either_place(mnist):
    task = verax.task("worlds/block-digits")
    good = verax.certify(Reader(), task, n=2)
    assert good.worst_accuracy == good.worst_follow == 1
    assert (good.thresholds.accuracy, good.thresholds.follow) == task.limits
    edits = set(zip(good.interventions["object"], good.interventions["edit"], strict=True))
    assert edits == {("digit", "move"), ("digit", "swap"), ("null", "remove")}
    half = verax.certify(Reader(blocks=(2,)), task, n=2)
    assert not half.passed
    assert half.accuracy.set_index("scene")["accuracy"]["5 above"] == 1
    assert half.accuracy.set_index("scene")["accuracy"]["5 below"] == 0


def test_edits_change_one_block(mnist):
    task = verax.task("worlds/block-digits", background="noise")
    groups = torch.tensor(task.groups)
    streams = task.streams(groups, 0, "certificate")
    layout = task.layout(groups, streams)
    before = task.render(layout, streams)
    truth = task.truth(layout)
    for edit in task.edits(layout, streams):
        after = task.render(edit.layout, streams[edit.rows])
        changed = (after != before[edit.rows]).any(1)
        label = task.labels(task.group_of(edit.layout.states))
        if (edit.object, edit.name) == ("null", "remove"):
            assert not (changed & ~truth.avoid).any()
            assert torch.equal(label, task.labels(groups))
        elif edit.name == "swap":
            assert not (changed & ~truth.focus).any()
            assert (label != task.labels(groups)).all()
        else:
            assert not (changed & ~(truth.focus | truth.avoid)).any()
            assert torch.equal(label, task.labels(groups))
        assert changed.flatten(1).any(1).all()


def test_it_is_trained_stored_and_studied_like_any_task(mnist, tmp_path):
    task = verax.task("worlds/block-digits")
    assert isinstance(task, Trainable)
    short = Recipe(rate=1e-3, batch=32, epochs=1, scenes=8, cycle=True)
    trained = verax.train(task, "cnn3", recipe=short, groups=[1, 2, 3, 4], device="cpu", quiet=True)
    trained.save()
    study = {"name": "blocks", "methods": ["gradient"], "samples": 1, "certify": 1, "protocols": ["sound"]}
    run = verax.run(study, tasks=[task.name], networks=["cnn3@own"], out=tmp_path / "run", quiet=True)
    assert set(run.scores["task"]) == {task.name}
    assert "oracle" in set(run.scores["method"])
    with pytest.raises(InvalidParameter, match="built from rules"):
        task.network("wired")
    with pytest.raises(InvalidParameter, match="'rule' only"):
        task.retell(task.cases(1, n=1), "shapley")


def test_networks_of_other_digits_are_refused(mnist):
    task = verax.task("worlds/block-digits")
    short = Recipe(rate=1e-3, batch=32, epochs=1, scenes=2, cycle=True)
    verax.train(task, "cnn3", recipe=short, groups=[1, 2, 3, 4], device="cpu", quiet=True).save()
    assert task.network("cnn3@own")(task.cases(1, n=1).inputs).shape == (1, 10)
    with pytest.raises(ValueError, match="another reasoning"):
        verax.task("worlds/block-digits", source="scikit-learn").network("cnn3@own")


def test_without_digits_there_is_one_sentence(monkeypatch):
    monkeypatch.delenv("VERAX_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    task = verax.task("worlds/block-digits")
    with pytest.raises(MissingExtra, match="VERAX_DATA, or scikit-learn"):
        task.cases(n=1)
    with pytest.raises(MissingFile, match="not set"):
        verax.task("worlds/block-digits", source="mnist").cases(n=1)
    with pytest.raises(InvalidParameter, match="mnist or scikit-learn"):
        verax.task("worlds/block-digits", source="emnist").cases(n=1)
    listed = json.loads(CliRunner().invoke(app, ["list", "tasks", "--json"]).stdout)
    assert "worlds/block-digits" in {row["name"] for row in listed}


DAMAGES = {"empty": b"", "nonsense": b"nonsense", "short": gzip.compress(b"\0\0\x08\x03" + b"\0" * 20)}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)  # gzip writes the time, a name must not
def test_damaged_files_are_named(mnist, damage):
    path = mnist / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(damage)
    with pytest.raises(MissingFile, match="t10k-images"):
        verax.task("worlds/block-digits").cases(n=1)
