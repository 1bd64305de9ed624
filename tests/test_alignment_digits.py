"""Digits with coloured boxes: MNIST as it is, the digits of scikit-learn, and drawn ones."""

import gzip
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from verax.errors import InvalidInput, InvalidParameter, MissingExtra, MissingFile, UnknownName
from verax.tasks.alignment import AnnotatedImages
from verax.tasks.alignment.digits import BOX, COLOURS, ColourDigits, available
from verax.tasks.alignment.mnist import mnist, read_idx


def idx(values):
    return (
        bytes([0, 0, 8, values.ndim])
        + b"".join(n.to_bytes(4, "big") for n in values.shape)
        + values.tobytes()
    )


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """Sixty pictures in MNIST's files; picture n has n pixels of ink, and its label is n % 10."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    labels = (np.arange(60) % 10).astype(np.uint8)
    levels = np.zeros((60, 784), np.uint8)
    for number in range(60):
        levels[number, :number] = 1 + number
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(levels.reshape(-1, 28, 28))))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    monkeypatch.setenv("VERAX_DATA", str(tmp_path))
    return folder


def test_the_spurious_set_is_painted_as_published(made_up):
    images = ColourDigits("test", "spurious")
    assert isinstance(images, AnnotatedImages)
    assert images.source == "mnist"
    found = images.read(range(60))
    assert found.labels.tolist() == [n % 10 for n in range(60)]
    assert found.variables["colour"].tolist() == found.labels.tolist()
    painted = (found.images[:, :, :BOX, :BOX] * 255).round().to(torch.int64)
    wanted = torch.tensor(COLOURS)[found.labels][:, :, None, None].expand(-1, -1, 5, 5)
    assert torch.equal(painted, wanted)
    # any ink counts, before the box is painted over it, and ink is black on white
    assert found.masks.sum((1, 2)).tolist() == list(range(60))
    outside = found.masks & ~found.parts["box"]
    assert torch.equal(outside, (found.images[:, 0] < 1) & ~found.parts["box"])
    ink = found.images[40][:, outside[40]]
    assert torch.allclose(ink, torch.tensor(1 - 41 / 255))
    assert found.parts["box"].sum((1, 2)).unique().tolist() == [25]
    assert found.parts["box"][:, :5, :5].all()
    assert torch.equal(ColourDigits("test", part="box").read([3]).masks, found.parts["box"][:1])


def test_random_colours_change_with_epoch_and_seed_only():
    rows = torch.arange(1000)

    def colours(seed=0, epoch=0, split="train"):
        return ColourDigits(split, "random", seed, source="drawn").at_epoch(epoch).colours(rows)

    first = colours()
    assert torch.equal(first, colours())
    for other in (colours(seed=1), colours(epoch=1), colours(split="test")):
        assert 0.85 < (first != other).double().mean() < 0.95
    labels = ColourDigits("train", "random", source="drawn").labels[:1000]
    assert (first == labels).double().mean() < 0.15  # the colour says nothing of the digit
    assert torch.bincount(first, minlength=10).min() > 60
    # an image has the same colour alone and in a batch
    images = ColourDigits("train", "random", source="drawn")
    assert torch.equal(images.read([17]).images[0], images.read(range(30)).images[17])


def test_permuted_colours_give_the_digit_away_through_one_permutation():
    images = ColourDigits("test", "permuted", 3, source="drawn")
    found = images.draw(torch.arange(500))
    table = images.permutation()
    assert sorted(table.tolist()) == list(range(10))
    assert torch.equal(found.variables["colour"], table[found.labels])
    assert table.tolist() != list(range(10))
    others = {
        tuple(ColourDigits("test", "permuted", seed, source="drawn").permutation().tolist())
        for seed in range(9)
    }
    assert len(others) == 9


def test_without_a_box():
    found = ColourDigits("test", "none", source="drawn").read(range(20))
    assert not found.parts["box"].any()
    assert found.variables["colour"].unique().tolist() == [-1]
    assert (found.images[:, :, :3, :3] == 1).all()
    assert torch.equal(found.masks, (found.images < 1).any(1))


@pytest.mark.parametrize(("source", "count"), [("scikit-learn", 359), ("drawn", 2000)])
def test_stand_ins_are_like_mnist(source, count):
    images = ColourDigits("test", "spurious", source=source)
    assert len(images) == count
    found = images.read(range(300))
    assert 0.12 < found.masks.float().mean() < 0.25  # 19.3 % in MNIST
    assert not (found.parts["digit"] & found.parts["box"]).any()
    assert set(found.labels.tolist()) == set(range(10))
    assert found.images.shape == (300, 3, 28, 28)
    train = ColourDigits("train", "spurious", source=source)
    assert len(train) > 3 * count
    assert train.fingerprint() != images.fingerprint()


def test_drawn_digits_can_be_told_apart():
    """The nearest of 300 other drawn digits is mostly the same digit."""
    train, test = (ColourDigits(split, "none", source="drawn") for split in ("train", "test"))
    some, other = train.read(range(1000)), test.read(range(200))
    near = torch.cdist(other.images[:, 0].flatten(1), some.images[:, 0].flatten(1)).argmin(1)
    assert (some.labels[near] == other.labels).double().mean() > 0.85


def test_what_is_here_is_used(monkeypatch, made_up):
    assert available() == "mnist"
    monkeypatch.delenv("VERAX_DATA")
    assert available() == "scikit-learn"
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert available() == "drawn"
    assert ColourDigits("test").source == "drawn"
    with pytest.raises(MissingFile, match="VERAX_DATA, which is not set"):
        ColourDigits("test", source="mnist")


def test_scikit_learn_is_asked_for_by_name(monkeypatch):
    from verax.tasks.alignment import digits

    digits._read.cache_clear()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtra, match="pip install scikit-learn"):
        ColourDigits("test", source="scikit-learn")


def test_what_cannot_be_is_refused(made_up):
    with pytest.raises(UnknownName, match="did you mean 'spurious'"):
        ColourDigits("test", "spurios")
    with pytest.raises(UnknownName, match="did you mean 'train'"):
        ColourDigits("trains")
    with pytest.raises(UnknownName, match="did you mean 'digit'"):
        ColourDigits("test", part="digits")
    with pytest.raises(UnknownName, match="no source"):
        ColourDigits("test", source="emnist")
    with pytest.raises(InvalidInput, match="0 to 59, not 60"):
        ColourDigits("test").read([60])
    with pytest.raises(InvalidInput, match="No image"):
        ColourDigits("test").read([])
    with pytest.raises(InvalidParameter, match="epoch"):
        ColourDigits("test", epoch=-1)


# -- the files -------------------------------------------------------------------------------------------


def test_files_are_found_packed_or_not_and_where_torchvision_puts_them(made_up):
    levels, labels = mnist(made_up)
    assert levels.shape == (60, 28, 28)
    assert labels.tolist() == [n % 10 for n in range(60)]
    (made_up / "MNIST").mkdir()
    raw = made_up / "MNIST" / "raw"
    raw.mkdir()
    for file in list(made_up.glob("*ubyte*")):
        file.rename(raw / file.name)
    assert np.array_equal(mnist(made_up)[0], levels)
    with pytest.raises(InvalidParameter, match="did you mean 'test'"):
        mnist(made_up, "tests")
    with pytest.raises(MissingFile, match=r"MNIST needs .*t10k-images.*github\.com/cvdfoundation/mnist"):
        mnist(made_up / "nowhere")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\x08\x03",
        b"\0\0\x0d\x03" + bytes(12),
        bytes([0, 0, 8, 3]) + b"\xff" * 12,  # claims 2 ** 96 pictures
        idx(np.ones((2, 3, 4), np.uint8))[:-1],
        idx(np.ones((2, 3, 4), np.uint8)) + b"x",
        idx(np.ones((0, 3, 4), np.uint8)),
        b"text that is no idx file at all",
    ],
    ids=range(8),
)
@pytest.mark.parametrize("packed", [False, True])
def test_broken_idx_files_are_refused(tmp_path, data, packed):
    path = tmp_path / ("file.gz" if packed else "file")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(MissingFile, match=r"not an idx file|another length"):
        read_idx(path, 3)


def test_packed_files_that_are_torn_or_never_end_are_refused(tmp_path):
    path = tmp_path / "file.gz"
    good = gzip.compress(idx(np.random.default_rng(0).integers(0, 9, (9, 8, 8), dtype=np.uint8)))
    for data in (good[:60], b"not gzip", good[:40] + b"\xff\xff" + good[42:]):
        path.write_bytes(data)
        with pytest.raises(MissingFile, match=r"cannot be unpacked|another length"):
            read_idx(path, 3)
    # a small file that unpacks to 300 MB behind an honest header: only what was promised is unpacked
    path.write_bytes(gzip.compress(idx(np.ones((1, 2, 2), np.uint8)) + bytes(300_000_000), 1))
    with pytest.raises(MissingFile, match="another length"):
        read_idx(path, 3)


def test_pictures_and_labels_that_do_not_fit(made_up):
    (made_up / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(59, np.uint8)))
    with pytest.raises(MissingFile, match="do not fit together"):
        mnist(made_up)
    (made_up / "t10k-labels-idx1-ubyte").write_bytes(idx(np.full(60, 10, np.uint8)))
    with pytest.raises(MissingFile, match="do not fit together"):
        mnist(made_up)


def test_real_mnist_has_the_chance_levels_that_were_measured():
    data = os.environ.get("VERAX_DATA")
    if not data or not (Path(data) / "mnist").is_dir():
        pytest.skip("VERAX_DATA has no mnist: no real digits to measure")
    images = ColourDigits("test", "spurious", source="mnist")
    found = images.draw(torch.arange(10_000))
    area = found.masks.float().mean((1, 2))
    assert area.mean().item() == pytest.approx(0.193, abs=0.0005)
    assert area.min().item() == pytest.approx(0.056, abs=0.0005)
    assert area.max().item() == pytest.approx(0.397, abs=0.0005)
    assert (found.parts["digit"] & found.parts["box"]).any(2).any(1).sum() == 13
