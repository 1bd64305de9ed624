"""Annotated images: pictures and masks stay together, batches stream, and bad files end in one sentence."""

import importlib
import os
import re
import sys
import threading
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from alignment_trees import mask, picture, rectangle
from verax.errors import InvalidInput, InvalidParameter, MissingFile, UnknownName
from verax.methods.adapters import _let_torchvision_import
from verax.tasks.alignment import (
    DATA,
    AnnotatedImages,
    Geometry,
    Subset,
    draw_groups,
    reading,
    shaped,
    stream,
)
from verax.tasks.alignment.folders import masked_folder
from verax.tasks.alignment.geometry import box_masks, polygon_mask
from verax.tasks.alignment.images import Annotated


class Numbered:
    """Image n is all n / 100; counts how many batches are alive."""

    name, classes = "numbered", None

    def __init__(self, count=100):
        self.count, self.reads, self.alive = count, [], weakref.WeakSet()

    def __len__(self):
        return self.count

    def read(self, indices):
        numbers = torch.tensor(list(indices))
        self.reads.append((numbers.tolist(), threading.current_thread().name))
        images = (numbers / 100).float()[:, None, None, None].expand(-1, 3, 4, 6).contiguous()
        masks = torch.zeros(len(numbers), 4, 6, dtype=torch.bool)
        masks[:, 1, 2] = True
        found = Annotated(images, masks, numbers, tuple(map(str, numbers.tolist())), {"dot": masks})
        self.alive.add(found)
        return found

    def fingerprint(self):
        return {"kind": "numbered", "count": self.count}


# -- streaming -------------------------------------------------------------------------------------------


def test_a_stream_holds_two_batches_however_many_images_there_are():
    images = Numbered(50_000)
    assert isinstance(images, AnnotatedImages)
    most = seen = 0
    for batch in stream(images, 1000):
        most = max(most, len(images.alive))
        assert batch.labels.tolist() == list(range(seen, seen + 1000))
        seen += len(batch)
    assert seen == 50_000
    assert most <= 3  # in use, read ahead, and the one whose name is still bound


def test_a_stream_can_be_resumed_and_stopped():
    images = Numbered(25)
    whole = [n for batch in stream(images, 4) for n in batch.labels.tolist()]
    rest = [n for batch in stream(images, 4, start=8) for n in batch.labels.tolist()]
    assert whole == list(range(25))
    assert rest == whole[8:]
    assert [len(b) for b in stream(images, 4, start=20, stop=23)] == [3]
    assert list(stream(images, 4, start=25)) == []
    with pytest.raises(InvalidParameter, match="batch_size"):
        next(stream(images, 0))


def test_a_stream_that_is_dropped_stops_reading():
    images = Numbered(1000)
    batches = stream(images, 10)
    next(batches)
    batches.close()
    assert len(images.reads) <= 3


def test_an_error_in_the_reading_thread_arrives():
    class Broken(Numbered):
        def read(self, indices):
            if 20 in indices:
                raise MissingFile("Gone.")
            return super().read(indices)

    with pytest.raises(MissingFile, match="Gone"):
        list(stream(Broken(), 10))


def test_subsets_count_for_themselves():
    part = Subset(Numbered(), [7, 3, 7])
    assert len(part) == 3
    assert part.read([2, 1]).labels.tolist() == [7, 3]
    assert part.fingerprint() != Subset(Numbered(), [7, 3]).fingerprint()
    with pytest.raises(InvalidInput, match="0 to 99, not 100"):
        Subset(Numbered(), [100])
    with pytest.raises(InvalidInput, match="0 to 2, not -1"):
        part.read([-1])


def test_groups_are_drawn_as_counted_and_by_seed():
    groups = torch.tensor([0, 1, 2, 3, -1] * 40)
    drawn = draw_groups(groups, {0: 30, 3: 2}, seed=1)
    assert len(set(drawn)) == 32
    assert torch.bincount(groups[drawn], minlength=4).tolist() == [30, 0, 0, 2]
    assert drawn == draw_groups(groups, {0: 30, 3: 2}, seed=1)
    assert drawn != draw_groups(groups, {0: 30, 3: 2}, seed=2)
    assert groups[drawn].tolist() != sorted(groups[drawn].tolist())  # mixed
    with pytest.raises(InvalidInput, match="Group 1 has 40 images, but 41"):
        draw_groups(groups, {1: 41}, seed=0)


def test_the_registry_knows_every_loader():
    for name in DATA:
        assert callable(DATA.get(name))
    with pytest.raises(UnknownName, match="did you mean 'pets'"):
        DATA.get("pet")


def test_another_part_can_be_the_mask():
    found = Numbered().read([1])
    assert torch.equal(found.about("dot").masks, found.parts["dot"])
    with pytest.raises(UnknownName, match="did you mean 'dot'"):
        found.about("dots")


# -- geometry --------------------------------------------------------------------------------------------

GEOMETRIES = [
    Geometry.crop(16, 12),
    Geometry.crop(9, 14),  # the crop is larger than what is there
    Geometry.stretch(10, 7),
    Geometry.pad(11),
    Geometry((5, 30)),
]


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (12, 12), (1, 9)], ids=str)
def test_masks_go_where_pictures_go(geometry, shape):
    """A mask drawn into the picture as white comes out where the mask comes out."""
    marked = np.random.default_rng(0).random(shape) < 0.5
    levels = np.repeat(marked[:, :, None] * np.uint8(255), 3, 2)
    nearest = Geometry(geometry.size, geometry.resize, geometry.fit, "nearest")
    moved = nearest.picture(levels)
    assert moved.shape == (*geometry.size, 3)
    assert np.array_equal(moved[:, :, 0] > 0, geometry.masks(marked[None])[0])
    images = torch.from_numpy(levels).permute(2, 0, 1)[None].float() / 255
    images, masks = nearest.tensors(images, torch.from_numpy(marked)[None])
    assert np.array_equal(images[0, 0].numpy() > 0.5, moved[:, :, 0] > 0)
    assert np.array_equal(masks[0].numpy(), moved[:, :, 0] > 0)


@pytest.mark.parametrize("shape", [(37, 61), (61, 37), (224, 224), (20, 300)], ids=str)
def test_crops_are_those_of_torchvision(shape):
    _let_torchvision_import()
    from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

    levels = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    theirs = Compose([Resize(48), CenterCrop(40)])(Image.fromarray(levels))
    assert np.array_equal(np.asarray(theirs), Geometry.crop(48, 40).picture(levels))
    marked = levels[:, :, 0] > 128
    nearest = Compose([Resize(48, InterpolationMode.NEAREST), CenterCrop(40)])(Image.fromarray(marked))
    assert np.array_equal(np.asarray(nearest), Geometry.crop(48, 40).masks(marked[None])[0])


def test_pictures_too_small_for_the_crop_are_where_torchvision_puts_them():
    _let_torchvision_import()
    crop = importlib.import_module("torchvision.transforms").CenterCrop
    for height, width in ((3, 4), (4, 3), (9, 4), (3, 20)):
        levels = np.random.default_rng(0).integers(1, 256, (height, width, 3), dtype=np.uint8)
        geometry = Geometry((8, 9))
        wanted = np.asarray(crop((8, 9))(Image.fromarray(levels)))
        assert np.array_equal(geometry.picture(levels), wanted)
        assert np.array_equal(geometry.masks(np.ones((1, height, width), bool))[0], wanted[:, :, 0] > 0)


def test_rows_and_columns_are_not_swapped():
    found = box_masks([(1, 2, 4, 9)], (10, 5))[0]
    assert np.array_equal(found, rectangle(10, 5, (2, 9), (1, 4)))
    assert np.array_equal(polygon_mask([1, 2, 4, 2, 4, 9, 1, 9], (10, 5)), found)
    tall = Geometry.crop(10, 10).masks(rectangle(40, 10, (0, 15), (0, 10))[None])[0]
    assert not tall.any()  # above the crop
    wide = Geometry.crop(10, 10).masks(rectangle(10, 40, (0, 10), (15, 20))[None])[0]
    assert np.array_equal(wide, rectangle(10, 10, (0, 10), (0, 5)))


def test_boxes_outside_are_empty_and_boxes_over_the_edge_are_cut():
    found = box_masks([(-5, -5, 2, 2), (20, 0, 30, 5), (3, 3, 3, 8), (-1e8, -1e8, 1e8, 1e8)], (6, 8))
    assert found.sum((1, 2)).tolist() == [4, 0, 0, 48]
    cropped = Geometry.crop(6, 4).masks(box_masks([(0, 0, 1, 6)], (6, 8)))
    assert not cropped.any()
    assert box_masks([], (6, 8)).shape == (0, 6, 8)
    assert Geometry.pad(9).masks(box_masks([], (6, 8))).shape == (0, 9, 9)
    for wrong in ([(4, 0, 2, 5)], [(0, float("nan"), 2, 5)], [(0, 0, float("inf"), 5)]):
        with pytest.raises(InvalidInput, match="finite corners"):
            box_masks(wrong, (6, 8))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-40, 200), st.integers(-40, 200)), min_size=3, max_size=12))
def test_polygons_agree_with_counting_crossings_pixel_by_pixel(corners):
    shape = (13, 17)
    points = [(x / 10 + 0.013, y / 10 + 0.017) for x, y in corners]  # no corner on a centre
    found = polygon_mask([value for point in points for value in point], shape)
    for row in range(shape[0]):
        for col in range(shape[1]):
            x, y, crossings = col + 0.5, row + 0.5, 0
            for (ax, ay), (bx, by) in zip(points, [*points[1:], points[0]], strict=True):
                if (ay <= y) != (by <= y) and ax + (y - ay) / (by - ay) * (bx - ax) < x:
                    crossings += 1
            assert found[row, col] == (crossings % 2 == 1)


def test_a_rectangle_is_the_same_as_box_and_as_polygon():
    """Also where its sides pass through the centres of pixels."""
    for x0, y0, x1, y1 in ((1.5, 2.5, 4.5, 3.5), (0.5, 0.5, 6.5, 5.5), (1, 2, 3, 4), (-3, -2.5, 2.5, 9)):
        drawn = polygon_mask([x0, y0, x1, y0, x1, y1, x0, y1], (6, 7))
        assert np.array_equal(drawn, box_masks([[x0, y0, x1, y1]], (6, 7))[0])
        assert np.array_equal(drawn, polygon_mask([x0, y0, x0, y1, x1, y1, x1, y0], (6, 7)))


def test_polygons_that_cannot_be_are_refused():
    for wrong in ([1, 2, 3, 4], [1, 2, 3, 4, 5], [0, 0, 1, float("nan"), 2, 2], [[1, 2], [3, 4], [5, 6]]):
        with pytest.raises(InvalidInput, match="three finite points"):
            polygon_mask(wrong, (4, 4))
    assert polygon_mask([-1e8, -1e8, 1e8, -1e8, 1e8, 1e8, -1e8, 1e8], (3, 5)).all()


def test_geometry_refuses_what_cannot_be():
    with pytest.raises(InvalidParameter, match="did you mean 'crop'"):
        Geometry((4, 4), fit="crops")
    with pytest.raises(InvalidParameter, match="did you mean 'bicubic'"):
        Geometry.crop(4, 4, "bicubik")
    for size in (0, -1, 10**6, 2.5):
        with pytest.raises(InvalidParameter, match="1 to 8192"):
            Geometry.crop(size, 4)
    with pytest.raises(InvalidInput, match="empty"):
        Geometry.crop(4).picture(np.zeros((0, 5, 3), np.uint8))
    with pytest.raises(InvalidInput, match="so long"):  # a thin picture must not become a huge one
        Geometry.crop(8192, 8).plan(1, 60_000)


def test_drawn_images_can_be_reshaped_too():
    large = shaped(Numbered(), Geometry.crop(8, 8, "nearest")).read([5, 6])
    assert large.images.shape == (2, 3, 8, 8)
    assert torch.allclose(large.images[1], torch.tensor(0.06))
    assert torch.equal(large.masks[0], torch.from_numpy(rectangle(8, 8, (2, 4), (2, 4))))
    assert torch.equal(large.parts["dot"], large.masks)
    assert "crop" in str(shaped(Numbered(), Geometry.crop(8)).fingerprint())


# -- a folder of masks -----------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path):
    """Three pictures in two classes, and masks of other suffixes."""
    for number, (word, shape) in enumerate([("cat", (8, 12)), ("cat", (16, 24)), ("dog", (8, 12))]):
        picture(tmp_path / "images" / word / f"{number}.png", *shape, seed=number)
        mask(tmp_path / "masks" / word / f"{number}.bmp", rectangle(*shape, (2, 4), (3, 9)))
    return tmp_path


def test_a_folder_of_masks_is_read_with_labels_from_folders(folders):
    images = masked_folder(folders / "images", folders / "masks", geometry=Geometry.stretch(8, 12))
    assert isinstance(images, AnnotatedImages)
    assert images.classes == ("cat", "dog")
    found = images.read([2, 0])
    assert found.ids == ("dog/2", "cat/0")
    assert found.labels.tolist() == [1, 0]
    assert found.images.dtype == torch.float32
    levels = np.asarray(Image.open(folders / "images/cat/0.png"))
    assert np.array_equal((found.images[1] * 255).round().permute(1, 2, 0).numpy().astype(np.uint8), levels)
    assert np.array_equal(found.masks[0].numpy(), rectangle(8, 12, (2, 4), (3, 9)))


def test_different_sizes_need_a_geometry(folders):
    images = masked_folder(folders / "images", folders / "masks")
    with pytest.raises(InvalidInput, match=r"geometry=Geometry\.crop\(256, 224\)") as caught:
        images.read([0, 1])
    known: dict = {}
    exec(re.search(r"from [\w.]+ import Geometry", str(caught.value))[0], known)
    cut = masked_folder(folders / "images", folders / "masks", geometry=known["Geometry"].crop(256, 224))
    assert cut.read([0, 1]).images.shape == (2, 3, 224, 224)
    assert images.read([1]).images.shape == (1, 3, 16, 24)
    assert shaped(images, Geometry.crop(8)).read([0, 1]).images.shape == (2, 3, 8, 8)


def test_batches_do_not_change_what_is_read(folders):
    images = masked_folder(folders / "images", folders / "masks", geometry=Geometry.crop(6, 5))
    whole = images.read(range(3))
    for number in range(3):
        alone = images.read([number])
        assert torch.equal(alone.images[0], whole.images[number])
        assert torch.equal(alone.masks[0], whole.masks[number])


def test_labels_can_come_from_a_table(folders):
    table = folders / "labels.csv"
    table.write_text("image,label\ncat/0.png,207\ncat/1.png,3\ndog/2.png,207\n")
    images = masked_folder(folders / "images", folders / "masks", labels=table, geometry=Geometry.crop(8))
    assert images.read(range(3)).labels.tolist() == [207, 3, 207]
    table.write_text("image,label\ncat/0.png,b\n")
    with pytest.raises(MissingFile, match="no label for 'cat/1' and 1 more"):
        masked_folder(folders / "images", folders / "masks", labels=table)


def test_missing_masks_are_counted_refused_or_dropped(folders):
    (folders / "masks/cat/1.bmp").unlink()
    with pytest.raises(MissingFile, match=r"1 of 3 images .* the first is 'cat/1'"):
        masked_folder(folders / "images", folders / "masks")
    assert len(masked_folder(folders / "images", folders / "masks", missing="drop")) == 2
    with pytest.raises(MissingFile, match="There is no folder"):
        masked_folder(folders / "nowhere", folders / "masks")
    with pytest.raises(InvalidParameter, match="did you mean 'drop'"):
        masked_folder(folders / "images", folders / "masks", missing="dropp")


def test_values_choose_what_counts_and_larger_masks_are_fitted(tmp_path):
    picture(tmp_path / "i/a.png", 8, 12)
    numbers = np.array([[1, 2], [3, 0]], np.uint8).repeat(8, 0).repeat(12, 1)  # twice as large
    (tmp_path / "m").mkdir()
    Image.fromarray(numbers).save(tmp_path / "m/a.png")
    some = masked_folder(tmp_path / "i", tmp_path / "m", values=(1, 3)).read([0]).masks[0].numpy()
    assert np.array_equal(some, rectangle(8, 12, (0, 8), (0, 6)))
    mask(tmp_path / "m/a.png", rectangle(12, 8, (0, 3), (0, 3)))  # turned by a quarter
    with pytest.raises(MissingFile, match="12 x 8, but its picture 8 x 12"):
        masked_folder(tmp_path / "i", tmp_path / "m").read([0])


def test_a_fingerprint_follows_files_and_geometry(folders):
    def of(**options):
        return masked_folder(folders / "images", folders / "masks", **options).fingerprint()

    first = of()
    assert first == of()
    assert first != of(geometry=Geometry.crop(8))
    assert first != of(values=(1,))
    picture(folders / "images/dog/2.png", 8, 12, seed=99)
    picture(folders / "images/dog/2.png", 30, 12, seed=99)
    assert first != of()


# -- hostile files ---------------------------------------------------------------------------------------


def test_pictures_that_are_none_or_too_large_end_in_a_sentence(tmp_path):
    (tmp_path / "text.png").write_text("not a picture")
    levels = picture(tmp_path / "good.png", 40, 40, seed=0)
    (tmp_path / "cut.png").write_bytes((tmp_path / "good.png").read_bytes()[:600])
    (tmp_path / "script.eps").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\nshowpage\n")
    for name in ("text.png", "cut.png", "script.eps"):
        with pytest.raises(MissingFile, match="cannot be decoded"):
            reading.picture(tmp_path / name)
    with pytest.raises(MissingFile, match="There is no picture"):
        reading.picture(tmp_path / "absent.png")
    assert np.array_equal(reading.picture(tmp_path / "good.png"), levels)
    # a bomb: a kilobyte of file, gigabytes of picture
    Image.new("1", (8300, 8300)).save(tmp_path / "large.png")
    Image.new("1", (14_000, 14_000)).save(tmp_path / "bomb.png")
    with pytest.raises(MissingFile, match="more than 67108864 pixels"):
        reading.picture(tmp_path / "large.png")
    with pytest.raises(MissingFile, match="more than 67108864 pixels"):
        reading.numbers(tmp_path / "bomb.png")


def test_names_cannot_leave_their_folder(tmp_path):
    wrong = [
        "C:x.png",
        "../secret.png",
        "/etc/passwd",
        "a/../../b",
        "C:\\x.png",
        "..\\b",
        "",
        "a\0b",
        None,
        7,
    ]
    for name in wrong:
        with pytest.raises(MissingFile, match="leads out of"):
            reading.inside(tmp_path, name, tmp_path / "notes.json")
    assert reading.inside(tmp_path, "a/b 12:30.png", tmp_path) == tmp_path / "a" / "b 12:30.png"


def test_tables_with_holes_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    for text, sentence in (
        ("", "needs a header"),
        ("a,a\n1,2\n", "needs a header"),
        ("a,b\n1\n", "Row 2"),
        ('a,b\n"1,2\n', "not a CSV file"),
    ):
        path.write_text(text)
        with pytest.raises(MissingFile, match=sentence):
            reading.rows(path)
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(MissingFile, match="UTF-8"):
        reading.rows(path)
    for value in ("nan", "inf", "1e400", "x", None, [1], 10**400):
        with pytest.raises(MissingFile, match="not a number"):
            reading.number(value, path)


def test_files_without_end_and_folders_are_not_read(tmp_path):
    path = tmp_path / "long"
    path.write_bytes(b"x" * 101)
    assert len(reading.data(path, 101)) == 101
    with pytest.raises(MissingFile, match="more than 100 bytes"):
        reading.data(path, 100)
    with pytest.raises(MissingFile, match="There is no file"):
        reading.data(tmp_path)
    path.write_text("[" * (sys.getrecursionlimit() * 50))
    with pytest.raises(MissingFile, match="not JSON"):
        reading.tree(path)


# -- pictures of other kinds -----------------------------------------------------------------------------


def _written(folder, levels, marked, suffix="png", mask_suffix="png"):
    for name, values, end in (("i", levels, suffix), ("m", marked, mask_suffix)):
        (folder / name).mkdir(exist_ok=True)
        for path in (folder / name).iterdir():
            path.unlink()
        Image.fromarray(values).save(folder / name / f"a.{end}")
    return masked_folder(folder / "i", folder / "m")


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path):
    levels = np.linspace(0, 65535, 96).astype(np.uint16).reshape(8, 12)
    marked = rectangle(8, 12, (0, 3), (0, 3))
    found = _written(tmp_path, levels, marked.astype(np.uint16) * 300).read([0])
    assert np.allclose(found.images[0].numpy(), levels / 65535, atol=1 / 255)
    assert np.array_equal(found.masks[0].numpy(), marked)
    with pytest.raises(MissingFile, match="neither 8 nor 16 bits"):
        _written(tmp_path, (levels / 65535).astype(np.float32), marked, "tif").read([0])


def test_masks_of_fractions_are_refused_and_those_with_transparency_are_read(tmp_path):
    levels, marked = np.zeros((8, 12, 3), np.uint8), rectangle(8, 12, (0, 3), (0, 3))
    whole = _written(tmp_path, levels, marked.astype(np.float32), mask_suffix="tif").read([0])
    assert np.array_equal(whole.masks[0].numpy(), marked)
    with pytest.raises(MissingFile, match="not whole"):
        _written(tmp_path, levels, (marked * 0.5).astype(np.float32), mask_suffix="tif").read([0])
    opaque = np.stack([marked * 255, np.full((8, 12), 255)], 2).astype(np.uint8)  # grey and opacity
    assert np.array_equal(_written(tmp_path, levels, opaque).read([0]).masks[0].numpy(), marked)


def test_names_that_no_page_can_hold_are_refused(tmp_path):
    _written(tmp_path, np.zeros((8, 12, 3), np.uint8), np.ones((8, 12), np.uint8))
    for name in ("i", "m"):
        (tmp_path / name / "a.png").rename(os.fsdecode(os.fsencode(tmp_path / name) + b"/\xff.png"))
    with pytest.raises(MissingFile, match="not text in UTF-8"):
        masked_folder(tmp_path / "i", tmp_path / "m")


def test_two_labels_of_one_picture_are_refused(folders):
    path = folders / "labels.csv"
    names = sorted(path.relative_to(folders / "images") for path in (folders / "images").rglob("*.*"))
    path.write_text("image,label\n" + "".join(f"{name},x\n" for name in [*names, names[0]]))
    assert masked_folder(folders / "images", folders / "masks", labels=path).classes == ("x",)
    path.write_text(path.read_text() + f"{names[0]},y\n")
    with pytest.raises(MissingFile, match="two labels for"):
        masked_folder(folders / "images", folders / "masks", labels=path)


def test_images_without_any_object_are_reshaped_all_the_same():
    class Nothing(Numbered):
        def read(self, indices):
            found = super().read(indices)
            none = torch.zeros(len(found), 0, *found.images.shape[2:], dtype=torch.bool)
            return replace(found, instances=none, kinds=torch.zeros(len(found), 0, dtype=torch.long))

    assert shaped(Nothing(), Geometry.crop(8)).read([0, 1]).instances.shape == (2, 0, 8, 8)
