"""Each method against an independent implementation and an axiom, on several spellings of one network."""

import copy
import runpy

import captum.attr as captum
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from verax.engine import batching, masking
from verax.engine.gradients import gradient
from verax.errors import InvalidInput, InvalidParameter, MethodFailed, UnknownName
from verax.methods import CONTROLS, METHODS
from verax.methods.occlusion import windows

LOOKING = ("gradient", "input-x-gradient", "smoothgrad", "integrated-gradients", "grad-cam", "occlusion")


class Module(nn.Module):
    """Convolutions, a residual add and a dense layer, written with modules."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.a, self.b = nn.Conv2d(3, 6, 3, 2), nn.Conv2d(6, 6, 3, padding=1)
            self.head = nn.Linear(6 * 7 * 7, 4)
        self.relu, self.flat, self.drop = nn.ReLU(), nn.Flatten(), nn.Dropout(0.5)

    def forward(self, x):
        x = self.relu(self.a(x))
        x = self.relu(self.b(x) + x)
        return self.head(self.drop(self.flat(x)))


class Functional(Module):
    def forward(self, x):
        x = F.relu(self.a(x))
        x = torch.relu(torch.add(F.conv2d(x, self.b.weight, self.b.bias, padding=1), x))
        return F.linear(x.reshape(len(x), -1), self.head.weight, self.head.bias)


class InPlace(Module):
    def forward(self, x):
        x = F.relu_(self.a(x))
        y = self.b(x)
        y += x
        y.relu_()
        return self.head(y.view(len(y), -1))


SPELLINGS = {"module": Module, "functional": Functional, "in-place": InPlace}


@pytest.fixture
def data():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        inputs = torch.rand(5, 3, 16, 16)
        inputs[:, :, :4] = 0
        return inputs, torch.tensor([0, 3, 1, 2, 2])


def close(a, b, tolerance=1e-5):
    assert a.shape == b.shape
    assert (a - b).norm() <= tolerance * b.norm(), float((a - b).norm() / b.norm())


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_against_captum(spelling, data):
    inputs, targets = data
    model, reference = SPELLINGS[spelling]().double().eval(), Module().double().eval()
    x = inputs.double()
    pairs = {
        "gradient": captum.Saliency(reference).attribute(x, targets, abs=False),
        "input-x-gradient": captum.InputXGradient(reference).attribute(x, targets),
        "integrated-gradients": captum.IntegratedGradients(reference).attribute(
            x, target=targets, n_steps=32, method="gausslegendre"
        ),
        "occlusion": captum.Occlusion(reference).attribute(
            x, (3, 8, 8), target=targets, strides=(3, 4, 4), baselines=0
        ),
    }
    for name, wanted in pairs.items():
        close(verax.explain(model, x, targets, method=name).double(), wanted, 1e-6)
    cam = captum.LayerGradCam(reference, reference.relu)
    # the ReLU is used twice; Captum keeps the last use, which is the last feature map
    wanted = F.interpolate(cam.attribute(x, targets, relu_attributions=True), (16, 16), mode="bilinear")
    close(verax.explain(model, x, targets, method="grad-cam")[:, :1].double(), wanted, 1e-6)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("left", "riemann_left"),
        ("right", "riemann_right"),
        ("midpoint", "riemann_middle"),
        ("trapezoid", "riemann_trapezoid"),
    ],
)
def test_quadrature_rules_against_captum(rule, name, data):
    inputs, targets = data
    model = Module().double().eval()
    x = inputs.double()
    ours = verax.explain(model, x, targets, method="IG", steps=9, rule=rule, baseline=0.25).double()
    theirs = captum.IntegratedGradients(model).attribute(x, 0.25, targets, n_steps=9, method=name)
    if rule in ("midpoint",):
        close(ours, theirs, 1e-6)
        return
    # Captum's end-point rules sample linspace(0, 1, n) with weights 1/n; ours follow the textbook, so both
    # are held against the integral computed finely.
    fine = captum.IntegratedGradients(model).attribute(x, 0.25, targets, n_steps=2000)
    close(ours, fine, 0.2)
    finer = verax.explain(model, x, targets, method="IG", steps=400, rule=rule, baseline=0.25).double()
    assert (finer - fine).norm() < 0.1 * (ours - fine).norm()


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_integrated_gradients_are_complete(spelling, data):
    inputs, targets = data
    model = SPELLINGS[spelling]().double().eval()
    x = inputs.double()
    rise = (model(x) - model(torch.zeros_like(x))).gather(1, targets[:, None])[:, 0].detach()
    for steps, tolerance in ((300, 1e-2), (3000, 1e-3)):  # kinks of ReLUs limit the rate, not the limit
        maps = verax.explain(model, x, targets, method="integrated-gradients", steps=steps).double()
        close(maps.flatten(1).sum(1), rise, tolerance)


def test_smoothgrad_is_the_mean_over_its_own_noise(data):
    from verax.seeding import Streams, content_ids

    inputs, targets = data
    model = Module().eval()
    ours = verax.explain(model, inputs, targets, method="smoothgrad", samples=7, noise=0.2, seed=4)
    noise = Streams.of(content_ids(inputs), "explain", "smoothgrad", 4).normal("smoothgrad", 7, 3, 16, 16)
    mean = sum(gradient(model, inputs + 0.2 * noise[:, k], targets) for k in range(7)) / 7
    close(ours, mean)
    assert noise.std() == pytest.approx(1, abs=0.02)
    other = verax.explain(model, inputs, targets, method="smoothgrad", samples=7, noise=0.2, seed=5)
    assert not torch.allclose(ours, other)
    close(
        verax.explain(model, inputs, targets, method="smoothgrad", samples=3, noise=0.0),
        gradient(model, inputs, targets),
    )


def test_occlusion_by_brute_force(data):
    inputs, targets = data
    model = Module().eval()
    window, stride = 6, 5
    total, count = np.zeros((5, 16, 16)), np.zeros((16, 16))
    with torch.no_grad():
        plain = model(inputs)
        for top in range(0, 11, stride):
            for left in range(0, 11, stride):
                covered = inputs.clone()
                covered[:, :, top : top + window, left : left + window] = 0.3
                drop = (plain - model(covered)).gather(1, targets[:, None])[:, 0].numpy()
                total[:, top : top + window, left : left + window] += drop[:, None, None]
                count[top : top + window, left : left + window] += 1
    ours = verax.explain(
        model, inputs, targets, method="occlusion", window=window, stride=stride, baseline=0.3
    )
    np.testing.assert_allclose(ours[:, 0].numpy(), total / count, atol=1e-5)
    assert torch.equal(ours[:, 0], ours[:, 2])


@pytest.mark.parametrize(
    ("size", "window", "stride", "count"), [(16, 8, 4, 3), (16, 6, 5, 3), (16, 7, 4, 4), (5, 8, 4, 1)]
)
def test_windows_cover_everything(size, window, stride, count):
    masks = windows((size, size), window, stride)
    assert len(masks) == count**2
    assert (~masks).any(0).all()


def test_grad_cam_layers(data):
    inputs, targets = data
    model = Module().eval()
    named = verax.explain(model, inputs, targets, method="grad-cam", layer="a", relu=False)
    wanted = captum.LayerGradCam(model, model.a).attribute(inputs, targets)
    close(named[:, :1], F.interpolate(wanted, (16, 16), mode="bilinear"))
    assert named.min() < 0
    assert not [m for m in model.modules() if m._forward_hooks]
    with pytest.raises(InvalidParameter, match="did you mean 'head'"):
        verax.explain(model, inputs, targets, method="grad-cam", layer="heat")
    with pytest.raises(InvalidParameter, match="no feature map"):
        verax.explain(model, inputs, targets, method="grad-cam", layer="head")
    flat = nn.Sequential(nn.Flatten(), nn.Linear(768, 4))
    with pytest.raises(InvalidInput, match="no feature map"):
        verax.explain(flat, inputs, targets, method="grad-cam")


@pytest.mark.parametrize("name", LOOKING)
def test_spellings_agree(name, data):
    inputs, targets = data
    maps = [verax.explain(cls().eval(), inputs, targets, method=name) for cls in SPELLINGS.values()]
    close(maps[1], maps[0])
    close(maps[2], maps[0])


@pytest.mark.parametrize("name", [*LOOKING, *CONTROLS])
def test_maps_do_not_depend_on_the_batch(name, data, monkeypatch):
    inputs, targets = data
    model = Module().eval()
    whole = verax.explain(model, inputs, targets, method=name)
    assert whole.shape == inputs.shape
    assert whole.dtype == torch.float32
    close(verax.explain(model, inputs, targets, method=name, batch_size=2), whole)
    order = torch.tensor([4, 2, 0, 1, 3])
    close(verax.explain(model, inputs[order], targets[order], method=name), whole[order])
    close(verax.explain(model, inputs[3:4], targets[3:4], method=name), whole[3:4])
    monkeypatch.setattr(batching, "BUDGET", 1)
    monkeypatch.setattr(batching.rows_within_budget, "__defaults__", (768 * 3,))
    close(verax.explain(model, inputs, targets, method=name), whole)
    assert torch.equal(
        verax.explain(model, inputs, targets, method=name, ids=torch.arange(5)),
        verax.explain(model, inputs, targets, method=name, ids=torch.arange(5)),
    )


NEED_MORE = ("oracle", "attention-rollout", "chefer", "exact-additive")  # a truth, attention, a sum


@pytest.mark.parametrize("name", [n for n in METHODS if n not in NEED_MORE])
def test_the_network_is_left_as_it_was(name, data):
    inputs, targets = data
    model = Module().train()
    model.head.eval()
    model.a.weight.grad = torch.ones_like(model.a.weight)
    model.b.weight.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    kept, state = inputs.clone(), torch.random.get_rng_state()
    verax.explain(model, inputs, targets, method=name)
    assert torch.equal(inputs, kept)
    assert inputs.grad is None
    assert not inputs.requires_grad
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert model.training
    assert not model.head.training
    assert model.drop.training
    assert torch.equal(model.a.weight.grad, torch.ones_like(model.a.weight))
    assert model.b.weight.grad is None
    assert [p.requires_grad for p in model.parameters()].count(False) == 1
    assert not [m for m in model.modules() if m._forward_hooks or m._backward_hooks or m._forward_pre_hooks]


def test_weights_that_need_no_gradient_can_be_explained(data):
    inputs, targets = data
    frozen = Module().eval().requires_grad_(False)
    for name in LOOKING:
        close(
            verax.explain(frozen, inputs, targets, method=name),
            verax.explain(Module().eval(), inputs, targets, method=name),
        )
    with torch.no_grad():
        assert verax.explain(frozen, inputs, targets, method="gradient").abs().sum() > 0


def test_controls():
    cases = verax.task("textbox/complex-cr1").cases(n=3)
    model = verax.task("textbox/complex-cr1").network()

    def explain(name, **more):
        return verax.explain(model, cases.inputs, cases.targets, method=name, **more)

    assert torch.equal(explain("input"), cases.inputs)
    assert torch.equal(explain("oracle", truth=cases.truth)[:, 0] > 0, cases.truth.focus)
    from scipy import ndimage

    image = cases.inputs[0, 0].double().numpy()
    wanted = np.hypot(ndimage.sobel(image, 0, mode="nearest"), ndimage.sobel(image, 1, mode="nearest"))
    np.testing.assert_allclose(explain("edge")[0, 0], wanted, atol=1e-5)
    bump = explain("centre")[0, 0]
    assert bump.argmax() in (31 * 64 + 31, 31 * 64 + 32, 32 * 64 + 31, 32 * 64 + 32)
    assert torch.allclose(bump, bump.flip(0))
    noise = explain("random")
    assert not torch.equal(noise[0], noise[1])
    assert 0.49 < noise.mean() < 0.51
    with pytest.raises(InvalidInput, match="needs the truth"):
        explain("oracle")


def test_the_predicted_class_is_the_default(data):
    inputs, _ = data
    model = Module().eval()
    best = model(inputs).argmax(1)
    assert torch.equal(verax.explain(model, inputs), verax.explain(model, inputs, best))
    assert torch.equal(verax.explain(model, inputs, 2), verax.explain(model, inputs, torch.full((5,), 2)))


def test_regression_and_vectors():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 1), nn.Flatten(0)).eval()
        inputs = torch.randn(6, 7)
    maps = verax.explain(model, inputs, method="integrated-gradients", steps=60)
    close(maps.sum(1), (model(inputs) - model(torch.zeros(1, 7))).detach(), 1e-4)


def test_own_methods(data):
    inputs, targets = data
    model = Module().eval()

    @verax.method("test-own")
    def own(model, inputs, targets, power=2.0):
        inputs.requires_grad_()
        model(inputs).gather(1, targets[:, None]).sum().backward()
        return inputs.grad.abs() ** power

    try:
        ours = verax.explain(model, inputs, targets, method="test-own")
        close(ours, verax.explain(model, inputs, targets, method="gradient") ** 2)
        assert all(p.grad is None for p in model.parameters())
        close(verax.explain(model, inputs, targets, method=own, power=1.0), ours.sqrt())
        with pytest.raises(InvalidParameter, match="no parameter 'powre'; did you mean 'power'"):
            verax.explain(model, inputs, targets, method="test-own", powre=1)
        verax.method("test-own")(lambda model, inputs, targets: inputs)  # again, as in a notebook
        assert torch.equal(verax.explain(model, inputs, targets, method="test-own"), inputs)
        with pytest.raises(InvalidParameter, match="itself"):
            verax.method("gradient")(own)
    finally:
        METHODS.unregister("test-own")

    def noisy(model, inputs, targets):
        return torch.rand_like(inputs)

    assert torch.equal(verax.explain(model, inputs, method=noisy), verax.explain(model, inputs, method=noisy))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda m, x, t: x[:, 0, 0], "must return the shape"),
        (lambda m, x, t: "map", "must return a tensor"),
        (lambda m, x, t: x + 1j, "real numbers"),
        (lambda m, x, t: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_methods_that_misbehave(function, words, data):
    with pytest.raises(MethodFailed, match=words):
        verax.explain(Module(), data[0], data[1], method=function)


def test_a_method_that_raises_is_told_the_line_that_its_author_wrote(data, tmp_path):
    """Torch raises deep inside itself, and verax hands over the network."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\n\n\ndef mine(model, inputs, targets):\n"
        "    return torch.nn.functional.conv2d(inputs, torch.zeros(1)[0])\n\n\n"
        "def deep(model, inputs, targets):\n"
        "    return model(torch.nn.Sequential(torch.nn.Linear(3, 2))(inputs))\n\n\n"
        "def leaves(model, inputs, targets):\n"
        "    raise SystemExit(3)\n"
    )
    loaded = runpy.run_path(str(path))
    for name, line in (("mine", 5), ("deep", 9), ("leaves", 13)):
        with pytest.raises(MethodFailed, match=rf"\(mine\.py:{line}\)$"):
            verax.explain(Module(), *data, method=loaded[name])


def test_one_map_for_all_channels_is_enough(data):
    inputs, targets = data
    for function in (lambda m, x, t: x[:, 0], lambda m, x, t: x[:, :1]):
        maps = verax.explain(Module(), inputs, targets, method=function)
        assert torch.equal(maps, inputs[:, :1].expand_as(inputs))


@pytest.mark.parametrize("function", [lambda model: 1, lambda model, inputs, targets, extra: 1])
def test_methods_must_be_callable_as_promised(function):
    with pytest.raises(InvalidParameter, match=r"\(model, inputs, targets\)"):
        verax.method("test-signature")(function)
    assert "test-signature" not in METHODS


def test_bad_input(data):
    inputs, targets = data
    model = Module()
    broken = inputs.clone()
    broken[3, 0, 0, 0] = float("nan")
    cases = [
        (dict(inputs=broken), InvalidInput, "Sample 3"),
        (dict(inputs=inputs.long()), InvalidInput, "floating-point"),
        (dict(inputs=[1, 2]), InvalidInput, "must be a tensor"),
        (dict(inputs=inputs[:0]), InvalidInput, "samples"),
        (dict(targets=targets[:2]), InvalidInput, "5 whole numbers"),
        (dict(targets=targets + 0.5), InvalidInput, "whole numbers"),
        (dict(targets=torch.tensor([0, 1, 2, 3, 4])), InvalidInput, "outputs 0 to 3"),
        (dict(targets=torch.tensor([0, 1, 2, 3, -1])), InvalidInput, "outputs 0 to 3"),
        (dict(method="gradeint"), UnknownName, "did you mean 'gradient'"),
        (dict(batch_size=0), InvalidParameter, "batch_size"),
        (dict(ids=torch.arange(3)), InvalidInput, "ids"),
        (dict(method="occlusion", window=0), InvalidParameter, "window"),
        (dict(method="integrated-gradients", rule="simpson"), InvalidParameter, "quadrature"),
        (dict(method="integrated-gradients", steps=0), InvalidParameter, "step"),
        (dict(method="smoothgrad", samples=0), InvalidParameter, "sample"),
        (dict(model=lambda x: x), InvalidInput, "torch.nn.Module"),
        (dict(model=nn.Identity()), InvalidInput, "samples"),
        (dict(inputs=inputs[0]), InvalidInput, "A batch axis is missing"),
        (dict(inputs=inputs[:, :2]), InvalidInput, "cannot run on inputs of shape"),
        (dict(method="occlusion", window="wide"), InvalidParameter, "a whole number"),
    ]
    for change, error, words in cases:
        with pytest.raises(error, match=words):
            verax.explain(**{"model": model, "inputs": inputs, "targets": targets, **change})


def test_out_of_memory_halves_the_passes(data):
    inputs, targets = data
    asked = []

    class Greedy(Module):
        def forward(self, x):
            asked.append(len(x))
            if len(x) > 3:
                raise torch.OutOfMemoryError("too much")
            return super().forward(x)

    masks = windows((16, 16), 4, 4)
    fill = torch.zeros(1, 3, 1, 1)
    small = masking.masked_outputs(Greedy().eval(), inputs, targets, masks, fill, rows=64)
    close(small, masking.masked_outputs(Module().eval(), inputs, targets, masks, fill))
    assert max(asked) > 3
    assert asked[-1] <= 3


def test_masked_outputs_skip_only_what_changes_nothing(data):
    inputs, targets = data
    rows = []

    class Counting(Module):
        def forward(self, x):
            rows.append(len(x))
            return super().forward(x)

    masks = windows((16, 16), 4, 4)
    model = Counting().eval()
    outputs = masking.masked_outputs(model, inputs, targets, masks, torch.zeros(1, 3, 1, 1))
    assert sum(rows) == 5 + 5 * 12  # the top row of windows is black already
    with torch.no_grad():
        for k, mask in enumerate(masks):
            wanted = Module().eval()(inputs * mask).gather(1, targets[:, None])[:, 0]
            close(outputs[:, k], wanted)


def test_inference_mode_outside_does_not_silence_gradients(data):
    inputs, targets = data
    model = Module().eval()
    wanted = verax.explain(model, inputs, targets, method="gradient")
    with torch.inference_mode():
        assert torch.equal(verax.explain(model, inputs, targets, method="gradient"), wanted)


def test_networks_that_work_in_place_on_their_input(data):
    inputs, targets = data

    class Halving(Module):
        def forward(self, x):
            x.mul_(0.5)
            return super().forward(x)

    class Twin(Module):
        def forward(self, x):
            return super().forward(x * 0.5)

    kept = inputs.clone()
    for name in LOOKING:
        ours = verax.explain(Halving().eval(), inputs, targets, method=name)
        close(ours, verax.explain(Twin().eval(), inputs, targets, method=name))
    assert torch.equal(inputs, kept)


def test_networks_that_cache_stay_differentiable(data):
    inputs, targets = data

    class Caching(Module):
        cache = None

        def forward(self, x):
            if self.cache is None:
                self.cache = torch.ones_like(x[:1])
            return super().forward(x * self.cache)

    model = Caching().eval()
    verax.explain(model, inputs, targets, method="occlusion")
    close(
        verax.explain(model, inputs, targets, method="gradient"),
        verax.explain(Module().eval(), inputs, targets, method="gradient"),
    )


def test_grad_cam_takes_the_last_map_that_matters(data):
    inputs, targets = data

    class Turned(Module):
        def forward(self, x):
            x = self.relu(self.a(x))
            x = self.relu(self.b(x) + x)
            unused = F.interpolate(x, scale_factor=2.0)
            assert unused.shape[2] == 14
            return self.head(x.permute(0, 2, 3, 1).permute(0, 3, 1, 2).flatten(1))

    wanted = verax.explain(Module().eval(), inputs, targets, method="grad-cam")
    close(verax.explain(Turned().eval(), inputs, targets, method="grad-cam"), wanted)


def test_double_networks_take_single_inputs(data):
    inputs, targets = data
    for name in LOOKING:
        close(
            verax.explain(Module().double().eval(), inputs, targets, method=name),
            verax.explain(Module().eval(), inputs, targets, method=name),
            1e-4,
        )


def test_a_precision_that_was_set_for_each_library_apart_is_no_obstacle():
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        maps = verax.explain(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), torch.rand(2, 3, 2, 2))
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert maps.shape == (2, 3, 2, 2)


def test_a_method_that_changes_how_torch_warns_does_not_last():
    def rude(model, inputs, targets):
        torch.use_deterministic_algorithms(False)
        return inputs

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        verax.explain(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), torch.rand(2, 3, 2, 2), None, rude)
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_a_method_may_overwrite_what_it_is_given(batch_size):
    seen = []

    def greedy(model, inputs, targets):
        seen.extend(targets.tolist())
        maps = inputs.clone().transpose(1, 3)
        inputs.zero_().transpose_(1, 3)  # as other libraries have them
        targets.zero_()
        return maps.transpose(1, 3)

    model, inputs = nn.Sequential(nn.Flatten(), nn.Linear(24, 3)), torch.rand(4, 3, 2, 4)
    kept, targets = inputs.clone(), torch.tensor([2, 1, 2, 1])
    maps = verax.explain(model, inputs, targets, greedy, batch_size=batch_size)
    assert torch.equal(maps, kept)
    assert torch.equal(inputs, kept)
    assert seen == targets.tolist() == [2, 1, 2, 1]


def test_a_method_that_overwrites_the_first_sample_leaves_the_next_of_the_same_memory():
    seen = []

    def greedy(model, inputs, targets):
        seen.append((float(inputs.sum()), int(targets)))
        inputs.zero_()
        targets.zero_()
        return inputs

    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    inputs, targets = torch.ones(1, 3, 2, 2).expand(3, -1, -1, -1), torch.tensor([2]).expand(3)
    verax.explain(model, inputs, targets, greedy, batch_size=1)
    assert seen == [(12.0, 2)] * 3
