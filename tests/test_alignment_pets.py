"""Pets in both layouts: outlines, heads, bodies, stamps; and the real photographs where they are."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from alignment_trees import BOMB, mask, picture, rectangle, voc_file
from verax.errors import InvalidParameter, MissingFile, UnknownName
from verax.tasks.alignment import Geometry, stream
from verax.tasks.alignment.pets import IMAGENET, pets

HEADER = (
    "image,breed,species,imagenet_class,head_xmin,head_ymin,head_xmax,head_ymax,"
    "stamp_xmin,stamp_ymin,stamp_xmax,stamp_ymax\n"
)


def trimap(path):
    """Animal in rows 2-5 and columns 2-9, with a border of one pixel around it."""
    numbers = np.full((8, 12), 2, np.uint8)
    numbers[1:7, 1:11] = 3
    numbers[2:6, 2:10] = 1
    mask(path, np.ones((8, 12)), numbers)


@pytest.fixture
def own(tmp_path):
    for name in ("pug_1", "Persian_2"):
        picture(tmp_path / f"images/{name}.jpg", level=50)
        picture(tmp_path / f"stamped/{name}.jpg", level=200)
        trimap(tmp_path / f"trimaps/{name}.png")
    (tmp_path / "pets.csv").write_text(
        HEADER + "pug_1,pug,dog,254,2,2,5,6,8,0,12,2\nPersian_2,Persian,cat,283,0,0,4,4,0,6,3,8\n"
    )
    return tmp_path


@pytest.fixture
def official(tmp_path):
    for name in ("pug_1", "Bengal_2", "Persian_3"):
        picture(tmp_path / f"images/{name}.jpg")
        trimap(tmp_path / f"annotations/trimaps/{name}.png")
    voc_file(tmp_path / "annotations/xmls/pug_1.xml", [("dog", 3, 3, 5, 6)])
    (tmp_path / "annotations/list.txt").write_text(
        "#Image CLASS-ID SPECIES BREED ID\npug_1 2 2 1\nBengal_2 1 1 1\nPersian_3 3 1 2\n"
    )
    (tmp_path / "annotations/test.txt").write_text("Bengal_2 1 1 1\n")
    return tmp_path


def test_parts_of_a_pet(own):
    found = pets(own).read([0])
    animal, head = rectangle(8, 12, (1, 7), (1, 11)), rectangle(8, 12, (2, 6), (2, 5))
    assert np.array_equal(found.masks[0].numpy(), animal)
    assert np.array_equal(found.parts["head"][0].numpy(), head)
    assert np.array_equal(found.parts["body"][0].numpy(), animal & ~head)
    assert np.array_equal(found.parts["stamp"][0].numpy(), rectangle(8, 12, (0, 2), (8, 12)))
    inner = pets(own, border=False).read([0]).masks[0].numpy()
    assert np.array_equal(inner, rectangle(8, 12, (2, 6), (2, 10)))


def test_labels_and_stamped_twins(own):
    images = pets(own)
    assert images.classes == ("Persian", "pug")
    assert images.read([0, 1]).labels.tolist() == [1, 0]
    assert pets(own, label="species").read([0, 1]).labels.tolist() == [1, 0]
    assert pets(own, label="imagenet").read([0, 1]).labels.tolist() == [254, 283]
    plain, stamped = images.read([0]), pets(own, stamped=True, part="stamp").read([0])
    assert abs(plain.images.mean() * 255 - 50) < 2
    assert abs(stamped.images.mean() * 255 - 200) < 2
    assert torch.equal(stamped.masks, plain.parts["stamp"])
    assert pets(own).fingerprint() != pets(own, stamped=True).fingerprint()


def test_the_official_layout(official):
    images = pets(official)
    assert len(images) == 3
    assert images.classes == ("Bengal", "Persian", "pug")
    found = images.read(range(3))
    assert found.labels.tolist() == [2, 0, 1]
    assert list(found.parts) == ["animal"]
    assert len(pets(official, "test")) == 1
    heads = pets(official, part="head")  # only some have a box
    assert heads.read([0]).ids == ("pug_1",)
    assert np.array_equal(heads.read([0]).masks[0].numpy(), rectangle(8, 12, (2, 6), (2, 5)))
    assert pets(official, label="imagenet").read([0, 1]).labels.tolist() == [254, 283]


def test_a_fingerprint_follows_lists_and_boxes(official):
    """A head's box may move, or a list be mended, without any file changing its size."""
    before = [pets(official, part=part, label="species").fingerprint() for part in ("animal", "head")]
    box = official / "annotations/xmls/pug_1.xml"
    box.write_text(box.read_text().replace("<xmin>3", "<xmin>4"))
    assert pets(official, part="head", label="species").fingerprint() != before[1]
    listed = official / "annotations/list.txt"
    listed.write_text(listed.read_text().replace("Bengal_2 1 1", "Bengal_2 1 2"))
    assert pets(official, label="species").fingerprint() != before[0]


def test_what_is_missing_is_said(own, official, tmp_path):
    with pytest.raises(MissingFile, match=r"Oxford-IIIT Pet needs .*robots\.ox\.ac\.uk/~vgg/data/pets"):
        pets(tmp_path / "nowhere")
    (own / "pets.csv").unlink()  # both lie in the same folder
    with pytest.raises(MissingFile, match="val"):
        pets(official, "val")
    with pytest.raises(MissingFile, match="stamped"):
        pets(official, stamped=True)
    with pytest.raises(UnknownName, match="no part named 'stamp'"):
        pets(official, part="stamp")
    with pytest.raises(InvalidParameter, match="did you mean 'breed'"):
        pets(official, label="breeds")
    (official / "annotations/trimaps/Bengal_2.png").unlink()
    with pytest.raises(MissingFile, match=r"Bengal_2\.png"):
        pets(official)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("../secret,pug,dog,254,2,2,5,6,8,0,12,2", "leads out of"),
        ("pug_1,pug,dog,254,2,2,5,6,8,0,12,x", "not a number"),
        ("pug_1,pug,dog,254,5,2,2,6,8,0,12,2", "ends before it starts"),
        ("pug_1,pug,dog", "Row 2 of"),
        ("pug_9,pug,dog,254,2,2,5,6,8,0,12,2", "which is not there"),
    ],
)
def test_broken_tables_are_refused(own, row, sentence):
    (own / "pets.csv").write_text(HEADER + row + "\n")
    with pytest.raises(MissingFile, match=sentence):
        pets(own)


def test_broken_lists_and_files_are_refused(official):
    lines = official / "annotations/list.txt"
    for line in ("../../x_1 1 1 1", "pug_1 1 3 1", "pug_1 1", "pug 1 1 1"):
        lines.write_text(line + "\n")
        with pytest.raises(MissingFile, match=r"leads out of|is not 'NAME CLASS"):
            pets(official)
    lines.write_text("pug_1 2 2 1\n")
    (official / "annotations/xmls/pug_1.xml").write_text(BOMB)
    with pytest.raises(MissingFile, match="document type"):
        pets(official, part="head")
    mask(official / "annotations/trimaps/pug_1.png", np.ones((30, 5)))
    with pytest.raises(MissingFile, match="30 x 5, but its picture 8 x 12"):
        pets(official).read([0])


def test_real_photographs():
    data = os.environ.get("VERAX_DATA")
    if not data or not (Path(data) / "pets").is_dir():
        pytest.skip("VERAX_DATA has no pets: no real photographs to read")
    folder = Path(data) / "pets"
    images = pets(folder, label="imagenet", geometry=Geometry.crop(64))
    seen = empty = 0
    for batch in stream(images, 180):
        seen += len(batch)
        area = batch.masks.float().mean((1, 2))
        assert ((area == 0) | (area > 0.02)).all()
        assert (area < 0.999).all()
        empty += int((area == 0).sum())
        assert set(batch.labels.tolist()) <= set(IMAGENET.values())
        # a head is on its animal
        head, animal = batch.parts["head"], batch.masks
        assert ((head & animal).sum((1, 2)) / head.sum((1, 2))).mean() > 0.6
    assert seen == len(images) == 720
    assert empty == 3  # three outlines of Egyptian Maus say that there is no cat
    plain, stamped = pets(folder).read(range(24)), pets(folder, stamped=True).read(range(24))
    moved = (plain.images - stamped.images).abs().mean(1)
    inside = torch.stack([m[s].mean() for m, s in zip(moved, plain.parts["stamp"], strict=True)])
    outside = torch.stack([m[~s].mean() for m, s in zip(moved, plain.parts["stamp"], strict=True)])
    assert (inside > 3 * outside).all()  # the twin differs in the stamp
