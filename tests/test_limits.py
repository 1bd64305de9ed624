"""Where the rule engine ends: precision, mixed samples, cut paths, branches, devices."""

import copy
import functools
import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from spellings import Between, Transformer, plain, residual
from verax.engine import rules
from verax.engine.attention import AttentionLRP
from verax.engine.multipliers import Rectified, deeplift
from verax.engine.passes import propagate
from verax.engine.relevance import LRP, Composite
from verax.errors import UnsupportedOperation, VeraxError
from verax.methods import METHODS as REGISTERED
from verax.networks.anatomy import apart
from verax.networks.resnet import Block, resnet18
from verax.networks.starts import initialise
from verax.networks.vgg import VGG16
from verax.networks.zoo import let_torchvision_import

TARGETS = torch.tensor([0, 1, 2, 0])
EPSILON = Composite(rules.epsilon(), rules.epsilon())
METHODS = {
    "lrp": lambda m, x, t: propagate(LRP(EPSILON), m, x, t, "output")[0],
    "attn-lrp": lambda m, x, t: propagate(AttentionLRP(EPSILON), m, x, t, "output")[0],
    "rescale": lambda m, x, t: deeplift(m, x, torch.full_like(x, 0.1), t),
    "reveal-cancel": lambda m, x, t: deeplift(m, x, torch.full_like(x, 0.1), t, True),
    "guided": lambda m, x, t: propagate(Rectified(True), m, x, t)[0],
}


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def error(a, b):
    return float((a - b).norm() / b.norm())


# -- autocast --------------------------------------------------------------------------------------------


class Casting(nn.Module):
    """A network that switches autocast on by itself."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        with torch.autocast(x.device.type, torch.bfloat16):
            return self.inner(x)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["convolutions", "attention"])
def test_autocast_does_not_change_a_map(name, method):
    if name == "attention" and method == "lrp":
        pytest.skip("LRP has no rule for attention")
    model = (plain() if name == "convolutions" else Transformer()).float()
    x = drawn(4, 3, 14, 14).float() if name == "convolutions" else drawn(4, 3, 16, 16).float()
    wanted = METHODS[method](model, x, TARGETS)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype == torch.bfloat16  # it is on
        assert torch.equal(METHODS[method](model, x, TARGETS), wanted)
    assert torch.equal(METHODS[method](Casting(model), x, TARGETS), wanted)


# -- samples that are mixed ------------------------------------------------------------------------------

MIXING = {
    "mean over samples": lambda x: x - x.mean(0),
    "roll": lambda x: x + x.roll(1, 0),
    "first sample": lambda x: x - x[:1],
    "last sample": lambda x: x - x[-1:],
    "flip": lambda x: x.flip(0) + x,
    "roll back": lambda x: x + x.roll(-1, 0),
    "largest": lambda x: x + x.amax(0, keepdim=True),
}


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MIXING)
def test_a_network_that_mixes_samples_is_refused(name, method, count):
    x, targets = drawn(count, 6, seed=1), torch.arange(count) % 3
    with pytest.raises(UnsupportedOperation, match="samples"):
        METHODS[method](Between(MIXING[name]), x, targets)
    METHODS[method](Between(MIXING[name]), x[:1], targets[:1])  # alone there is nothing to mix with


ROWS = {
    "softmax over samples": (nn.Softmax(0), 2),
    "normalised with its neighbours": (nn.LayerNorm((4, 6)), 2),
    "taken for one sample": (nn.Conv1d(4, 4, 3, padding=1), 2),
    "taken for one picture": (nn.Sequential(nn.Flatten(1, 2), nn.Conv2d(4, 4, 1)), 4),
}


@pytest.mark.parametrize("name", ROWS)
def test_plain_layers_that_mix_samples_are_refused(name):
    layer, ndim = ROWS[name]
    x = drawn(4, 6, seed=1) if ndim == 2 else drawn(4, 2, 3, 6, seed=1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        last = nn.Sequential(nn.Flatten(), nn.Linear(layer.double()(x).flatten(1).shape[1], 3))
    model = nn.Sequential(layer, last).double().eval()
    assert (model(x)[0] - model(torch.cat([x[:1], 2 * x[1:]]))[0]).abs().max() > 1e-6
    assert not apart(model, ndim)
    with pytest.raises((UnsupportedOperation, RuntimeError)):  # some take no other number of samples
        METHODS["guided"](model, x, TARGETS)


def test_plain_layers_in_a_row_keep_samples_apart():
    pictures = nn.Sequential(
        *(
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.GroupNorm(2, 4),
            nn.Dropout(),
        ),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 8), nn.LayerNorm(8), nn.BatchNorm1d(8)),
        *(nn.GELU(), nn.Linear(8, 3), nn.Softmax(1)),
    ).eval()
    vectors = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Dropout(), nn.Linear(5, 3)).eval()
    for model, x in ((pictures, torch.randn(5, 3, 12, 12)), (vectors, torch.randn(5, 6))):
        assert apart(model, x.ndim)
        assert not apart(model, 3)  # one picture, to a convolution
        alone = torch.cat([model(x[k : k + 1]) for k in range(5)])
        torch.testing.assert_close(alone, model(x))
        assert not apart(nn.Sequential(model, Between(nn.Identity())), x.ndim)  # unknown code
        handle = model[0].register_forward_hook(lambda *_: None)
        assert not apart(model, x.ndim)
        handle.remove()
    assert not apart(pictures.train(), 4)
    assert not apart(nn.Sequential(nn.BatchNorm1d(6, track_running_stats=False)).eval(), 2)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "vgg11_bn", "alexnet", "own resnet18", "own vgg16"])
def test_common_networks_keep_samples_apart_as_long_as_nobody_changes_them(name, monkeypatch):
    own = name.partition("own ")[2]
    let_torchvision_import()
    models = importlib.import_module("torchvision.models")
    model = {"resnet18": resnet18, "vgg16": VGG16}[own](3) if own else getattr(models, name)(num_classes=3)
    model.eval()
    assert apart(model, 4)
    assert not apart(model, 3)
    with torch.no_grad():
        x = torch.randn(3, 3, 64, 64)
        torch.testing.assert_close(model(x)[:1], model(x[:1]), rtol=1e-3, atol=1e-4)
    inner = next(layer for layer in model.modules() if isinstance(layer, nn.Conv2d))
    inner.forward = inner.forward
    assert not apart(model, 4)
    del inner.forward
    with monkeypatch.context() as patched:
        if type(model) is not nn.Sequential:
            patched.setattr(type(model), "forward", lambda self, x: x - x.mean(0))
            assert not apart(model, 4)
    assert apart(model, 4)
    place = next(place for place, layer in model.named_modules() if isinstance(layer, nn.Linear))
    model.set_submodule(place, Between(nn.Identity()))
    assert not apart(model, 4)


def _mixing(values):
    return values - values.mean(0, keepdim=True)


def _small_resnet():
    let_torchvision_import()
    resnet = importlib.import_module("torchvision.models.resnet")
    return resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=3).double().eval()


def _own_convolution(model, patch):
    patch.setattr(model.conv1, "_conv_forward", lambda x, w, b: _mixing(F.conv2d(x, w, b, 2, 3)))


def _convolutions(model, patch):
    usual = nn.Conv2d._conv_forward
    patch.setattr(nn.Conv2d, "_conv_forward", lambda self, x, w, b: _mixing(usual(self, x, w, b)))


def _own_call(model, patch):
    patch.setitem(vars(model.fc), "_call_impl", lambda x: _mixing(F.linear(x, model.fc.weight)))


def _calls(model, patch):
    usual = nn.Linear.__call__
    patch.setattr(nn.Linear, "__call__", lambda self, x: _mixing(usual(self, x)))


def _wrapped(model, patch):
    kind = type(model.layer1[0])
    usual = kind.forward
    patch.setattr(kind, "forward", functools.wraps(usual)(lambda self, x: _mixing(usual(self, x))))


def _function_for_a_part(model, patch):
    del model.avgpool
    model.avgpool = lambda x: _mixing(F.adaptive_avg_pool2d(x, 1))


def _hidden_part(model, patch):
    class Pool(nn.Module):
        def forward(self, x):
            return _mixing(F.adaptive_avg_pool2d(x, 1))

    del model.avgpool
    object.__setattr__(model, "avgpool", Pool())


CHANGES = [
    *(_own_convolution, _convolutions, _own_call, _calls, _wrapped),
    *(_function_for_a_part, _hidden_part),
]


@pytest.mark.parametrize("change", CHANGES)
def test_samples_that_somebody_mixes_in_a_common_network_are_noticed(change, monkeypatch):
    model, x = _small_resnet(), drawn(4, 3, 32, 32)
    assert apart(model, 4)
    change(model, monkeypatch)
    assert not apart(model, 4)
    with pytest.raises(UnsupportedOperation, match="depends on the other samples"):
        METHODS["guided"](model, x, TARGETS)


def test_layers_that_would_take_tokens_for_pictures_are_not_sure():
    model = initialise("vit", 3, 0)
    assert apart(model, 4)
    model.blocks[1].dense.append(nn.AdaptiveAvgPool2d((65, 128)))
    assert not apart(model, 4)


def test_padding_that_moves_rows_of_flat_pictures_mixes_samples():
    model = nn.Sequential(nn.Flatten(), nn.ZeroPad2d((0, 0, 1, -1)), nn.Linear(48, 3)).double().eval()
    assert not apart(model, 4)
    with pytest.raises(UnsupportedOperation):
        METHODS["guided"](model, drawn(4, 3, 4, 4), TARGETS)


def test_sums_of_pictures_and_flat_ones_are_sums_of_all_with_all():
    block = Block(3, 3, 1)
    block.around = nn.Flatten()
    assert not apart(nn.Sequential(block, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3)), 4)


def test_batch_statistics_are_refused():
    x = drawn(4, 6, seed=1)
    for norm in (
        nn.BatchNorm1d(5).double().train(),
        nn.BatchNorm1d(5, track_running_stats=False).double().eval(),
    ):
        for method in METHODS.values():
            with pytest.raises(UnsupportedOperation, match="mixes samples"):
                method(Between(norm), x, TARGETS)


def test_samples_in_the_second_dimension_are_not_mixed():
    class Second(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 3)
            self.double()

        def forward(self, x):  # (N, T, D) -> (T, N, D); the mean over dimension 0 is one over tokens
            return self.b(F.relu(self.a(x.transpose(0, 1))).mean(0))

    for method in METHODS.values():
        assert method(Second(), drawn(4, 7, 6), TARGETS).abs().sum() > 0


# -- values that leave the path --------------------------------------------------------------------------


def without_grad(x):
    with torch.no_grad():
        gate = x.sigmoid()
    return x * gate


CUT = {
    "gate": lambda x: x * x.sigmoid().detach(),
    "data": lambda x: x * x.data,
    "no grad": without_grad,
    "offset": lambda x: x - x.detach().mean(-1, keepdim=True),
    "in place": lambda x: x.clone().mul_(x.detach()),
}


@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize("method", ["lrp", "attn-lrp", "rescale", "reveal-cancel"])
def test_detached_values_are_refused(method, name):
    with pytest.raises(UnsupportedOperation, match="detach"):
        METHODS[method](Between(CUT[name]), drawn(4, 6, seed=1), TARGETS)


MASKS = {
    "boolean": lambda x: x * (x > 0),
    "of a detached value": lambda x: x * (x.detach() > 0).to(x.dtype),
    "where": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "masked fill": lambda x: x.masked_fill(x.data < 0, 0.0),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_constants_under_lrp(name):
    x = drawn(4, 6, seed=1)
    for method in ("lrp", "attn-lrp"):
        wanted = METHODS[method](Between(F.relu), x, TARGETS)
        assert error(METHODS[method](Between(MASKS[name]), x, TARGETS), wanted) < 1e-14


def test_a_detached_value_that_is_only_looked_at_is_legal():
    def logging(x):
        assert x.detach().abs().max() < 1e9
        (x.detach() * 2).sum().item()
        return F.relu(x)

    x = drawn(4, 6, seed=1)
    for method in METHODS.values():
        assert error(method(Between(logging), x, TARGETS), method(Between(F.relu), x, TARGETS)) < 1e-14


# -- branches --------------------------------------------------------------------------------------------

WEIGHTS = drawn(2, 5, 5, seed=4)
BRANCHES = {
    "other function": (lambda x: F.relu(x) if bool(x.sum() > 0) else torch.tanh(x), "branches"),
    "fewer steps": (lambda x: x if x.sum() > 0 else F.relu(x), "branches"),
    "other weights": (lambda x: F.linear(x, WEIGHTS[0] if x.sum() > 0 else WEIGHTS[1]), "branches"),
    "index": (lambda x: F.linear(x, WEIGHTS[int(x.sum() > 0)]), "add up"),
    "fewer steps, by index": (lambda x: [torch.clone, F.relu][int(x.sum() > 0)](x), "nothing on the input"),
    "number": (lambda x: x * x.sum().item(), "add up"),
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("reveal", [False, True], ids=["rescale", "reveal-cancel"])
def test_deeplift_refuses_to_compare_two_branches(name, reveal):
    function, reason = BRANCHES[name]
    x = drawn(1, 6, seed=1) + 0.3
    model = Between(function)
    assert (model.a(x).sum() > 0) != (model.a(-10 * x).sum() > 0)
    with pytest.raises(UnsupportedOperation, match=reason) as caught:
        deeplift(model, x, -10 * x, TARGETS[:1], reveal)
    assert "\n" not in str(caught.value)


# -- RevealCancel behind sums and pooling ----------------------------------------------------------------


class Summed(nn.Module):
    """ReLU behind a sum of two dense layers: the same function as behind one dense layer."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.register_buffer("w", drawn(6, 4, seed=1))
        self.register_buffer("last", drawn(3, 6, seed=2))

    def forward(self, x):
        a, b = x[:, :1] * self.w[:, 0], x[:, 1:2] * self.w[:, 1]
        if self.how == "one layer":
            y = F.linear(x[:, :2], self.w[:, :2])
        elif self.how == "sum":
            y = a + b
        elif self.how == "in place":
            y = a.clone()
            y += b
        else:
            y = a - (-b)
        return F.linear(F.relu(y), self.last)


@pytest.mark.parametrize("how", ["sum", "in place", "difference"])
def test_reveal_cancel_sees_a_sum_as_a_layer(how):
    x, baseline = drawn(4, 2), drawn(4, 2, seed=7)
    wanted = deeplift(Summed("one layer"), x, baseline, TARGETS, True)
    assert (
        error(wanted, deeplift(Summed("one layer"), x, baseline, TARGETS)) > 1e-2
    )  # Rescale is another rule
    assert error(deeplift(Summed(how), x, baseline, TARGETS, True), wanted) < 1e-13


def test_reveal_cancel_sees_pooling_as_a_layer():
    class Pooled(nn.Module):
        def __init__(self, pool):
            super().__init__()
            self.pool, self.last = pool, drawn(3, 4, seed=2)

        def forward(self, x):
            return F.linear(F.relu(self.pool(x)).flatten(1), self.last)

    x, baseline = drawn(4, 1, 4, 4), drawn(4, 1, 4, 4, seed=7)
    weight = torch.full((1, 1, 2, 2), 0.25, dtype=torch.float64)
    wanted = deeplift(Pooled(lambda x: F.conv2d(x, weight, stride=2)), x, baseline, TARGETS, True)
    assert error(deeplift(Pooled(lambda x: F.avg_pool2d(x, 2)), x, baseline, TARGETS, True), wanted) < 1e-13
    assert error(deeplift(Pooled(lambda x: F.avg_pool2d(x, 2)), x, baseline, TARGETS), wanted) > 1e-2


def test_reveal_cancel_on_a_residual_network_is_one_map_in_both_spellings():
    class Twice(nn.Module):
        def __init__(self, over):
            super().__init__()
            torch.manual_seed(0)
            self.over, self.a, self.b = over, nn.Linear(6, 6).double(), nn.Linear(6, 6).double()

        def forward(self, x):
            y = self.b(F.relu(self.a(x)))
            if self.over:
                y += x
                return F.relu_(y)
            return F.relu(y + x)

    x, baseline = drawn(4, 6), drawn(4, 6, seed=7)
    wanted = deeplift(Twice(False), x, baseline, TARGETS, True)
    assert error(deeplift(Twice(True), x, baseline, TARGETS, True), wanted) < 1e-14


# -- normalisation, gates, einsum ------------------------------------------------------------------------

EXACT = {
    "softmax": lambda x: x.softmax(-1),
    "log-softmax": lambda x: F.log_softmax(x, dim=1),
    "layer norm": lambda x: F.layer_norm(x, (5,), drawn(5), drawn(5, seed=1)),
    "rms norm": lambda x: F.rms_norm(x, (5,)),
    "group norm": lambda x: F.group_norm(x, 5 if x.dim() > 2 else 1),
    "quotient": lambda x: x / (1 + x.exp().sum(1, keepdim=True)),
    "reciprocal": lambda x: 1 / (1 + x.exp()),
    "product": lambda x: x * x.sigmoid(),
    "bilinear": lambda x: (x[:, :, None] @ x[:, None]).sum(1),
    "einsum": lambda x: torch.einsum("bi,bj->bj", x, x.tanh()),
    "einsum with a constant": lambda x: torch.einsum("bi,ij->bj", x, drawn(5, 5)),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("reveal", [False, True], ids=["rescale", "reveal-cancel"])
def test_deeplift_is_exact_through(name, reveal):
    model, x, baseline = Between(EXACT[name]), drawn(4, 6), drawn(4, 6, seed=7)
    baseline[:, 2] = x[:, 2]
    change = (model(x) - model(baseline)).gather(1, TARGETS[:, None])[:, 0].detach()
    assert error(deeplift(model, x, baseline, TARGETS, reveal).sum(1), change) < 1e-11
    same = deeplift(model, x, x, TARGETS, reveal)
    assert bool((same == 0).all())


def test_multipliers_are_the_gradient_where_nothing_changes():
    for name in ("softmax", "log-softmax", "layer norm", "quotient", "einsum"):
        model, x = Between(EXACT[name]), drawn(4, 6)
        step = 1e-6 * drawn(4, 6, seed=3)
        point = x.clone().requires_grad_()
        slope = torch.autograd.grad(model(point).gather(1, TARGETS[:, None]).sum(), point)[0]
        assert error(deeplift(model, x, x - step, TARGETS), slope * step) < 1e-4, name


class Product(nn.Module):
    """A signal times a gate between two dense layers without bias."""

    def __init__(self, how):
        super().__init__()
        self.how, self.a, self.b = how, drawn(5, 6, seed=1), drawn(3, 5, seed=2)

    def forward(self, x):
        y = x @ self.a.T
        if self.how == "silu":
            y = y * y.sigmoid()
        elif self.how == "reshaped":
            y = y.sigmoid().unsqueeze(2).squeeze(2) * y
        elif self.how == "squeezed":
            y = y * F.hardsigmoid(y.mean(1, keepdim=True)).expand_as(y)
        elif self.how == "tanh":
            y = y * y.tanh()
        elif self.how == "halves of tanh":
            y = (y * y.tanh().detach() + y.detach() * (y * (y.tanh() / y).detach())) / 2
        elif self.how == "frozen squeezed":
            y = y * F.hardsigmoid(y.mean(1, keepdim=True)).detach()
        else:
            y = y * y.sigmoid().detach()
        return y @ self.b.T


@pytest.mark.parametrize(
    ("how", "frozen", "engine"),
    [
        ("silu", "frozen", LRP),
        ("reshaped", "frozen", LRP),
        ("squeezed", "frozen squeezed", LRP),
        ("tanh", "halves of tanh", AttentionLRP),
    ],
)
def test_products_hand_relevance_to_the_signal_or_to_both_halves(how, frozen, engine):
    x, point = drawn(4, 6), drawn(4, 6).requires_grad_()
    zero = Composite(rules.epsilon(0), rules.epsilon(0), pool=rules.epsilon(0), eps=0)
    wanted = torch.autograd.grad(Product(frozen)(point).gather(1, TARGETS[:, None]).sum(), point)[0] * x
    assert error(propagate(engine(zero), Product(how), x, TARGETS, "output")[0], wanted) < 1e-12


def test_products_of_two_signals_are_refused_by_plain_lrp():
    with pytest.raises(UnsupportedOperation, match="attn-lrp"):
        METHODS["lrp"](Product("tanh"), drawn(4, 6), TARGETS)


def test_smooth_activations_in_place_under_guided_backprop():
    for inside, outside in ((nn.SiLU(True), nn.SiLU()), (nn.Hardswish(True), nn.Hardswish())):
        x = drawn(4, 6)
        wanted = METHODS["guided"](Between(outside), x, TARGETS)
        assert error(METHODS["guided"](Between(inside), x, TARGETS), wanted) < 1e-14


def test_arguments_by_name():
    w, b = drawn(5, 5), drawn(5, seed=1)
    for named, usual in (
        (lambda x: F.linear(input=x, weight=w, bias=b), lambda x: F.linear(x, w, b)),
        (lambda x: torch.add(input=x, other=b), lambda x: x + b),
        (lambda x: torch.mul(x, other=b), lambda x: x * b),
        (lambda x: torch.mm(x, mat2=w), lambda x: x @ w),
        (
            lambda x: F.batch_norm(x, running_mean=b, running_var=b.abs(), weight=b),
            lambda x: F.batch_norm(x, b, b.abs(), b),
        ),
    ):
        for method in METHODS.values():
            x = drawn(4, 6)
            assert error(method(Between(named), x, TARGETS), method(Between(usual), x, TARGETS)) < 1e-14


# -- devices ---------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_gpu_gives_the_maps_of_the_cpu(method):
    for make, size in ((plain, 14), (residual, 32), (Transformer, 16)):
        if make is Transformer and method == "lrp":
            continue
        model, x = make(), drawn(4, 3, size, size)
        wanted = METHODS[method](model, x, TARGETS)
        found = METHODS[method](model.cuda(), x.cuda(), TARGETS.cuda())
        assert found.is_cuda
        assert error(found.cpu(), wanted) < 1e-9
        with torch.autocast("cuda", torch.float16):
            assert error(METHODS[method](model, x.cuda(), TARGETS.cuda()).cpu(), wanted) < 1e-9


@pytest.mark.gpu
@pytest.mark.slow  # VGG16 in double precision
def test_a_gpu_breaks_ties_of_flat_pictures_as_the_cpu_does():
    """In a box all windows are the same, and of equals a pooling takes the first: no noise may decide."""
    cases = verax.task("textbox/simple-nr").cases(n=1)
    model = initialise("vgg16", 2, 0).eval()
    maps = {
        device: verax.explain(
            copy.deepcopy(model).to(device, dtype),
            cases.inputs.to(device, dtype),
            cases.targets.to(device),
            method="integrated-gradients@published",
        ).cpu()
        for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32))
    }
    assert error(maps["cuda"], maps["cpu"]) < 0.01


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in REGISTERED if name not in ("oracle", "exact-additive")])
def test_a_gpu_gives_the_maps_of_the_cpu_for_every_method(name):
    """Through `verax.explain`, on each kind of network that the method takes, drawn numbers included."""
    taken = 0
    for make, size in ((plain, 14), (residual, 32), (Transformer, 16)):
        model, x = make(), drawn(4, 3, size, size)
        fewer = {"size": 16} if name == "exact-shapley" and size == 32 else {}
        try:
            wanted = verax.explain(model, x, TARGETS, method=name, **fewer)
        except VeraxError:
            continue
        taken += 1
        found = verax.explain(model.cuda(), x.cuda(), TARGETS.cuda(), method=name, **fewer)
        assert found.is_cuda
        assert (found.cpu() - wanted).norm() <= 1e-5 * wanted.norm()  # a rectified map may be empty
    assert taken
