import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from scipy import stats

import verax
from verax.errors import InvalidParameter, MissingFile, UnknownName, WeightsError
from verax.networks import NETWORKS, library, records
from verax.networks.batches import fresh
from verax.networks.certificates import Thresholds, enough, too_few, wilson
from verax.networks.inference import outputs, predictions
from verax.networks.recipes import RECIPES, Recipe
from verax.networks.training import initialise, train

TINY = Recipe(rate=1e-3, batch=128, epochs=1, scenes=1280, cycle=True)


@pytest.mark.parametrize(("name", "weights"), [("cnn3", 684_122), ("cnn4", 674_338)])
def test_architectures_are_the_published_ones(name, weights):
    model = NETWORKS.get(name)(2)
    assert sum(p.numel() for p in model.parameters()) == weights
    assert model(torch.rand(2, 3, 64, 64)).shape == (2, 2)
    assert all(float(p.abs().sum()) == 0 for n, p in model.named_parameters() if n.endswith("bias"))


def test_pictures_go_through_a_network_in_small_passes_and_vectors_in_large_ones():
    sizes = []

    class Counting(torch.nn.Module):
        def forward(self, x):
            sizes.append(len(x))
            return x.flatten(1)[:, :2]

    pictures = torch.rand(150, 3, 4, 4)
    torch.testing.assert_close(outputs(Counting(), pictures), pictures.flatten(1)[:, :2])
    assert max(sizes) == 64
    sizes.clear()
    outputs(Counting(), torch.rand(150, 6))
    assert sizes == [150]


@pytest.mark.parametrize("name", ["cnn4", "resnet18-coarse", "vit"])
def test_no_pictures_have_no_outputs(name):
    assert outputs(NETWORKS.get(name)(3).eval(), torch.rand(0, 3, 64, 64)).shape == (0, 3)


def test_recipes_are_the_published_ones():
    assert (RECIPES["published"].rate, RECIPES["published"].batch, RECIPES["published"].epochs) == (
        1e-4,
        128,
        10,
    )
    with pytest.raises(InvalidParameter, match="did you mean 'fast'"):
        train(verax.task("textbox/simple-fr"), recipe="fsat")


def test_training_batches_are_balanced_fresh_and_deterministic():
    task = verax.task("textbox/complex-fr")
    device = torch.device("cpu")
    first = list(fresh(task, task.groups, 0, 3, 400, device))
    again = list(fresh(task, task.groups, 0, 3, 400, device))
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(first, again, strict=True))
    labels = torch.cat([y for _, y, _ in first])
    assert stats.binomtest(int(labels.sum()), len(labels)).pvalue > 1e-3
    pictures = torch.cat([x for x, _, _ in first]).flatten(1)
    assert len(torch.unique(pictures, dim=0)) > 1000  # empty scenes are alike, all others differ
    other = next(fresh(task, task.groups, 1, 1, 400, device))
    assert not torch.equal(other[0], first[0][0])


def test_training_is_deterministic_and_learns():
    task = verax.task("textbox/simple-fr")
    seen = []
    one = train(task, "cnn3", recipe=TINY, groups=[1, 12], device="cpu", watch=seen.append)
    two = train(task, "cnn3", recipe=TINY, groups=[1, 12], device="cpu")
    for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert one.worst == 1.0
    assert one.certificate is None
    assert seen[-1].step == seen[-1].steps
    assert seen[-1].loss < 0.5
    assert not torch.equal(initialise("cnn3", 2, 0)[0].weight, initialise("cnn3", 2, 1)[0].weight)


def test_training_stops_early_once_it_is_certified(monkeypatch):
    from verax.networks import training

    monkeypatch.setattr(training._Job, "_good_enough", lambda *a: True)
    many = Recipe(rate=1e-3, batch=64, epochs=5, scenes=64, cycle=False)
    assert (
        train(verax.task("textbox/simple-fr"), "cnn3", recipe=many, groups=[1, 12], device="cpu").epochs == 1
    )
    long = train(
        verax.task("textbox/simple-fr"), "cnn3", recipe=many, groups=[1, 12], device="cpu", early_stop=False
    )
    assert long.epochs == 5


# -- certificates ----------------------------------------------------------------------------------------

SHIPPED = [(r["task"], r["network"]) for r in map(records.record, library.shipped())]


def test_ten_networks_are_shipped_in_little_space():
    settings = {f"textbox/{s}" for s in ("simple-fr", "simple-nr", "complex-fr")}
    settings |= {f"textbox/complex-cr{k}" for k in range(1, 5)}
    assert {task for task, network in SHIPPED if network == "cnn4"} == settings
    assert {t for t, network in SHIPPED if network == "cnn3"} == {"textbox/simple-fr", "textbox/simple-nr"}
    assert {task for task, network in SHIPPED if network not in ("cnn3", "cnn4")} == {"shapes"}
    assert sum(path.stat().st_size for path in library.SHIPPED.iterdir()) < 15e6


@pytest.mark.parametrize(("task", "network"), SHIPPED)
def test_shipped_networks_pass(task, network):
    certificate = verax.certify(verax.task(task).network(network), task, n=60, seed=3)
    assert certificate.passed, str(certificate)
    accuracy, follow = (0.99, 0.97) if task.startswith("textbox/") else verax.task(task).limits
    assert certificate.worst_accuracy >= accuracy
    assert certificate.worst_follow >= follow
    kept = records.record(library.find(verax.task(task), network, 0))["certificate"]
    assert kept["worst_accuracy"] >= accuracy
    assert kept["worst_follow"] >= follow


@pytest.mark.parametrize(
    ("trained_on", "asked_for"),
    [("complex-cr1", "complex-cr2"), ("complex-cr3", "complex-cr4"), ("simple-fr", "complex-fr")],
)
def test_a_network_of_another_setting_fails(trained_on, asked_for):
    model = verax.task(f"textbox/{trained_on}").network("cnn4")
    certificate = verax.certify(model, f"textbox/{asked_for}", n=30)
    assert not certificate.passed
    assert certificate.worst_follow < 0.1


def test_a_confounded_network_fails_although_it_is_accurate_where_it_was_trained():
    task = verax.task("textbox/simple-fr")
    model = train(task, "cnn3", recipe=TINY, groups=[1, 12], device="cpu").model
    trained = task.cases(group=[1, 12], n=200)
    assert (predictions(model, trained.inputs) == trained.targets).double().mean() >= 0.99
    certificate = verax.certify(model, task, n=30)
    assert not certificate.passed
    # it does not follow: without Box1 the label must change, but the other objects hold it
    table = certificate.interventions.set_index(["group", "object", "edit"])["follow"]
    assert table[12, "box1", "remove"] < 0.5
    assert table[1, "text", "add A"] < 0.5


def test_interventions_change_one_object_and_nothing_else():
    task = verax.task("textbox/complex-cr2", background="noise")
    groups = torch.tensor(task.groups).repeat_interleave(4)
    streams = task.streams(groups * 10**9 + torch.arange(len(groups)), 0, "certificate")
    layout = task.layout(groups, streams)
    before = task.render(layout, streams)
    masks = task.renderer.masks(layout, task.world)
    names = set()
    for edit in task.edits(layout, streams):
        names.add((edit.object, edit.name))
        index = task.world.names.index(edit.object)
        after = task.render(edit.layout, streams[edit.rows])
        new = task.renderer.masks(edit.layout, task.world)
        touched = masks[edit.rows, index] | new[:, index]
        changed = (after != before[edit.rows]).any(1)
        assert changed.flatten(1).any(1).all()
        assert not (changed & ~touched).any()
        others = [k for k in range(3) if k != index]
        assert torch.equal(masks[edit.rows][:, others], new[:, others])
        if edit.name == "remove":
            assert not new[:, index].any()
        if edit.name == "move":
            assert torch.equal(edit.layout.states, layout.states[edit.rows])
        grown = torch.nn.functional.max_pool2d(new.float(), 3, 1, 1) > 0
        assert not (grown[:, 0] & grown[:, 1] | grown[:, 0] & grown[:, 2] | grown[:, 1] & grown[:, 2]).any()
    boxes = {(b, e) for b in ("box1", "box2") for e in ("add", "remove", "move")}
    text = {("text", e) for e in ("add A", "add B", "swap A", "swap B", "remove", "move")}
    assert names == boxes | text


def test_edits_without_a_label_are_left_out_and_counted():
    model = verax.task("textbox/simple-nr").network("cnn4")
    certificate = verax.certify(model, "textbox/simple-nr", n=5)
    assert certificate.left_out == 8 * 5  # removing the text of each of eight buckets leaves no label
    assert "remove" not in set(certificate.interventions.query("object == 'text'")["edit"])
    assert (certificate.accuracy["n"] == 5).all()


def test_a_certificate_follows_the_model_it_is_given():
    class Constant(torch.nn.Module):
        def forward(self, x):
            return torch.tensor([0.0, 1.0]).repeat(len(x), 1)

    certificate = verax.certify(Constant(), "textbox/complex-cr1", n=10)
    right = certificate.accuracy.set_index("group")["accuracy"]
    assert {g: v for g, v in right.items() if v == 1} == dict.fromkeys([3, 9, 10, 11, 12], 1)
    assert set(right.unique()) == {0, 1}
    assert "FAILS" in str(certificate)
    lenient = Thresholds(accuracy=0, follow=0)
    assert verax.certify(Constant(), "textbox/complex-cr1", n=2, thresholds=lenient).passed
    with pytest.raises(InvalidParameter, match="from 0 to 1"):
        Thresholds(accuracy=2)


@pytest.mark.parametrize(("k", "n"), [(0, 20), (3, 20), (20, 20), (199, 200)])
def test_wilson_interval(k, n):
    low, high = wilson(k, n)
    reference = stats.binomtest(k, n).proportion_ci(method="wilson")
    np.testing.assert_allclose((low, high), (reference.low, reference.high), atol=1e-12)


@pytest.mark.parametrize("limit", [0.0, 0.3, 0.5, 0.9, 0.97, 0.99, 0.999])
def test_so_many_scenes_are_enough_and_one_fewer_is_not(limit):
    need = enough(limit)
    reached = [n for n in range(1, 5000) if stats.binomtest(n, n).proportion_ci(method="wilson").low >= limit]
    assert need == reached[0]
    assert too_few(need, limit) == ""
    assert need == 1 or f"({need} could, if all are right)" in too_few(need - 1, limit)


def test_no_number_of_scenes_shows_certainty():
    assert enough(1.0) is None
    assert too_few(10**6, 1.0) == "1000000 scenes of a bucket cannot show 1.0 (no number could)"


def test_a_certificate_of_few_scenes_says_what_it_cannot_show():
    task = verax.task("textbox/simple-fr")
    few = verax.certify(task.network("wired"), task, n=1)
    assert few.passed
    assert few.doubt == "1 scene of a bucket cannot show 0.99 (381 could, if all are right)"
    assert f"the network passes, though {few.doubt}: worst bucket 1.000 (needs 0.99)" in str(few)
    enough_scenes = verax.certify(task.network("wired"), task, n=3, thresholds=Thresholds(0.4, 0.4))
    assert enough_scenes.doubt == ""
    assert "the network passes: worst bucket" in str(enough_scenes)
    other = verax.task("textbox/simple-nr").network("wired")
    assert verax.certify(other, task, n=1).doubt == ""  # it fails anyway


# -- stored weights --------------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The shipped networks, copied to a place where they can be spoilt."""
    folder = tmp_path / "shipped"
    shutil.copytree(library.SHIPPED, folder)
    monkeypatch.setattr(library, "SHIPPED", folder)
    return folder


def test_damaged_weights_are_refused(copied):
    task = verax.task("textbox/complex-cr1")
    path = library.find(task, "cnn4", 0)
    assert path.parent == copied
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(WeightsError, match="SHA-256"):
        task.network("cnn4")


def test_foreign_weights_are_refused(copied):
    task = verax.task("textbox/simple-fr")
    path = library.find(task, "cnn4", 0)
    other = library.find(task, "cnn3", 0)
    shutil.copy(other, path)
    shutil.copy(other.with_suffix(".json"), path.with_suffix(".json"))
    with pytest.raises(WeightsError, match="do not fit"):
        task.network("cnn4")
    path.write_bytes(b"\x80\x04cposix\nsystem\n")
    with pytest.raises(WeightsError, match="not a safetensors file"):
        library.load(path, "cnn4", 2, check=False)
    path.with_suffix(".json").write_text("{")
    with pytest.raises(WeightsError, match="damaged"):
        task.network("cnn4")


def test_missing_networks_say_how_to_get_them():
    task = verax.task("textbox/complex-cr1")
    with pytest.raises(MissingFile, match=r"verax train textbox/complex-cr1 --network cnn4 --seed 9"):
        task.network("cnn4", seed=9)
    with pytest.raises(MissingFile, match="cnn3"):
        task.network("cnn3")
    with pytest.raises(UnknownName, match="did you mean"):
        task.network("cnn5")
    with pytest.raises(InvalidParameter, match="seed"):
        task.network("cnn4", seed=-1)
    with pytest.raises(MissingFile, match=r"know 'sound' and 'black' only.*--renderer published"):
        verax.task("textbox/complex-cr1", renderer="published").network()
    with pytest.raises(MissingFile, match="--background noise:0-150"):
        verax.task("textbox/complex-cr1", background="noise").network()


def test_trained_networks_are_kept_and_found(own_store):
    task = verax.task("textbox/simple-fr")
    done = train(task, "cnn3", seed=5, recipe=TINY, groups=[1, 12], device="cpu", quiet=True)
    path = done.save()
    assert path.parent == own_store / "networks"
    with pytest.raises(MissingFile, match="cnn3"):
        task.network("cnn3", seed=5)  # it was not trained by the recipe that this name stands for
    model = task.network("cnn3@own", seed=5)
    assert not model.training
    for a, b in zip(model.parameters(), done.model.parameters(), strict=True):
        assert torch.equal(a, b)
    record = json.loads(path.with_suffix(".json").read_text())
    assert record["command"] == f"verax.train(task, 'cnn3', seed=5, recipe={TINY!r}).save()"
    assert record["recipe"]["name"] == "own"
    assert record["recipe"]["rate"] == TINY.rate


def test_a_network_of_another_reasoning_is_not_taken_for_this_one():
    first = verax.TextBox("own/world", "box1 -> 1; otherwise -> 0")
    train(first, "cnn3", recipe=TINY, groups=[1, 12], device="cpu", quiet=True).save()
    assert first.network("cnn3@own") is not None
    second = verax.TextBox("own/world", "box2 -> 1; otherwise -> 0")
    with pytest.raises(WeightsError, match="another reasoning"):
        second.network("cnn3@own")
    with pytest.raises(MissingFile, match=r"verax\.train\(task, 'cnn4', seed=0\)\.save\(\)"):
        first.network("cnn4")


def test_both_thresholds_count():
    task = verax.task("textbox/complex-cr1")
    good = verax.certify(task.network(), task, n=5)
    low, high = Thresholds(0, 0), Thresholds(1, 1)
    for accuracy, follow, passed in ((1.0, 1.0, True), (0.5, 1.0, False), (1.0, 0.5, False)):
        tables = {
            "accuracy": good.accuracy.assign(accuracy=accuracy),
            "interventions": good.interventions.assign(follow=follow),
        }
        assert dataclasses.replace(good, **tables, thresholds=high).passed is passed
        assert dataclasses.replace(good, **tables, thresholds=low).passed


def test_following_needs_both_scenes():
    """A network that is right only after an edit has not followed it."""
    task = verax.task("textbox/simple-fr")

    class OnlyWithBox(torch.nn.Module):  # says 1 always: right where Box1 is, wrong elsewhere
        def forward(self, x):
            return torch.tensor([0.0, 1.0]).repeat(len(x), 1)

    table = verax.certify(OnlyWithBox(), task, n=3).interventions.set_index(["group", "object", "edit"])
    assert table.loc[(1, "box1", "add"), "follow"] == 0  # wrong before, right after
    assert table.loc[(7, "box1", "move"), "follow"] == 1


def test_published_edits_obey_the_published_rules():
    task = verax.task("textbox/complex-fr", renderer="published")
    groups = torch.tensor([11, 12]).repeat_interleave(300)
    streams = task.streams(groups * 10**9 + torch.arange(len(groups)), 0, "certificate")
    for edit in task.edits(task.layout(groups, streams), streams):
        box1, box2, text = (edit.layout.positions[:, k] for k in range(3))
        here = edit.layout.present
        apart = ((box2 - box1) ** 2).sum(1) > 300
        assert apart[here[:, 0] & here[:, 1]].all()
        assert (((box1 - text + 6) ** 2).sum(1) > 300)[here[:, 0]].all()
