"""CelebA and CelebAMask-HQ in their official layouts, written small."""

import numpy as np
import pytest
import torch

from alignment_trees import mask, picture, rectangle
from verax.errors import InvalidParameter, MissingFile, UnknownName
from verax.tasks.alignment import Geometry, Subset, draw_groups
from verax.tasks.alignment.bias import DESIGNS, GROUPS, counts
from verax.tasks.alignment.celeba import celeba, celeba_groups, mouth_box
from verax.tasks.alignment.celebamask import celebamask

WORDS = ("Black_Hair", "Blond_Hair", "Smiling")
FACES = [(1, -1, 1), (1, 1, -1), (-1, 1, 1), (-1, 1, -1), (-1, -1, 1)]  # black wins over blond


def listing(path, rows, header=None, form="{:06d}.jpg"):
    """A table as CelebA writes it: a count, names, then one row for each picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start = [] if header is None else [str(len(rows)), " ".join(header) + " "]
    lines = [f"{form.format(n)}  " + "  ".join(map(str, row)) for n, row in rows.items()]
    path.write_text("\n".join([*start, *lines]) + "\n")


@pytest.fixture
def faces(tmp_path):
    root = tmp_path / "celeba"
    for number in range(1, 6):
        picture(root / f"img_align_celeba/{number:06d}.jpg", 218, 178, level=40 * number)
    listing(root / "list_attr_celeba.txt", dict(enumerate(FACES, 1)), WORDS)
    marks = [
        f"{name}_{axis}"
        for name in ("lefteye", "righteye", "nose", "leftmouth", "rightmouth")
        for axis in "xy"
    ]
    listing(
        root / "list_landmarks_align_celeba.txt",
        {n: (69, 109, 106, 113, 77, 142, 73, 152, 108, 154) for n in range(1, 6)},
        marks,
    )
    listing(root / "list_eval_partition.txt", {1: (0,), 2: (1,), 3: (2,), 4: (2,), 5: (2,)})
    return root


def test_the_mouth_is_a_rectangle_between_its_corners(faces):
    images = celeba(faces, geometry=None)
    found = images.read(range(3))
    assert found.ids == ("000003.jpg", "000004.jpg", "000005.jpg")
    assert found.labels.tolist() == [1, 0, 1]
    half = round((2 / 3 * (108 - 73)) / 2)
    wanted = rectangle(218, 178, (152 - half, 154 + half), (73, 108))
    assert np.array_equal(found.masks[0].numpy(), wanted)
    assert found.variables["Blond_Hair"].tolist() == [1, 1, 0]
    assert found.variables["group"].tolist() == [2, 3, -1]
    assert celeba(faces, "all").read([0]).images.shape == (1, 3, 224, 224)
    assert celeba(faces, "train", label="Black_Hair").read([0]).labels.tolist() == [1]


def test_a_tilted_mouth_does_not_vanish():
    xmin, ymin, xmax, ymax = mouth_box((70, 180), (90, 130))
    assert xmin < xmax
    assert ymin < ymax


def test_groups_are_known_without_decoding(faces):
    for file in (faces / "img_align_celeba").iterdir():
        file.write_bytes(b"no picture at all")
    assert celeba_groups(faces, "all").tolist() == [0, 1, 2, 3, -1]
    assert celeba_groups(faces, "train").tolist() == [0]
    chosen = Subset(celeba(faces, "all"), draw_groups(celeba_groups(faces, "all"), {0: 1, 3: 1}, 0))
    assert len(chosen) == 2
    with pytest.raises(MissingFile, match="cannot be decoded"):
        chosen.read([0])


def test_the_published_designs():
    assert len(GROUPS) == 4
    assert sum(counts("train-biased").values()) == 20_200
    assert sum(counts("train-unbiased").values()) == 20_000
    assert sum(counts("test-biased").values()) == 2_200
    assert sum(counts("test-unbiased").values()) == 2_000
    assert sum(DESIGNS["test-hair"]) == 720
    few = counts("train-biased", 0.001)
    assert few == {0: 10, 1: 1, 2: 1, 3: 10}
    with pytest.raises(UnknownName, match="did you mean 'train-biased'"):
        counts("train-biassed")
    with pytest.raises(InvalidParameter, match="share"):
        counts("train-biased", 0)


def test_tables_in_other_places_and_as_csv(faces):
    (faces / "Anno").mkdir()
    (faces / "Eval").mkdir()
    (faces / "list_attr_celeba.txt").rename(faces / "Anno/list_attr_celeba.txt")
    (faces / "list_eval_partition.txt").rename(faces / "Eval/list_eval_partition.txt")
    before = celeba(faces).read([0])
    (faces / "Anno/list_attr_celeba.txt").unlink()
    rows = "\n".join(f"{n:06d}.jpg,{','.join(map(str, row))}" for n, row in enumerate(FACES, 1))
    (faces / "list_attr_celeba.csv").write_text(f"image_id,{','.join(WORDS)}\n{rows}\n")
    after = celeba(faces).read([0])
    assert torch.equal(before.labels, after.labels)
    assert before.ids == after.ids


def test_what_is_missing_is_said(faces, tmp_path):
    with pytest.raises(MissingFile, match=r"CelebA needs .*mmlab\.ie\.cuhk\.edu\.hk"):
        celeba(tmp_path / "nowhere")
    with pytest.raises(InvalidParameter, match="did you mean 'test'"):
        celeba(faces, "tests")
    with pytest.raises(UnknownName, match="did you mean 'Smiling'"):
        celeba(faces, label="smiling")
    (faces / "list_landmarks_align_celeba.txt").unlink()
    with pytest.raises(MissingFile, match="list_landmarks_align_celeba"):
        celeba(faces)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5\n",
        "2\nBlack_Hair Blond_Hair Smiling\n000001.jpg 1 one 1\n",
        "2\nBlack_Hair Blond_Hair Smiling\n../../secret.jpg 1 1 1\n",
        "2\nBlack_Hair Blond_Hair Smiling\n000001.jpg 1 1 1 1 1 1 1\n000002.jpg 1\n",
        "2\nBlack_Hair Blond_Hair Smiling\n000001.jpg 1 1\n",
        "\0\0\0\n",
        "1\nBlack_Hair Blond_Hair Smiling\n000001.jpg 1e400 1 1\n",
    ],
    ids=range(8),
)
def test_broken_tables_are_refused(faces, text):
    (faces / "list_attr_celeba.txt").write_text(text)
    with pytest.raises(MissingFile, match=r"not a table of whole numbers|not of 000001"):
        celeba(faces, "all")


def test_a_picture_that_is_named_twice_is_refused(faces):
    """It would shift the landmarks of all that come after it."""
    for name in ("list_landmarks_align_celeba.txt", "list_attr_celeba.txt"):
        path = faces / name
        before = path.read_text()
        lines = before.splitlines()
        path.write_text("\n".join([*lines[:3], lines[2], *lines[3:]]) + "\n")
        with pytest.raises(MissingFile, match="names a picture twice"):
            celeba(faces, "all")
        path.write_text(before)


# -- CelebAMask-HQ ---------------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path):
    root = tmp_path / "hq"
    for number in (0, 2001):
        picture(root / f"CelebA-HQ-img/{number}.jpg", 32, 32)
    drawn = {
        (0, "hair"): ((0, 4), (0, 16)),
        (0, "u_lip"): ((10, 11), (5, 9)),
        (0, "l_lip"): ((11, 12), (5, 9)),
        (0, "l_eye"): ((6, 7), (3, 5)),
        (0, "r_brow"): ((5, 6), (9, 12)),
        (2001, "skin"): ((2, 14), (2, 14)),
    }
    for (number, name), ends in drawn.items():
        file = root / f"CelebAMask-HQ-mask-anno/{number // 2000}/{number:05d}_{name}.png"
        mask(file, np.repeat(rectangle(16, 16, *ends)[:, :, None], 3, 2))  # half as large, in colour
    listing(
        root / "CelebAMask-HQ-attribute-anno.txt", {0: (1, -1, 1), 2001: (-1, 1, -1)}, WORDS, form="{:d}.jpg"
    )
    (root / "CelebA-HQ-to-CelebA-mapping.txt").write_text(
        "idx     orig_idx    orig_file\n0 2 000003.jpg\n2001 0 000001.jpg\n"
    )
    return root


def test_regions_are_unions_of_files_and_absent_ones_are_empty(parts):
    found = celebamask(parts, geometry=Geometry.stretch(16)).read([0, 1])
    assert found.ids == ("0", "2001")
    assert found.labels.tolist() == [1, 0]
    assert found.variables["group"].tolist() == [0, 3]
    assert np.array_equal(found.masks[0].numpy(), rectangle(16, 16, (10, 12), (5, 9)))
    eye = rectangle(16, 16, (6, 7), (3, 5)) | rectangle(16, 16, (5, 6), (9, 12))
    assert np.array_equal(found.parts["eye"][0].numpy(), eye)
    assert not found.parts["hair"][1].any()
    assert found.parts["skin"][1].sum() == 144
    assert not found.parts["cloth"].any()
    hair = celebamask(parts, part="hair", geometry=None).read([0])
    assert np.array_equal(hair.masks[0].numpy(), rectangle(32, 32, (0, 8), (0, 32)))


def test_the_mapping_tells_who_was_not_trained_on(parts, faces):
    assert celebamask(parts, celeba_root=faces, split="test").read([0]).ids == ("0",)
    assert celebamask(parts, celeba_root=faces, split="train").read([0]).ids == ("2001",)
    with pytest.raises(MissingFile, match="partition file of CelebA"):
        celebamask(parts, split="test")
    with pytest.raises(MissingFile, match="no pictures of the split 'valid'"):
        celebamask(parts, celeba_root=faces, split="valid")
    (parts / "CelebA-HQ-to-CelebA-mapping.txt").write_text("idx\n1\n")
    with pytest.raises(MissingFile, match="orig_idx"):
        celebamask(parts, celeba_root=faces, split="test")


def test_broken_and_missing_parts(parts, tmp_path):
    with pytest.raises(MissingFile, match=r"CelebAMask-HQ needs .*switchablenorms/CelebAMask-HQ"):
        celebamask(tmp_path)
    with pytest.raises(UnknownName, match="did you mean 'mouth'"):
        celebamask(parts, part="mouths")
    with pytest.raises(UnknownName, match="no attribute 'Bald'"):
        celebamask(parts, label="Bald")
    (parts / "CelebAMask-HQ-mask-anno/0/00000_hair.png").write_bytes(b"torn")
    with pytest.raises(MissingFile, match="cannot be decoded"):
        celebamask(parts).read([0])
    mask(parts / "CelebAMask-HQ-mask-anno/0/00000_hair.png", np.ones((10, 40)))
    with pytest.raises(MissingFile, match="10 x 40, but its picture 32 x 32"):
        celebamask(parts).read([0])
    (parts / "CelebA-HQ-img/0.jpg").unlink()
    with pytest.raises(MissingFile, match="There is no picture"):
        celebamask(parts).read([0])
