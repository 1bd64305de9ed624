"""Architectures, names, recipes and the step that all of them share."""

import contextlib
import functools
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save as save_tensors
from torch import nn

import verax
from pretended import PRETENDED
from verax.errors import InvalidParameter, MissingFile, UnknownName, WeightsError
from verax.networks import NETWORKS, VECTORS, attacks, batches, library, names, records, steps, training, vgg
from verax.networks import vit as vit_module
from verax.networks.certificates import Trial
from verax.networks.losses import clipped
from verax.networks.recipes import RECIPES, Recipe, find_recipe, fitted
from verax.networks.steps import Stepper, aside, ends, schedule, strengths
from verax.networks.trained import Try
from verax.networks.training import initialise, train

CPU = torch.device("cpu")
SMALL = Recipe(
    rate=1e-3, batch=32, epochs=60, scenes=64, cycle=False, loss="clipped", repeat=True, epsilon=1e-7
)


def task(name="simple-fr", **options):
    return verax.task(f"textbox/{name}", **options)


# -- architectures ---------------------------------------------------------------------------------------

SIZES = {  # counted by hand from the published layers
    "alexnet": sum(
        wide * (deep * side * side + 1) + 2 * wide
        for wide, deep, side in [(96, 3, 11), (256, 96, 5), (384, 256, 3), (384, 384, 3), (256, 384, 3)]
    )
    + sum(out * (wide + 1) + 2 * out for wide, out in [(1024, 4096), (4096, 4096), (4096, 1000), (1000, 2)]),
    "vgg16": 14_714_688 + sum(o * (i + 1) for i, o in [(512, 1024), (1024, 512), (512, 256), (256, 2)]),
    "resnet18": 11_176_512 - 64 * 3 * (49 - 9) + 2 * 513,
    "resnet18-coarse": 11_176_512 - 64 * 3 * (49 - 9) + 2 * 513,
    "vit": 1_223_298,
}


@pytest.mark.parametrize("name", SIZES)
def test_architectures_learn_from_one_batch(name):
    model = initialise(name, 2, seed=0).train().to(memory_format=torch.channels_last)
    assert sum(p.numel() for p in model.parameters()) == SIZES[name]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    cases = task().cases(group=[1, 12], n=2)
    torch.manual_seed(0)
    stepper = Stepper(model, Recipe(rate=1e-4, batch=8, epochs=1, scenes=4, cycle=False, clip=1.0), 4)
    for _ in range(4):
        stepper(cases.inputs, cases.targets)
    losses = stepper.history[:, 0].tolist()
    assert losses[-1] < losses[0]
    assert all(not torch.equal(p, before[k]) for k, p in model.named_parameters())
    assert model.eval()(cases.inputs).shape == (4, 2)


def test_alexnet_is_the_published_variant():
    model = NETWORKS.get("alexnet")(2)
    assert isinstance(model[-1], nn.BatchNorm1d)
    assert model[-1].num_features == 2  # on the logits
    assert {m.p for m in model.modules() if isinstance(m, nn.Dropout)} == {0.4}
    sizes = []
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda m, x, y: sizes.append(tuple(y.shape[1:])))
    model.eval()(torch.rand(1, 3, 64, 64))
    assert sizes == [(96, 16, 16), (256, 8, 8), (384, 4, 4), (384, 4, 4), (256, 4, 4)]


@pytest.mark.parametrize(("name", "side"), [("resnet18", 8), ("resnet18-coarse", 4)])
def test_the_last_map_of_a_resnet(name, side):
    body = initialise(name, 2, 0)[:-3].eval()
    assert body(torch.rand(1, 3, 64, 64)).shape == (1, 512, side, side)


@pytest.mark.parametrize("method", ["attn-lrp", "cp-lrp", "chefer", "rollout", "grad-cam", "gradient"])
def test_methods_for_transformers_explain_the_vit(method):
    cases = task().cases(group=[1, 12], n=1)
    maps = verax.explain(initialise("vit", 2, 0).eval(), cases.inputs, cases.targets, method=method)
    assert maps.isfinite().all()
    assert maps[1].abs().sum() > 0


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet18"])
@pytest.mark.parametrize("method", ["lrp-epsilon", "deeplift-rescale"])
def test_rules_know_the_convolutional_networks(name, method):
    cases = task().cases(group=[12], n=1)
    maps = verax.explain(initialise(name, 2, 0).eval(), cases.inputs, cases.targets, method=method)
    assert maps.isfinite().all()
    assert maps.abs().sum() > 0


def test_a_canvas_that_a_network_cannot_see_is_refused():
    world = verax.World("small", (verax.Kind.plain("dot", verax.Look.box(3, 3)),), canvas=(32, 48))
    own = verax.TextBox("small/dot", verax.Reasoning.parse("dot -> 1; otherwise -> 0", world))
    for name in ("cnn", "cnn3", "alexnet", "vit"):
        with pytest.raises(InvalidParameter, match=r"made for 64 x 64 pixels.*small/dot have 32 x 48"):
            train(own, name)
    assert initialise("resnet18", 2, 0)(own.cases(n=1, seed=0).inputs).shape == (len(own.groups), 2)


@pytest.mark.slow
def test_a_network_that_takes_any_canvas_is_trained_on_a_small_one():
    world = verax.World("small", (verax.Kind.plain("dot", verax.Look.box(3, 3)),), canvas=(32, 48))
    own = verax.TextBox("small/dot", verax.Reasoning.parse("dot -> 1; otherwise -> 0", world))
    short = Recipe(rate=1e-3, batch=8, epochs=1, scenes=8, cycle=True)
    assert train(own, "resnet18", recipe=short, groups=[1, 2], device="cpu", quiet=True).epochs == 1


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """A file like torchvision's, with other numbers in it."""
    weights = {f"features.{k}": v for k, v in initialise("vgg16", 2, 7).features.state_dict().items()}
    folder = tmp_path / "weights"
    folder.mkdir()
    torch.save({**weights, "classifier.0.bias": torch.zeros(2)}, folder / "any.pth")
    digest = hashlib.sha256((folder / "any.pth").read_bytes()).hexdigest()[:8]
    monkeypatch.setattr(vgg, "_FILE", f"vgg16-{digest}.pth")
    monkeypatch.setenv("VERAX_DATA", str(tmp_path))
    return (folder / "any.pth").rename(folder / f"vgg16-{digest}.pth")


@pytest.mark.slow
def test_vgg_takes_the_weights_of_imagenet_and_freezes_them(imagenet):
    short = Recipe(rate=1e-3, batch=8, epochs=1, scenes=8, cycle=True)
    done = train(task(), "vgg16", recipe=short, groups=[1, 12], device="cpu", quiet=True)
    assert done.start == f"convolutions of ImageNet ({imagenet.name}), frozen"
    given, fresh = initialise("vgg16", 2, 7), initialise("vgg16", 2, 0)
    assert torch.equal(done.model.features[0].weight, given.features[0].weight.half().float())
    assert not torch.equal(done.model.head[1].weight, fresh.head[1].weight.half().float())
    imagenet.write_bytes(imagenet.read_bytes() + b"0")
    with pytest.raises(WeightsError, match="SHA-256"):
        train(task(), "vgg16", recipe=short, device="cpu", quiet=True)


def test_vgg_says_when_it_starts_from_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(vgg, "imagenet_file", lambda: None)
    assert initialise("vgg16", 2, 0).pretrain() == "trained from scratch"


# -- names -----------------------------------------------------------------------------------------------


def test_names_say_architecture_and_recipe():
    assert str(names.parse("cnn4")) == str(names.parse("cnn4@fast")) == "cnn4"
    assert str(names.parse("cnn@published").on(task("simple-nr"))) == "cnn3@published"
    assert str(names.parse("cnn@robust-0.1").on(task("complex-cr1"))) == "cnn4@robust-0.1"
    assert str(names.parse("cnn").on(verax.TextBox("own/x", "box1 -> 1; otherwise -> 0"))) == "cnn4"


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("cnn5", UnknownName, "did you mean 'cnn"),
        ("resnet", UnknownName, "did you mean 'resnet18'"),
        ("cnn4@publishd", InvalidParameter, "did you mean 'published'"),
        ("cnn4@", InvalidParameter, "no recipe"),
        ("cnn4@robust-2", InvalidParameter, "between 0 and 1"),
        ("cnn4@robust-much", InvalidParameter, "between 0 and 1"),
        ("cnn4@robust-swft", InvalidParameter, "did you mean 'robust-swift'"),
    ],
)
def test_misspelt_names(name, error, words):
    with pytest.raises(error, match=words):
        task().network(name)
    with pytest.raises(error, match=words):
        train(task(), name)
    with pytest.raises(error, match=words):
        verax.run({"name": "x", "tasks": ["textbox/simple-fr"], "methods": ["gradient"], "networks": [name]})


def test_two_recipes_are_one_too_many():
    with pytest.raises(InvalidParameter, match="has a recipe of its own"):
        train(task(), "cnn4@published", recipe="fast")


def test_networks_of_other_recipes_have_files_and_rows_of_their_own(own_store):
    world = task()
    with pytest.raises(MissingFile, match=r"verax train textbox/simple-fr --network cnn3@published --seed 0"):
        world.network("cnn@published")
    tiny = Recipe(rate=1e-3, batch=64, epochs=1, scenes=64, cycle=True)
    done = train(world, "cnn3", recipe=tiny, groups=[1, 12], device="cpu", quiet=True)
    path = replace(done, recipe="published").save()
    assert path.name == "textbox-simple-fr_cnn3@published_seed0.safetensors"
    same, other = world.network("cnn@published"), world.network("cnn")
    assert torch.equal(same[0].weight, done.model[0].weight)
    assert not torch.equal(other[0].weight, done.model[0].weight)
    study = {"name": "two", "tasks": [world.name], "methods": ["gradient"], "samples": 1, "certify": 0}
    run = verax.run({**study, "networks": ["cnn", "cnn@published"]}, device="cpu")
    assert set(run.scores["network"]) == {"cnn", "cnn@published"}
    values = run.scores.query("method == 'gradient' and metric == 'focus-share'").groupby("network")["value"]
    assert values.mean()["cnn"] != values.mean()["cnn@published"]


# -- losses and steps ------------------------------------------------------------------------------------


def test_the_clipped_loss_is_that_of_keras():
    outputs = torch.tensor([[0.3, 0.9], [-0.4, 1.6], [1.2, -0.1]], requires_grad=True)
    labels = torch.tensor([1, 1, 1])
    low, high = 1e-7, 1 - 1e-7
    rows = [(0.3, 0.9), (low, high), (high, low)]
    wanted = [-torch.tensor([1 - a, b]).double().log() for a, b in rows]
    loss = clipped(outputs, labels)
    assert float(loss.detach()) == pytest.approx(float(torch.stack(wanted).mean()), rel=1e-2)
    (slope,) = torch.autograd.grad(loss, outputs)
    assert slope[1:].abs().max() == 0  # sure, rightly or wrongly: nothing to learn
    assert slope[0].tolist() == pytest.approx([1 / 0.7 / 6, -1 / 0.9 / 6])


def test_cycles_double_in_length_and_each_ends_at_rest():
    recipe = Recipe(rate=3e-3, batch=1, epochs=7, scenes=1, cycle=True, cycles=3)
    assert ends(recipe, 70) == [10, 30, 70]
    assert ends(replace(recipe, cycles=1), 70) == [70]
    rates, momenta = schedule(recipe, 70)
    for start, end in ((0, 10), (10, 30), (30, 70)):
        alone = schedule(replace(recipe, cycles=1), end - start)
        assert torch.equal(rates[start:end], alone[0])
        assert torch.equal(momenta[start:end], alone[1])
        assert rates[end - 1] < 1e-6 < 2.9e-3 < rates[start:end].max()
    # ends of epochs, also where those cannot be shared out evenly
    assert ends(replace(recipe, epochs=8), 80) == [10, 30, 80]
    # however few steps there are, each has its rate
    assert all(len(schedule(recipe, steps)[0]) == steps for steps in range(1, 20))


def test_swift_networks_have_as_many_scenes_as_fast_ones_at_the_most():
    for network in ("alexnet", "vgg16", "resnet18", "resnet18-coarse", "vit", "cnn4"):
        fast, swift = (training.prepare(task(), f"{network}{recipe}")[1] for recipe in ("", "@swift"))
        assert (fast.cycles, swift.cycles) == (1, 6)
        assert swift.epochs * swift.scenes <= 1.05 * fast.epochs * fast.scenes
        steps = 10 * swift.epochs
        assert ends(swift, steps) == [10 * epoch for epoch in (1, 3, 7, 15, 31, 63)]  # cycles end with epochs
    robust, swift = (
        training.prepare(task("complex-cr1"), f"cnn@{name}")[1] for name in ("robust", "robust-swift")
    )
    assert swift == replace(robust, epochs=3, iterations=7)
    assert names.everywhere("cnn@robust-swift")


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "wired"])  # which has no weights
def test_a_stored_network_is_the_one_that_was_trained(name):
    vectors = {"features": 20} if name in VECTORS else {}
    made = initialise(name, 2, 3, **vectors)
    kept = {k: t.half() if t.is_floating_point() else t for k, t in made.state_dict().items()}
    data = save_tensors({k: t.contiguous() for k, t in kept.items()})
    found = library.decode(data, name, 2, hashlib.sha256(data).hexdigest())
    assert found.state_dict().keys() == kept.keys()
    for key, tensor in found.state_dict().items():
        assert tensor.dtype == (torch.float32 if kept[key].is_floating_point() else kept[key].dtype)
        assert torch.equal(tensor, kept[key].to(tensor.dtype))
    assert all(parameter.requires_grad for parameter in found.parameters())
    assert not found.training
    assert not any(buffer.is_meta for buffer in found.buffers())


@pytest.mark.parametrize(
    ("name", "part", "kind"),
    [
        ("cnn3", "weight", torch.complex64),
        ("cnn3", "weight", torch.int64),
        ("resnet18-coarse", "running_mean", torch.int64),
        ("resnet18-coarse", "num_batches_tracked", torch.float32),
    ],
)
def test_weights_of_another_kind_do_not_fit(name, part, kind):
    state = {key: tensor.contiguous() for key, tensor in initialise(name, 2, 0).state_dict().items()}
    key = next(key for key in state if key.endswith(part))
    data = save_tensors({**state, key: state[key].to(kind)})
    with pytest.raises(WeightsError, match="do not fit"):
        library.decode(data, name, 2, hashlib.sha256(data).hexdigest())


def test_a_network_that_is_tolerant_learns_in_half_precision(monkeypatch):
    """As on a GPU: all of its arithmetic, but not the weights that are kept."""
    recipe = replace(find_recipe("swift"), rate=1e-3, batch=8)
    cases = task().cases(n=4)
    kinds, steppers = [], []
    linear = torch.nn.functional.linear
    monkeypatch.setattr(
        torch.nn.functional, "linear", lambda x, *rest: kinds.append(x.dtype) or linear(x, *rest)
    )
    for half in (False, True):
        model = initialise("vit", 2, 0)
        stepper = Stepper(model, recipe, 63)
        assert not stepper.whole  # on a CPU
        if half:
            stepper.whole, stepper.halved = True, steps._halved(model)
            assert stepper.halved == {name for name, _ in model.named_parameters()}
        for rows in torch.split(torch.arange(16), 8):
            stepper(cases.inputs[rows], cases.targets[rows])
        steppers.append(stepper)
    whole, half = steppers
    assert kinds[0] == torch.float32
    assert kinds[-1] == torch.bfloat16
    assert half.weights.dtype == torch.float32
    first = initialise("vit", 2, 0)
    begun = torch.cat([steps._flatten(p.detach()) for p in first.parameters()])
    assert (half.weights - whole.weights).norm() < 0.5 * (whole.weights - begun).norm()
    assert (half.history[:2, 0] - whole.history[:2, 0]).abs().max() < 0.05


def test_a_vit_learns_from_the_function_that_it_is():
    model = initialise("vit", 3, 0).double()
    drawn = torch.Generator().manual_seed(0)
    for parameter in model.parameters():  # scales of 1 and biases of 0 would hide where they are lost
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=drawn, dtype=torch.float64)
    inputs = torch.rand(5, 3, 64, 64, generator=drawn, dtype=torch.float64)
    weights = torch.randn(5, 3, generator=drawn, dtype=torch.float64)
    found = []
    for learning in (True, False):
        outputs = model.train(learning)(inputs)
        slopes = torch.autograd.grad((outputs * weights).sum(), list(model.parameters()))
        found.append([outputs.detach(), *slopes])
    for learned, plain in zip(*found, strict=True):
        torch.testing.assert_close(learned, plain, rtol=0, atol=1e-12 * float(plain.abs().max()))


class Doubled(torch.nn.Linear):
    """A layer of one's own in the place of PyTorch's."""

    def forward(self, x):
        return 2 * super().forward(x)


def _another_layer(model):
    layer = Doubled(128, 384)
    layer.load_state_dict(model.blocks[1].attention.joint.state_dict())
    model.blocks[1].attention.joint = layer


def _normed_weights(model):
    torch.nn.utils.parametrizations.weight_norm(model.blocks[0].dense[0])


def _hooked(model):
    model.blocks[2].norm2.register_forward_hook(lambda module, args, output: 3 * output)


def _left_out(model):
    model.blocks[3] = torch.nn.Identity()


def _one_more(model):
    model.blocks[4].dense.append(torch.nn.Tanh())


def _unscaled(model):
    model.blocks[5].norm1 = torch.nn.LayerNorm(128, elementwise_affine=False)


def _emptied(model):
    model.blocks = torch.nn.Identity()


class Pooled(torch.nn.Module):
    """A normalisation that reads all tokens, not the first one alone."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, x):
        return self.norm(x.mean(1, keepdim=True))


def _pooled(model):
    model.norm = Pooled(model.norm)


def _hooked_at_the_end(model):
    model.norm.register_forward_pre_hook(lambda module, args: (args[0] + args[0].mean(1, keepdim=True),))


def _own_end(model):
    usual = model.norm.forward
    model.norm.forward = lambda x: usual(x + x.mean(1, keepdim=True))


def _called_otherwise(model):
    layer = model.blocks[0].dense[0]
    usual = layer._call_impl
    vars(layer)["_call_impl"] = lambda x: 2 * usual(x)


def _over_tokens(model):
    model.norm = torch.nn.LayerNorm((65, 128))


VIT_CHANGES = [
    *(_another_layer, _normed_weights, _hooked, _left_out, _one_more, _unscaled, _emptied),
    *(_pooled, _hooked_at_the_end, _own_end, _called_otherwise, _over_tokens),
]


def test_a_vit_as_it_was_made_learns_the_quick_way_with_weights_of_a_step_too():
    model = initialise("vit", 3, 0).train()
    seen = []
    usual = type(model)._simple

    def noted(self):
        seen.append(usual(self))
        return seen[-1]

    type(model)._simple = noted
    try:
        given = {key: weight.detach().bfloat16() for key, weight in model.named_parameters()}
        torch.func.functional_call(model, given, torch.rand(1, 3, 64, 64).bfloat16())
    finally:
        type(model)._simple = usual
    assert seen == [True]


@pytest.mark.parametrize("part", ["Block", "Attention"])
def test_a_vit_whose_parts_somebody_patched_learns_from_what_they_do(part, monkeypatch):
    model = initialise("vit", 3, 0)
    kind = getattr(vit_module, part)
    usual = kind.forward
    monkeypatch.setattr(kind, "forward", functools.wraps(usual)(lambda self, x: 2 * usual(self, x)))
    inputs = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.train()(inputs), model.eval()(inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("change", VIT_CHANGES)
def test_a_vit_that_was_changed_learns_from_what_it_has_become(change):
    model = initialise("vit", 3, 0)
    inputs = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    before = model.eval()(inputs)
    change(model)
    after = model.eval()(inputs)
    alike = torch.allclose(before, after, atol=1e-4)
    assert alike <= (change in (_normed_weights, _unscaled, _over_tokens))
    torch.testing.assert_close(model.train()(inputs), after, rtol=1e-5, atol=1e-5)


def test_a_vit_in_training_can_be_differentiated_by_functions():
    model = initialise("vit", 2, 0).train()
    inputs = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    slope = torch.func.grad(lambda x: model(x).sum())(inputs)
    leaf = inputs.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(model(leaf).sum(), leaf)
    torch.testing.assert_close(slope, wanted, rtol=1e-4, atol=1e-6)


def test_a_vit_learns_under_autocast_too():
    model = initialise("vit", 2, 0).train()
    inputs = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    whole = torch.autograd.grad(model(inputs).sum(), list(model.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(inputs).sum()
    rounded = torch.autograd.grad(loss, list(model.parameters()))
    for one, other in zip(rounded, whole, strict=True):
        assert one.dtype == torch.float32
        assert (one - other).norm() <= 0.1 * other.norm() + 1e-6


def test_a_robust_network_starts_from_the_quickest_that_is_there():
    robust = training.prepare(task(), "cnn4@robust-swift")[1]
    assert training.origins("cnn4", robust) == ["cnn4@published", "cnn4@swift", "cnn4"]
    assert training.origins("cnn4", find_recipe("swift")) == []


@pytest.mark.parametrize("wrong", [{"cycles": 0}, {"cycles": -1}, {"cycles": 1.0}, {"cycles": True}])
@pytest.mark.parametrize("more", [{}, {"cycle": False}])
def test_cycles_that_cannot_be_are_refused(wrong, more):
    with pytest.raises(InvalidParameter, match="cycles is a whole number"):
        Recipe(**{"rate": 1e-3, "batch": 8, "epochs": 60, "scenes": 1, "cycle": True} | wrong | more)


@pytest.mark.parametrize("wrong", [{"epochs": 6}, {"cycle": False}])
def test_cycles_need_epochs_and_a_cycle(wrong):
    with pytest.raises(InvalidParameter, match="cycles is a whole number"):
        Recipe(**{"rate": 1e-3, "batch": 8, "epochs": 7, "scenes": 1, "cycle": True, "cycles": 3} | wrong)


@pytest.mark.parametrize(("worst", "epochs"), [(0.997, 3), (1.0, 2)])
def test_in_the_middle_of_a_cycle_everything_must_be_right(monkeypatch, worst, epochs):
    """It is good enough from the second epoch on, in the middle of the second cycle."""
    seen = []

    def certified(self, answers, thresholds=None):
        seen.append(len(self.groups) // len(self.task.groups))
        return SimpleNamespace(passed=len(seen) > 1 or seen == [200])

    monkeypatch.setattr(Trial, "certificate", certified)
    monkeypatch.setattr(Trial, "answers", lambda *_, **__: [])  # of thousands of pictures
    monkeypatch.setattr(training, "_worst_bucket", lambda *_: worst)
    recipe = Recipe(rate=1e-3, batch=8, epochs=7, scenes=1, cycle=True, cycles=3)
    done = train(task(), "cnn3", recipe=recipe, device="cpu", quiet=True)
    assert done.epochs == epochs
    assert set(seen) == {500}  # as many as the certificate has
    seen.clear()
    done = train(task(), "cnn3", recipe=replace(recipe, cycles=1), device="cpu", quiet=True)
    assert (done.epochs, seen) == (1, [200, 500])  # one cycle may end at any time


@pytest.mark.parametrize("setting", ["bf16", "autocast", "medium", "float64", "no_grad", "inference"])
def test_what_the_caller_has_set_is_not_in_the_weights(setting):
    tiny = Recipe(rate=1e-3, batch=32, epochs=1, scenes=8, cycle=False)
    world = task()

    def weights():
        done = verax.train(world, "cnn3", recipe=tiny, groups=[1, 12], device="cpu", quiet=True)
        verax.certify(done.model, world, n=1)
        return torch.cat([weight.detach().flatten() for weight in done.model.parameters()])

    places = torch.backends.mkldnn.conv, torch.backends.mkldnn.matmul
    with contextlib.ExitStack() as stack:
        wanted = weights()
        if setting == "bf16":
            for place in places:
                stack.callback(setattr, place, "fp32_precision", place.fp32_precision)
                place.fp32_precision = "bf16"
        elif setting == "medium":
            stack.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("medium")
        elif setting == "float64":
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(torch.float64)
        else:
            modes = {
                "autocast": torch.autocast("cpu", torch.bfloat16),
                "no_grad": torch.no_grad(),
                "inference": torch.inference_mode(),
            }
            stack.enter_context(modes[setting])
        found = weights()
    assert torch.equal(found, wanted)


def test_a_thread_records_on_one_stream_of_its_own(monkeypatch):
    """Torch has 32 streams, which it hands out in turn."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: object())
    here, device = torch.device("cuda", 0), torch.device("cuda", 1)
    mine = [aside(where) for where in (here, here, device)]
    assert mine[0] is mine[1] is not mine[2]
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(aside, here).result() not in mine


def test_the_cycle_is_that_of_pytorch():
    recipe = Recipe(rate=3e-3, batch=1, epochs=1, scenes=1, cycle=True)
    weight = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.Adam([weight], recipe.rate)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=50)
    rates, momenta = schedule(recipe, 50)
    for step in range(50):
        group = optimiser.param_groups[0]
        assert group["lr"] == pytest.approx(float(rates[step]), rel=1e-9)
        assert group["betas"][0] == pytest.approx(float(momenta[step]), rel=1e-9)
        optimiser.step()
        if step < 49:
            cycle.step()


@pytest.mark.parametrize("cycle", [True, False])
def test_a_step_is_one_of_adam(cycle):
    recipe = Recipe(rate=1e-3, batch=16, epochs=1, scenes=1, cycle=cycle, clip=0.05)
    ours = initialise("cnn3", 2, 0).double().to(memory_format=torch.channels_last)
    theirs = initialise("cnn3", 2, 0).double()
    optimiser = torch.optim.Adam(theirs.parameters(), recipe.rate)
    turn = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.rate, total_steps=8) if cycle else None
    stepper = Stepper(ours, recipe, 8)
    for k in range(8):
        cases = task().cases(group=[1, 8, 12], n=4, start=4 * k)
        stepper(cases.inputs.double(), cases.targets)
        optimiser.zero_grad()
        F.cross_entropy(theirs(cases.inputs.double()), cases.targets).backward()
        assert nn.utils.clip_grad_norm_(theirs.parameters(), 0.05) > 0.05
        optimiser.step()
        if turn is not None and k < 7:
            turn.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-8)


def test_epochs_are_those_of_the_try_that_is_kept(monkeypatch):
    found = [Try(4, 0.1, "epochs", 0.6, 0.6), Try(7, 0.1, "epochs", 0.9, 0.8), Try(1, 9.0, "dead", None, 0.5)]
    coming = iter(found)
    monkeypatch.setattr(training._Job, "_fit", lambda *given: next(coming))
    recipe = Recipe(1e-3, 8, 9, 2, cycle=False, repeat=True, accept=0.98, tries=3)
    made = train(task(), "cnn3", recipe=recipe, groups=[1, 8], device="cpu", quiet=True)
    assert made.tries == tuple(found)
    assert made.epochs == 7


class Elsewhere(nn.Module):
    """A network that uses a parameter in another place than the module that holds it."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 2)
        self.also = [self.first.weight]

    def forward(self, x):
        return self.last(F.relu(self.first(x)) + x @ self.also[0])


def test_a_parameter_that_is_used_elsewhere_too_learns_from_both_places():
    ours, theirs = (Elsewhere().double() for _ in range(2))
    for model in (ours, theirs):
        model.also = [model.first.weight]
    theirs.load_state_dict(ours.state_dict())
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(5, 8, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 2, (5, 8), generator=generator)
    stepper = Stepper(ours, Recipe(rate=0.5, batch=8, epochs=1, scenes=1, cycle=False, optimiser="sgd"), 5)
    plain = torch.optim.SGD(theirs.parameters(), lr=0.5)
    for pictures, labels in zip(x, y, strict=True):
        stepper(pictures, labels)
        plain.zero_grad()
        F.cross_entropy(theirs(pictures), labels).backward()
        plain.step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-6, atol=1e-8)


def test_several_steps_at_once_are_the_steps_one_by_one():
    cases = task().cases(group=[1, 8, 12], n=6)
    recipe = Recipe(rate=1e-3, batch=4, epochs=1, scenes=1, cycle=True)
    one, many = (Stepper(initialise("cnn3", 2, 0), recipe, 5) for _ in range(2))
    taken = [one(*part) for part in zip(cases.inputs.split(4), cases.targets.split(4), strict=True)]
    assert taken == [1] * 5  # 18 pictures: the last step has two
    assert many(cases.inputs, cases.targets) == 5
    assert torch.equal(one.weights, many.weights)
    assert torch.equal(one.history, many.history)
    assert len(one.history[:, 0].unique()) == 5


def test_nothing_changes_after_the_step_that_meets_the_stopping_rule():
    cases = task().cases(group=[1, 12], n=8)
    plan = Recipe(rate=1e-3, batch=4, epochs=1, scenes=1, cycle=False)
    free = Stepper(initialise("cnn3", 2, 0), plan, 4)
    free(cases.inputs, cases.targets)
    losses = free.history[:, 0].tolist()
    limit = losses[1] + 1e-6 if losses[1] < losses[0] else losses[0] + 1e-6
    last = next(k for k, loss in enumerate(losses) if loss < limit)
    assert last < 3
    held = Stepper(initialise("cnn3", 2, 0), replace(plan, stop=limit), 4)
    held(cases.inputs[: 4 * (last + 1)], cases.targets[: 4 * (last + 1)])
    weights = held.weights.clone()
    held(cases.inputs[4 * (last + 1) :], cases.targets[4 * (last + 1) :])
    assert torch.equal(held.weights, weights)
    assert not torch.equal(free.weights, weights)
    held.restart(initialise("cnn3", 2, 0))
    held(cases.inputs[: 4 * (last + 1)], cases.targets[: 4 * (last + 1)])
    assert torch.equal(held.weights, weights)


# -- pictures --------------------------------------------------------------------------------------------


def test_a_fixed_set_has_the_published_sizes_and_repeats():
    world = task("complex-fr")
    pool = batches.fixed(world, world.groups, 0, 20, CPU)
    counts = dict(zip(*torch.unique(pool.groups, return_counts=True), strict=True))
    assert {int(g): int(n) for g, n in counts.items()} == {g: 60 if g >= 10 else 20 for g in range(1, 13)}
    assert int(pool.labels.sum()) * 2 == len(pool)
    epochs = list(batches.repeated(pool, 0, 2, 32))
    assert len(epochs) == 2 * batches.steps_in(pool, 32)
    half = len(epochs) // 2
    first, second = (torch.cat([s.ids for _, _, s in part]) for part in (epochs[:half], epochs[half:]))
    assert torch.equal(first.sort().values, second.sort().values)
    assert len(first.unique()) == len(pool)
    assert not torch.equal(first, second)
    one, two = first.argsort(), second.argsort()
    pictures = [torch.cat([x for x, _, _ in part]) for part in (epochs[:half], epochs[half:])]
    assert torch.equal(pictures[0][one], pictures[1][two])


@pytest.mark.parametrize(
    ("setting", "scenes", "accept", "script"),
    [
        ("simple-fr", 2000, 0.98, (1e-4, 50)),
        ("simple-nr", 5000, 0.98, (1e-5, 50)),
        ("complex-fr", 2000, 0.95, (1e-5, 50)),
        ("complex-cr1", 15000, 0.95, (1e-5, 100)),
        ("complex-cr4", 15000, 0.95, (1e-5, 150)),
    ],
)
def test_published_recipes_fit_their_task(setting, scenes, accept, script):
    plan = fitted("published", "cnn4", task(setting))
    assert (plan.scenes, plan.accept, plan.stop, plan.dead, plan.tries) == (scenes, accept, 0.005, 7.0, 20)
    assert (plan.rate, plan.batch, plan.epochs) == (1e-4, 128, 10)
    assert fitted("published", "vgg16", task(setting)).batch == 1024
    natural = fitted("published", "cnn4", task(setting, background="texture"))
    assert natural.accept == (0.95 if accept == 0.98 else 0.90)
    other = fitted("published-script", "cnn4", task(setting))
    assert (other.rate, other.epochs) == script


# -- the published recipe --------------------------------------------------------------------------------


def test_training_stops_at_a_small_loss_and_is_accepted():
    plan = replace(SMALL, stop=0.1, dead=7.0, accept=0.9, tries=9)
    done = train(task(), "cnn3", recipe=plan, groups=[1, 12], device="cpu", quiet=True)
    assert done.tries[-1].ended == "loss"
    assert done.tries[-1].loss < 0.1
    assert done.epochs < plan.epochs
    assert min(done.tries[-1].train, done.tries[-1].test) >= 0.9
    assert done.worst >= 0.9


def test_dead_networks_are_tried_again_quickly(monkeypatch):
    real = training.initialise

    def dead_first(name, classes, seed, attempt=0):
        model = real(name, classes, seed, attempt)
        if attempt < 2:
            nn.init.constant_(model[-1].bias, -50.0)
        return model

    steps = []
    monkeypatch.setattr(training, "initialise", dead_first)
    monkeypatch.setattr(
        Stepper, "_step", lambda self, *b, _s=Stepper._step: (steps.append(self.done), _s(self, *b))[1]
    )
    plan = replace(SMALL, stop=0.1, dead=7.0, accept=0.9, tries=9)
    done = train(task(), "cnn3", recipe=plan, groups=[1, 12], device="cpu", quiet=True)
    ends = [t.ended for t in done.tries]
    assert ends[:2] == ["dead", "dead"]
    assert ends[-1] == "loss"
    assert steps[: steps.index(1, 1)][-1] <= training._LIFELESS
    assert done.worst >= 0.9
    record = json.loads(done.save().with_suffix(".json").read_text())
    assert [t["ended"] for t in record["tries"]] == ends
    assert record["start"] == "trained from scratch"


def test_the_best_of_all_tries_is_kept_when_none_is_accepted():
    plan = replace(SMALL, epochs=1, stop=1e-9, accept=1.1, tries=3)
    done = train(task(), "cnn3", recipe=plan, groups=[1, 12], device="cpu", quiet=True)
    assert len(done.tries) == 3
    best = max(t.quality for t in done.tries)
    cases = task().cases(group=[1, 12], n=400, seed=9)
    right = (done.model(cases.inputs).argmax(1) == cases.targets).double().mean()
    assert float(right) == pytest.approx(best, abs=0.05)


# -- adversaries -----------------------------------------------------------------------------------------


def test_the_adversary_keeps_its_limits_and_does_harm():
    cases = task().cases(group=[1, 7, 12], n=4)
    model = task().network("cnn3")
    start = torch.rand_like(cases.inputs) * 2 - 1
    worse = attacks.pgd(model, cases.inputs, cases.targets, start, 0.3)
    assert (worse - cases.inputs).abs().max() <= 0.3 + 1e-6
    assert worse.min() >= 0
    assert worse.max() <= 1
    with torch.no_grad():
        before = F.cross_entropy(model(cases.inputs), cases.targets)
        assert F.cross_entropy(model(worse), cases.targets) > before + 1
    strong, weak = (attacks.robust_accuracy(model, task(), eps, n=2) for eps in (0.3, 1e-4))
    assert strong < weak


def test_robust_training_starts_from_stored_weights_and_withstands():
    eps = 0.05
    small = {"scenes": 64, "batch": 32, "epochs": 2, "rate": 5e-4}
    plan = replace(RECIPES["robust"], adversary=eps, loss="cross-entropy", **small)
    done = train(task(), "cnn3", recipe=plan, groups=[1, 12], device="cpu", quiet=True)
    assert done.start == "weights of cnn3"  # shipped
    plain = task().network("cnn3")
    cases = task().cases(group=[1, 12], n=32, seed=5)
    start = torch.rand(cases.inputs.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1

    def loss(model):
        worse = attacks.pgd(model, cases.inputs, cases.targets, start, eps)
        with torch.no_grad():
            return float(F.cross_entropy(model(worse), cases.targets))

    assert loss(done.model) < loss(plain)
    assert 0 <= done.robust <= 1
    published = replace(done, recipe="published")
    published.save()
    short = replace(plan, scenes=64, epochs=1)
    clipped = replace(short, loss="clipped")  # starts from nothing but published weights
    for recipe in (short, clipped):
        again = train(task(), "cnn3", recipe=recipe, groups=[1, 12], device="cpu", quiet=True)
        assert again.start == "weights of cnn3@published"
    assert again.start == "weights of cnn3@published"
    assert json.loads(again.save().with_suffix(".json").read_text())["robust_accuracy"] == again.robust


def test_recipes_of_other_strength():
    usual = find_recipe("robust")
    assert (usual.adversary, usual.clean, usual.ramp, usual.cycle) == (0.3, 0.5, 0.5, True)
    assert find_recipe("robust-0.1") == replace(usual, adversary=0.1)
    assert find_recipe("robust-0.3") == usual


def test_robust_recipes_fit_their_task_and_architecture():
    small, large = (fitted("robust", "cnn4", task(name)) for name in ("complex-fr", "complex-cr1"))
    assert (small.scenes, small.epochs, large.scenes, large.epochs) == (2000, 30, 15000, 10)
    rates = {name: fitted("robust-0.1", name, task()).rate for name in ("cnn3", "vgg16", "vit")}
    assert rates == {"cnn3": 1e-3, "vgg16": 1e-4, "vit": 5e-4}


def test_an_adversary_grows_during_its_ramp():
    plan = replace(SMALL, adversary=0.3, ramp=0.5)
    assert strengths(plan, 8).tolist() == pytest.approx([0.075, 0.15, 0.225, 0.3, 0.3, 0.3, 0.3, 0.3])
    assert strengths(replace(plan, ramp=0.0), 3).tolist() == [0.3] * 3
    assert strengths(replace(plan, ramp=1.0), 3).tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert strengths(SMALL, 3).tolist() == [0.0] * 3


@pytest.mark.parametrize(("clean", "left"), [(0.0, 0), (0.25, 2), (0.5, 4)])
def test_an_adversary_leaves_the_clean_share_alone(clean, left):
    plan = replace(find_recipe("robust"), batch=8, clean=clean, ramp=1.0)
    cases = task().cases(group=[1, 12], n=8)
    cases = cases[torch.randperm(16, generator=torch.Generator().manual_seed(0))]
    stepper, seen = Stepper(initialise("cnn3", 2, 0), plan, 2), []
    stepper.model.register_forward_hook(
        lambda model, given, out: seen.append(given[0].detach()) if model.training else None
    )
    stepper(cases.inputs, cases.targets, torch.ones_like(cases.inputs))
    assert len(seen) == 2
    for inputs, pictures, eps in zip(seen, cases.inputs.split(8), (0.15, 0.3), strict=True):
        changed = (inputs - pictures).abs().flatten(1).amax(1)
        assert (changed[:left] == 0).all()
        assert changed[left:].tolist() == pytest.approx([eps] * (8 - left))


def test_robust_networks_withstand_and_stay_right_on_clean_pictures():
    eps = 0.3  # without the ramp, or at a tenth of the rate, this ends at chance
    small = {"scenes": 96, "batch": 16, "epochs": 6}
    done = train(
        task(),
        "cnn3",
        recipe=replace(find_recipe("robust"), **small),
        groups=[1, 12],
        device="cpu",
        quiet=True,
    )
    cases = task().cases(group=[1, 12], n=32, seed=5)
    start = torch.rand(cases.inputs.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1

    def right(model):
        worse = attacks.pgd(model, cases.inputs, cases.targets, start, eps)
        with torch.no_grad():
            return [
                float((model(x).argmax(1) == cases.targets).double().mean()) for x in (cases.inputs, worse)
            ]

    assert right(task().network("cnn3"))[1] < 0.5
    assert min(right(done.model)) > 0.9
    recorded = json.loads(done.save().with_suffix(".json").read_text())["recipe"]
    assert {key: recorded[key] for key in ("adversary", "clean", "ramp")} == {
        "adversary": eps,
        "clean": 0.5,
        "ramp": 0.5,
    }


def test_what_travels_with_the_package_is_fast(own_store):
    for path in library.shipped():
        assert "@" not in path.name
        assert records.record(path)["recipe"]["name"] == "fast"


@pytest.mark.gpu
@pytest.mark.skipif(PRETENDED, reason="a pretended GPU cannot record steps")
@pytest.mark.parametrize("block", [1, 16])
@pytest.mark.parametrize("stop", [None, 0.6])
def test_recorded_steps_are_the_plain_ones(monkeypatch, stop, block):
    cases = task().cases(group=[1, 8, 12], n=200, device="cuda")
    order = torch.randperm(len(cases), generator=torch.Generator().manual_seed(0)).cuda()
    recipe = Recipe(rate=1e-3, batch=16, epochs=1, scenes=1, cycle=False, stop=stop)
    found = []
    for recorded in (True, False):
        monkeypatch.setattr(Stepper, "recorded", recorded)
        model = initialise("cnn3", 2, 0).cuda().to(memory_format=torch.channels_last)
        stepper = Stepper(model, recipe, 38, block=block)
        for rows in torch.split(order, 16 * 16):
            stepper(cases.inputs[rows], cases.targets[rows])
        found.append((stepper.weights.clone(), stepper.history.clone()))
    (first, one), (second, two) = found
    # a GPU adds in no fixed order, and what that changes grows from step to step
    torch.testing.assert_close(one[:16], two[:16], rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(one[:, 0], two[:, 0], rtol=0.1, atol=1e-2)
    # where a gradient is next to nothing its sign is chance, and Adam goes a whole step either way
    start = Stepper(initialise("cnn3", 2, 0).to(memory_format=torch.channels_last), recipe, 1).weights.cuda()
    assert float((first - second).norm()) < 0.1 * float((first - start).norm())
    assert float(one[-1, 0]) < float(one[0, 0])


def test_an_adversary_has_the_steps_of_its_recipe(monkeypatch):
    cases, asked = task().cases(group=[1, 12], n=4), []
    monkeypatch.setattr(
        steps, "pgd", lambda run, pictures, *_, iterations, loss: asked.append(iterations) or pictures
    )
    for name in ("robust", "robust-swift"):
        stepper = Stepper(initialise("cnn3", 2, 0), replace(find_recipe(name), batch=8), 1)
        stepper(cases.inputs, cases.targets, torch.zeros_like(cases.inputs))
    assert asked == [10, 7]


@pytest.mark.parametrize("iterations", [0, 2.0, True])
def test_steps_of_an_adversary_are_a_whole_number(iterations):
    with pytest.raises(InvalidParameter, match="iterations is a whole number from 1"):
        replace(find_recipe("robust"), iterations=iterations)


def test_the_recipe_for_robust_networks_learns_where_the_published_loss_is_flat():
    model = task().network("cnn3").train()
    cases = task().cases(group=[1, 12], n=4)
    start = torch.rand(cases.inputs.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    changed = {}
    for loss in ("clipped", find_recipe("robust").loss):
        plan = replace(find_recipe("robust"), loss=loss, batch=8)
        stepper = Stepper(deepcopy(model), plan, 1)
        # far from [0, 1], as the outputs of a plain network under attack are
        last = stepper.model[-1]
        last.weight.data.mul_(4)
        before = stepper.weights.clone()
        stepper(cases.inputs, cases.targets, start)
        changed[loss] = float((stepper.weights - before).abs().max())
    assert changed.pop("clipped") == 0
    assert all(change > 0 for change in changed.values())
    assert changed


def from_numbers(classes):
    rates = [rate.item() for rate in torch.linspace(0, 0.1, 3)]  # as transformers of timm have it
    return nn.Sequential(nn.Conv2d(3, 4, 8, 8), nn.Dropout2d(rates[1]), nn.Flatten(), nn.Linear(256, classes))


def with_weights(classes):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, classes))
    model[1].weight.data = (
        torch.from_numpy(np.random.default_rng(0).normal(size=(classes, 12288))).float() / 99
    )
    return model


def from_another(classes):
    return initialise("cnn3", classes, 7)


@pytest.mark.parametrize("make", [from_numbers, with_weights, from_another])
def test_architectures_may_look_at_numbers_while_they_are_made(make, monkeypatch):
    monkeypatch.setitem(NETWORKS._items, "own", make)
    tiny = Recipe(rate=1e-3, batch=16, epochs=1, scenes=8, cycle=False)
    done = verax.train(task(), "own", recipe=tiny, groups=[1, 12], device="cpu", quiet=True)
    assert 0 <= done.worst <= 1


def test_lazy_architectures_are_refused_in_a_sentence(monkeypatch):
    monkeypatch.setitem(
        NETWORKS._items, "lazy", lambda classes: nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))
    )
    with pytest.raises(InvalidParameter, match="'lazy' has lazy layers"):
        verax.train(task(), "lazy", device="cpu", quiet=True)


@pytest.mark.parametrize(
    ("wrong", "some", "asked", "worst"),
    [
        ([], 2, 4 + 8, 1.0),
        ([4], 2, 4, 0.5),  # among the first two of the second bucket: they alone tell
        ([7], 2, 4 + 8, 0.75),  # behind them
        ([4], 0, 8, 0.75),
    ],
)
def test_the_first_few_are_asked_first_and_the_others_if_they_are_right(wrong, some, asked, worst):
    class Sign(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            return torch.cat([-x, x], 1)

    seen, inputs = [], torch.ones(8, 1)
    inputs[wrong] = -1
    cases = SimpleNamespace(inputs=inputs, targets=torch.ones(8, dtype=torch.int64))
    assert training._worst_bucket(Sign(), cases, 2, some=some) == worst
    assert sum(seen) == asked
