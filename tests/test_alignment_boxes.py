"""Boxes, polygons and run-length masks in CSV, VOC, ImageNet and COCO layouts."""

import itertools
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alignment_trees import BOMB, LEAK, picture, rectangle, voc_file
from verax.errors import InvalidInput, InvalidParameter, MissingFile
from verax.tasks.alignment import Geometry, rle
from verax.tasks.alignment.coco import coco
from verax.tasks.alignment.folders import boxed_folder
from verax.tasks.alignment.imagenet import imagenet
from verax.tasks.alignment.voc import voc

# -- CSV -------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path):
    """Two pictures, three boxes."""
    for name in ("a.png", "sub/b.png"):
        picture(tmp_path / "images" / name)
    path = tmp_path / "boxes.csv"
    path.write_text(
        "image, xmin,ymin,xmax,ymax,label\na.png,1,2,4,5,dog\na.png,6,0,20,3,dog\nsub/b.png,0,0,1,1,cat\n"
    )
    return path


def test_a_table_of_boxes_becomes_masks_instances_and_labels(table):
    images = boxed_folder(table.parent / "images", table)
    assert images.classes == ("cat", "dog")
    found = images.read([0, 1])
    assert found.ids == ("a.png", "sub/b.png")
    assert found.labels.tolist() == [1, 0]
    first, second = rectangle(8, 12, (2, 5), (1, 4)), rectangle(8, 12, (0, 3), (6, 12))
    assert np.array_equal(found.masks[0].numpy(), first | second)
    assert np.array_equal(found.instances[0].numpy(), np.stack([first, second]))
    assert found.instances[1].sum((1, 2)).tolist() == [1, 0]
    assert found.kinds.tolist() == [[1, 1], [0, -1]]


def test_labels_that_disagree_are_not_known(table):
    table.write_text("image,xmin,ymin,xmax,ymax,label\na.png,1,2,4,5,dog\na.png,6,0,9,3,cat\n")
    found = boxed_folder(table.parent / "images", table).read([0])
    assert found.labels.tolist() == [-1]
    assert found.kinds.tolist() == [[1, 0]]
    table.write_text("image,xmin,ymin,xmax,ymax\na.png,1,2,4,5\n")
    images = boxed_folder(table.parent / "images", table)
    assert images.classes is None
    assert images.read([0]).labels.tolist() == [-1]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("image,xmin,ymin,xmax\na.png,1,2,3\n", "no column 'ymax'; did you mean 'xmax'"),
        ("image,xmin,ymin,xmax,ymax\n", "has no box"),
        ("image,xmin,ymin,xmax,ymax\na.png,5,2,4,5\n", "ends before it starts"),
        ("image,xmin,ymin,xmax,ymax\na.png,one,2,4,5\n", "'one' in .* is not a number"),
        ("image,xmin,ymin,xmax,ymax\na.png,nan,2,4,5\n", "not a number"),
        ("image,xmin,ymin,xmax,ymax\n../boxes.csv,0,0,1,1\n", "leads out of"),
        ("image,xmin,ymin,xmax,ymax\n/etc/passwd,0,0,1,1\n", "leads out of"),
        ("image,xmin,ymin,xmax,ymax\nzebra.png,0,0,1,1\n", "There is no image"),
    ],
)
def test_tables_that_cannot_be_are_refused(table, rows, sentence):
    table.write_text(rows)
    with pytest.raises(MissingFile, match=sentence):
        boxed_folder(table.parent / "images", table)


def test_two_spellings_of_a_name_are_one_picture(table):
    table.write_text("image,xmin,ymin,xmax,ymax\na.png,0,0,1,1\n./a.png,2,2,3,3\n")
    images = boxed_folder(table.parent / "images", table)
    assert images.read(range(len(images))).ids == ("a.png",)
    assert int(images.read([0]).masks.sum()) == 2


# -- VOC -------------------------------------------------------------------------------------------------


@pytest.fixture
def pascal(tmp_path):
    """Two pictures; VOC counts from 1 and includes the last pixel."""
    for name, objects in (
        ("one", [("cat", 2, 3, 4, 5)]),
        ("two", [("cat", 1, 1, 12, 8), ("dog", 1, 1, 1, 1)]),
    ):
        picture(tmp_path / "JPEGImages" / f"{name}.jpg")
        voc_file(tmp_path / "Annotations" / f"{name}.xml", objects)
    (tmp_path / "ImageSets/Main").mkdir(parents=True)
    (tmp_path / "ImageSets/Main/val.txt").write_text("two\n\n")
    return tmp_path


def test_voc_counts_from_one_and_includes_the_end(pascal):
    images = voc(pascal)
    assert images.classes == ("cat", "dog")
    found = images.read([0, 1])
    assert found.labels.tolist() == [0, -1]
    assert np.array_equal(found.masks[0].numpy(), rectangle(8, 12, (2, 5), (1, 4)))
    assert found.masks[1].all()
    assert found.instances[1].sum((1, 2)).tolist() == [96, 1]
    zero = voc(pascal, origin=0).read([0]).masks[0].numpy()
    assert np.array_equal(zero, rectangle(8, 12, (3, 5), (2, 4)))


def test_splits_and_own_folders(pascal, tmp_path):
    assert voc(pascal, "val").read([0]).ids == ("two",)
    with pytest.raises(
        MissingFile, match=r"train\.txt', which is not there; expected: JPEGImages.*host\.robots"
    ):
        voc(pascal, "train")
    with pytest.raises(MissingFile, match="leads out of"):
        voc(pascal, "../../val")
    own = voc(pascal / "Annotations", images=pascal / "JPEGImages", classes=("dog", "cat"))
    assert own.read([0]).labels.tolist() == [1]


def test_boxes_drawn_on_another_size_are_scaled(pascal):
    voc_file(pascal / "Annotations/one.xml", [("cat", 1, 1, 12, 8)], size=(16, 24))
    found = voc(pascal).read([0]).masks[0].numpy()
    assert np.array_equal(found, rectangle(8, 12, (0, 4), (0, 6)))
    voc_file(pascal / "Annotations/one.xml", [("cat", 1, 1, 6, 4)], size=None)
    assert np.array_equal(voc(pascal).read([0]).masks[0].numpy(), rectangle(8, 12, (0, 4), (0, 6)))
    voc_file(pascal / "Annotations/one.xml", [("cat", 1, 1, 6, 4)], size=(0, 0))
    assert np.array_equal(voc(pascal).read([0]).masks[0].numpy(), rectangle(8, 12, (0, 4), (0, 6)))


def test_boxes_drawn_on_a_turned_picture_are_refused(pascal):
    voc_file(pascal / "Annotations/one.xml", [("cat", 1, 1, 6, 4)], size=(12, 8))
    with pytest.raises(MissingFile, match="12 x 8, but its picture 8 x 12"):
        voc(pascal).read([0])


def test_no_objects_is_an_empty_mask(pascal):
    voc_file(pascal / "Annotations/one.xml", [])
    found = voc(pascal).read([0])
    assert not found.masks.any()
    assert found.labels.tolist() == [-1]
    assert found.instances.shape[:2] == (1, 0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (BOMB, "declares a document type"),
        (LEAK, "declares a document type"),
        ("<annotation><object>", "is not XML"),
        ("", "is not XML"),
        ("\0\1\2", "is not XML"),
        ('<?xml version="1.0" encoding="klingon"?><annotation/>', "is not XML"),
        ("<html></html>", "not a VOC annotation"),
        ("<annotation><object><name>cat</name></object></annotation>", "has no object/bndbox"),
        ("<annotation><object><bndbox/></object></annotation>", "has no bndbox/xmin"),
        ("<annotation>" + "<object/>" * 1001 + "</annotation>", "1001 objects, more than are read"),
    ],
    ids=range(10),
)
def test_broken_and_hostile_xml_is_refused(pascal, text, sentence):
    (pascal / "Annotations/one.xml").write_text(text)
    with pytest.raises(MissingFile, match=sentence):
        voc(pascal)


def test_deep_xml_does_no_harm(pascal):
    (pascal / "Annotations/one.xml").write_text(
        "<annotation>" + "<a>" * 100_000 + "</a>" * 100_000 + "</annotation>"
    )
    assert not voc(pascal).read([0]).masks.any()


@pytest.mark.parametrize("box", [("x", 2, 3, 4), (5, 2, 4, 9), ("1e999", 2, 3, 4)])
def test_boxes_in_xml_are_checked(pascal, box):
    voc_file(pascal / "Annotations/one.xml", [("cat", *box)])
    with pytest.raises(MissingFile, match=r"not a number|ends before"):
        voc(pascal)


def test_voc_says_what_is_missing(pascal, tmp_path):
    with pytest.raises(MissingFile, match=r"Pascal VOC needs .*Annotations"):
        voc(tmp_path / "nowhere")
    (pascal / "JPEGImages/one.jpg").unlink()
    with pytest.raises(MissingFile, match=r"one\.jpg"):
        voc(pascal)


# -- ImageNet --------------------------------------------------------------------------------------------


def test_imagenet_with_folders_of_classes(tmp_path):
    for place, wnid in ((0, "0000"), (1, "0001")):
        picture(tmp_path / f"val/images/{wnid}/v{place}.JPEG", 30, 40)
        voc_file(tmp_path / f"val/annotations/{wnid}/v{place}.xml", [("n0", 10, 0, 20, 30)], size=(30, 40))
    picture(tmp_path / "val/images/0001/unmarked.JPEG", 30, 40)
    images = imagenet(tmp_path, geometry=Geometry.crop(30, 20))
    assert len(images) == 2
    found = images.read([0, 1])
    assert found.labels.tolist() == [0, 1]
    # the crop starts at column 10
    assert np.array_equal(found.masks[0].numpy(), rectangle(20, 20, (0, 20), (0, 10)))
    assert imagenet(tmp_path).read([0]).images.shape == (1, 3, 224, 224)


def test_imagenet_as_it_is_distributed(tmp_path):
    base = tmp_path / "ILSVRC"
    picture(base / "Data/CLS-LOC/val/ILSVRC2012_val_00000001.JPEG", 20, 20)
    voc_file(base / "Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml", [("n02", 0, 0, 10, 20)], (20, 20))
    with pytest.raises(MissingFile, match=r"LOC_synset_mapping\.txt'.*image-net\.org"):
        imagenet(tmp_path)
    (tmp_path / "LOC_synset_mapping.txt").write_text("n01 tench, Tinca\nn02 goldfish\n")
    found = imagenet(tmp_path, geometry=None).read([0])
    assert found.labels.tolist() == [1]
    assert np.array_equal(found.masks[0].numpy(), rectangle(20, 20, (0, 20), (0, 10)))
    voc_file(base / "Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml", [("n77", 0, 0, 10, 20)], (20, 20))
    with pytest.raises(MissingFile, match="not of one class"):
        imagenet(tmp_path).read([0])


def test_boxes_outside_the_crop_leave_an_empty_mask(tmp_path):
    picture(tmp_path / "val/images/a/v.JPEG", 30, 90)
    voc_file(tmp_path / "val/annotations/a/v.xml", [("n0", 0, 0, 20, 30)], size=(30, 90))
    found = imagenet(tmp_path, geometry=Geometry.crop(30)).read([0])
    assert not found.masks.any()
    (tmp_path / "val/annotations/a/v.xml").write_text(BOMB)
    with pytest.raises(MissingFile, match="document type"):
        imagenet(tmp_path).read([0])
    with pytest.raises(MissingFile, match="ImageNet needs"):
        imagenet(tmp_path / "val")


# -- run lengths -----------------------------------------------------------------------------------------


def compress(counts):
    """COCO's string for runs, written from its description."""
    text = ""
    for place, count in enumerate(counts):
        value = count - counts[place - 2] if place > 2 else count
        while True:
            piece, value = value & 31, value >> 5
            done = (value == 0 and not piece & 16) or (value == -1 and piece & 16)
            text += chr(48 + piece + (0 if done else 32))
            if done:
                break
    return text


def runs(marked):
    """Lengths of runs down the columns, starting with 0."""
    flat = [False, *marked.T.ravel().tolist(), None]
    counts, length = [], -1
    for before, value in itertools.pairwise(flat):
        length += 1
        if value is not before:
            counts.append(length)
            length = 0
    return counts


def test_strings_that_other_programs_wrote():
    assert rle.decompress("52203") == [5, 2, 2, 2, 5]
    assert rle.decompress(b"6320004") == [6, 3, 2, 3, 2, 3, 6]
    square = rle.decode(rle.decompress("6320004"), (5, 5))
    assert np.array_equal(square, rectangle(5, 5, (1, 4), (1, 4)))


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 10**6), st.floats(0, 1))
def test_runs_come_back(height, width, seed, share):
    marked = np.random.default_rng(seed).random((height, width)) < share
    counts = runs(marked)
    assert np.array_equal(rle.decode(counts, (height, width)), marked)
    assert rle.decompress(compress(counts)) == counts


def test_runs_that_cannot_be_are_refused():
    for counts in ([5], [10, -1], [2.0, 7], [True, 8], [10**30]):
        with pytest.raises(InvalidInput, match="add up"):
            rle.decode(counts, (3, 3))
    for shape in ((0, 5), (10**6, 10**6)):
        with pytest.raises(InvalidInput, match="cannot have"):
            rle.decode([0], shape)
    for text in ("5 2", "\xff", "P" * 50):
        with pytest.raises(InvalidInput, match="character"):
            rle.decompress(text)
    with pytest.raises(InvalidInput, match="in the middle"):
        rle.decompress("P")


# -- COCO ------------------------------------------------------------------------------------------------


@pytest.fixture
def instances(tmp_path):
    """A polygon, runs as numbers and as a string, a crowd and a plain box."""
    first, second = rectangle(8, 12, (2, 5), (1, 4)), rectangle(8, 12, (0, 3), (6, 12))
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        picture(tmp_path / "val" / name)
    notes = [
        {"segmentation": [[1, 2, 4, 2, 4, 5, 1, 5]], "bbox": [1, 2, 3, 3], "image_id": 7, "category_id": 90},
        {"segmentation": {"size": [8, 12], "counts": runs(second)}, "image_id": 7, "category_id": 90},
        {"segmentation": {"size": [8, 12], "counts": compress(runs(first))}, "image_id": 5, "category_id": 3},
        {"bbox": [0, 1, 2, 5], "image_id": 5, "category_id": 90},
        {"bbox": [0, 0, 12, 8], "image_id": 5, "category_id": 3, "iscrowd": 1},
    ]
    whole = {
        "images": [{"id": i, "file_name": n} for i, n in ((7, "a.jpg"), (5, "b.jpg"), (6, "c.jpg"))],
        "categories": [{"id": 90, "name": "dog"}, {"id": 3, "name": "cat"}],
        "annotations": [{"id": number, **note} for number, note in enumerate(notes)],
    }
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(whole))
    return path


def change(path, function):
    whole = json.loads(path.read_text())
    function(whole)
    path.write_text(json.dumps(whole))


def test_coco_reads_polygons_runs_and_boxes(instances):
    images = coco(instances, instances.parent / "val")
    first, second = rectangle(8, 12, (2, 5), (1, 4)), rectangle(8, 12, (0, 3), (6, 12))
    assert images.classes == ("cat", "dog")
    found = images.read([0, 1])
    assert found.ids == ("b.jpg", "a.jpg")  # by number; c has no object
    assert found.labels.tolist() == [-1, 1]
    assert found.kinds.tolist() == [[0, 1], [1, 1]]
    assert np.array_equal(found.instances[1].numpy(), np.stack([first, second]))
    assert np.array_equal(found.instances[0].numpy(), np.stack([first, rectangle(8, 12, (1, 6), (0, 2))]))
    assert torch.equal(found.masks, found.instances.any(1))
    assert coco(instances, instances.parent / "val", crowds=True).read([0]).masks.all()
    geometry = Geometry.stretch(4, 6)
    assert coco(instances, instances.parent / "val", geometry=geometry).read([1]).instances.shape == (
        1,
        2,
        4,
        6,
    )


def test_coco_drawn_on_other_pixels_is_refused(instances):
    """Polygons know no size, so that only the list of pictures can tell."""
    for height, width, good in ((8, 12, True), (16, 24, False), (12, 8, False)):
        change(instances, lambda whole, h=height, w=width: whole["images"][0].update(height=h, width=w))
        images = coco(instances, instances.parent / "val")
        if good:
            assert images.read([1]).ids == ("a.jpg",)
        else:
            with pytest.raises(MissingFile, match=f"was drawn on {height} x {width}"):
                images.read([1])


def test_coco_boxes_alone(instances):
    change(instances, lambda whole: whole["annotations"].pop(1))
    change(instances, lambda whole: whole["annotations"].pop(1))
    images = coco(instances, instances.parent / "val", kind="boxes")
    assert np.array_equal(images.read([1]).masks[0].numpy(), rectangle(8, 12, (2, 5), (1, 4)))
    with pytest.raises(InvalidParameter, match="did you mean 'boxes'"):
        coco(instances, instances.parent / "val", kind="boxs")


def _set(table, number, field, value):
    def set_(whole):
        whole[table][number][field] = value

    return set_


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda whole: whole.pop("images"), "no list named 'images'"),
        (lambda whole: whole["annotations"][0].pop("image_id"), "has no 'image_id'"),
        (_set("annotations", 0, "image_id", 99), "picture or category that the file lacks"),
        (_set("annotations", 0, "category_id", [1]), "'category_id' that is no number"),
        (_set("images", 0, "file_name", "../instances.json"), "leads out of"),
        (_set("images", 0, "file_name", "/etc/passwd"), "leads out of"),
        (_set("images", 0, "file_name", {"a": 1}), "leads out of|There is no|which is not there"),
        (_set("images", 0, "file_name", "zebra.jpg"), r"zebra\.jpg', which is not there.*cocodataset\.org"),
        (lambda whole: whole["annotations"].clear(), "no annotated object"),
        (_set("images", 1, "id", 7), "Two entries of 'images' .* have the id '7'"),
        (_set("images", 1, "file_name", "a.jpg"), r"Two entries of 'images' .* the file_name 'a\.jpg'"),
        (_set("categories", 1, "id", 90), "Two entries of 'categories' .* have the id '90'"),
        (_set("categories", 1, "name", "\ud800"), "not text in UTF-8"),
    ],
    ids=range(13),
)
def test_broken_coco_files_are_refused(instances, function, sentence):
    change(instances, function)
    with pytest.raises(MissingFile, match=sentence):
        coco(instances, instances.parent / "val")


@pytest.mark.parametrize(
    "drawn",
    [
        [[1, 2, 3]],
        [[0, 0, 1, 1, float("nan"), 2]],
        [5],
        ["abc"],
        [[0, 0, 1, 0, 1, 1]] * 1001,
        {"size": [8, 12], "counts": [1, 2]},
        {"size": [12, 8], "counts": [96]},
        {"size": [10**9, 10**9], "counts": [10**18]},
        {"size": [8, 12], "counts": "P"},
        {"size": [8, 12], "counts": {"a": 1}},
        {"counts": [96]},
    ],
    ids=range(11),
)
def test_broken_segmentations_are_refused(instances, drawn):
    change(instances, _set("annotations", 0, "segmentation", drawn))
    with pytest.raises(MissingFile, match=r"annotation 0 in .* is broken|is not a number"):
        coco(instances, instances.parent / "val").read([1])


def test_coco_that_is_no_json(instances):
    for text in ("{", "[1, 2]", "null", '"x"', "\0"):
        instances.write_text(text)
        with pytest.raises(MissingFile, match=r"is not JSON|no list named"):
            coco(instances, instances.parent / "val")
