"""Drawn faces: what is varied changes its own part only, and everybody is drawn alike everywhere."""

import pytest
import torch
from torch.nn.functional import max_pool2d

from verax.errors import InvalidInput, InvalidParameter, UnknownName
from verax.seeding import Streams
from verax.tasks.alignment import AnnotatedImages, Geometry, shaped
from verax.tasks.alignment.bias import counts
from verax.tasks.alignment.faces import PARTS, Faces, draw, variables
from verax.tasks.alignment.faces_drawing import PARTS as DRAWN

EACH = {0: 8, 1: 8, 2: 8, 3: 8}


def grown(masks):
    """Masks with one more pixel around them: pixels that are less than half covered."""
    return max_pool2d(masks.float()[:, None], 3, 1, 1)[:, 0] > 0


def people(n=64, size=64, **given):
    streams = Streams.of(torch.arange(n), "test", 0)
    return draw(streams, variables(streams, **given), size)


def is_part(found, name):
    return found == DRAWN.index(name)


def test_a_smile_changes_the_mouth_and_nothing_else():
    no, yes = torch.zeros(64), torch.ones(64)
    plain, parts_plain = people(smile=no)
    smiling, parts_smiling = people(smile=yes)
    mouth = grown(is_part(parts_plain, "mouth") | is_part(parts_smiling, "mouth"))
    changed = (plain != smiling).any(1)
    assert not (changed & ~mouth).any()
    assert changed.flatten(1).any(1).all()
    assert (changed.sum((1, 2)) > 10).all()


def test_hair_colour_changes_hair_and_nothing_else():
    black, parts = people(hair=torch.zeros(64))
    blond, others = people(hair=torch.ones(64))
    assert torch.equal(parts, others)
    change = (black - blond).abs().amax(1)
    hair = is_part(parts, "hair")
    # hair behind an ear shines through the soft rim of the ear, and that is all
    assert ((change * ~grown(hair)).sum((1, 2)) < 0.002 * change.sum((1, 2))).all()
    assert (change[hair] > 0).double().mean() > 0.99
    assert blond.mean(1)[hair].mean() > 2 * black.mean(1)[hair].mean()


def test_a_pose_moves_what_is_on_the_face():
    columns = torch.arange(64.0)

    def centre(pose, part):
        _, parts = people(pose=torch.full((64,), pose))
        mask = is_part(parts, part).double()
        return (mask.sum(1) @ columns.double()) / mask.sum((1, 2))

    for part in ("nose", "mouth", "eyes"):
        assert (centre(0.9, part) > centre(-0.9, part) + 3).all()


def test_every_face_has_every_part_where_it_belongs():
    found = Faces(EACH | {0: 200, 3: 200}).read(range(400))
    rows = torch.arange(64.0, dtype=torch.float64)
    height = {}
    for part, masks in found.parts.items():
        assert (masks.sum((1, 2)) >= 10).all(), part
        height[part] = (masks.double().sum(2) @ rows) / masks.sum((1, 2)).clamp(min=1)
    for above, below in (
        ("hair", "mouth"),
        ("brows", "eyes"),
        ("eyes", "nose"),
        ("nose", "mouth"),
        ("mouth", "neck"),
    ):
        assert (height[above] < height[below]).all(), (above, below)
    everything = torch.stack(list(found.parts.values())).sum(0)
    assert everything.max() == 1  # parts do not overlap
    assert set(found.parts) == {"hair", "brows", "eyes", "nose", "mouth", "skin", "neck", "cloth"}


def test_smiles_can_be_told_from_mouths_alone():
    """A smile's corners are higher than its middle."""
    found = Faces({0: 100, 1: 100, 2: 100, 3: 100}).read(range(400))
    rows, cols = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    mouth = found.masks.float()
    count = mouth.sum((1, 2))
    middle = (mouth * cols).sum((1, 2)) / count
    spread = ((mouth * (cols - middle[:, None, None]) ** 2).sum((1, 2)) / count).sqrt()
    outer = mouth * ((cols - middle[:, None, None]).abs() > 1.3 * spread[:, None, None])
    inner = mouth * ((cols - middle[:, None, None]).abs() < 0.7 * spread[:, None, None])
    lift = (inner * rows).sum((1, 2)) / inner.sum((1, 2)) - (outer * rows).sum((1, 2)) / outer.sum((1, 2))
    assert ((lift > 0.8) == found.labels.bool()).double().mean() > 0.97


def test_a_face_is_the_same_alone_in_a_batch_and_in_every_design():
    biased, unbiased = Faces(counts("train-biased", 0.005)), Faces(counts("train-unbiased", 0.005))
    whole = biased.read(range(len(biased)))
    alone = biased.read([40])
    assert torch.equal(alone.images[0], whole.images[40])
    assert torch.equal(alone.masks[0], whole.masks[40])
    other = unbiased.read(range(len(unbiased)))
    name = "blond-plain-3"
    first, second = whole.ids.index(name), other.ids.index(name)
    assert torch.equal(whole.images[first], other.images[second])
    assert not torch.equal(Faces(EACH, 1).read([0]).images, Faces(EACH, 0).read([0]).images)
    train, test = Faces({0: 3}), Faces({0: 3}, purpose="test")
    assert not torch.equal(train.read([0]).images, test.read([0]).images)


def test_groups_have_the_hair_the_smile_and_the_number_that_was_asked_for():
    images = Faces({0: 50, 1: 1, 2: 2, 3: 50})
    assert isinstance(images, AnnotatedImages)
    found = images.read(range(len(images)))
    group = found.variables["group"]
    assert torch.bincount(group).tolist() == [50, 1, 2, 50]
    assert torch.equal(found.labels, (group % 2 == 0).long())
    assert torch.equal(found.variables["hair"], group // 2)
    assert group[:50].unique().numel() > 1  # mixed
    assert len(set(found.ids)) == len(images)
    # nothing else goes with the smile
    for name in ("pose", "skin", "light", "background"):
        table = torch.stack([found.variables[name].double(), found.labels.double()])
        assert torch.corrcoef(table)[0, 1].abs() < 0.3, name


@pytest.mark.parametrize("size", [32, 96, 128])
def test_the_same_person_at_another_size(size):
    small, parts_small = people(8)
    other, parts_other = people(8, size=size)
    assert other.shape == (8, 3, size, size)
    back = torch.nn.functional.interpolate(other, (64, 64), mode="bilinear", antialias=size > 64)
    assert (back - small).abs().mean() < 0.04  # edges are softer, grain differs
    for part in ("hair", "skin", "mouth"):
        areas = [is_part(p, part).double().mean((1, 2)) for p in (parts_small, parts_other)]
        assert (areas[0] - areas[1]).abs().max() < 0.02


def test_pictures_are_pictures():
    found = Faces(EACH).read(range(32))
    assert found.images.dtype == torch.float32
    assert found.images.min() >= 0
    assert found.images.max() <= 1
    assert found.images.std() > 0.1
    assert torch.equal(found.masks, found.parts["mouth"])
    assert torch.equal(Faces(EACH, part="hair").read([0]).masks[0], found.parts["hair"][0])
    large = shaped(Faces(EACH), Geometry.crop(96)).read([0])
    assert large.images.shape == (1, 3, 96, 96)
    assert large.parts["mouth"].any()


def test_a_fingerprint_follows_everything():
    made = [Faces(EACH), Faces({0: 8}), Faces(EACH, 1), Faces(EACH, size=96), Faces(EACH, part="hair")]
    made.append(Faces(EACH, purpose="test"))
    assert len({str(images.fingerprint()) for images in made}) == len(made)
    assert Faces(EACH).fingerprint() == Faces(EACH).fingerprint()


def test_what_cannot_be_is_refused():
    with pytest.raises(UnknownName, match="did you mean 'mouth'"):
        Faces(EACH, part="mouths")
    assert "mouth" in PARTS
    for wrong in ({7: 1}, {0: -1}, {0: 1.5}, {"black": 1}):
        with pytest.raises(InvalidParameter, match="There cannot be"):
            Faces(wrong)
    for nobody in ({}, {0: 0}):
        with pytest.raises(InvalidParameter, match="at least one"):
            Faces(nobody)
    with pytest.raises(InvalidParameter, match="32 to 512"):
        Faces(EACH, size=8).read([0])
    with pytest.raises(InvalidInput, match="0 to 31, not 32"):
        Faces(EACH).read([32])
