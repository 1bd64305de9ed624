"""The rule engine against zennit, Captum, definitions and axioms (float64)."""

import captum.attr as captum
import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from spellings import SPELLINGS, Between, Spelled, plain, residual
from verax.engine import multipliers, rules
from verax.engine.multipliers import Rectified, deeplift, rectified
from verax.engine.passes import propagate
from verax.engine.relevance import LRP, Composite, deep_taylor
from verax.errors import UnsupportedOperation
from verax.networks.anatomy import apart

TARGETS = torch.tensor([0, 1, 2, 3, 4, 0])


def drawn(*shape, seed=0, normal=True):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        x = torch.randn(*shape, dtype=torch.float64) if normal else torch.rand(*shape, dtype=torch.float64)
    if len(shape) == 4:
        x[:, :, :5] = 0  # exact zeros, as on a black background
    return x


def error(a, b):
    return float((a - b).norm() / b.norm())


def lrp(model, x, targets, composite, start="output"):
    return propagate(LRP(composite), model, x, targets, start)[0]


def chosen(model, x, targets):
    return model(x).gather(1, targets[:, None])[:, 0].detach()


def everywhere(rule, first=None, **more):
    return Composite(conv=rule, dense=rule, first=first, **more)


# -- LRP against zennit ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def zennit():
    # a registry torchvision, which zennit imports, needs these operators beside a CPU-only torch
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import zennit.attribution
    import zennit.composites
    import zennit.rules
    import zennit.types

    return zennit


RULES = {
    "epsilon 1e-6": (lambda: rules.epsilon(1e-6), lambda z: z.Epsilon(1e-6), None),
    "epsilon 0.1": (lambda: rules.epsilon(0.1), lambda z: z.Epsilon(0.1), None),
    "gamma": (lambda: rules.gamma(0.25), lambda z: z.Gamma(0.25), None),
    "alpha 1 beta 0": (lambda: rules.alpha_beta(1, 0), lambda z: z.AlphaBeta(1, 0), None),
    "alpha 2 beta 1": (lambda: rules.alpha_beta(2, 1), lambda z: z.AlphaBeta(2, 1), None),
    "flat": (lambda: rules.flat(), lambda z: z.Flat(), None),
    "flat first": (lambda: rules.epsilon(), lambda z: z.Epsilon(), ("flat", lambda z: z.Flat())),
    "w2 first": (
        lambda: rules.epsilon(),
        lambda z: z.Epsilon(),
        ("w_square", lambda z: z.WSquare(zero_params="bias")),
    ),
    "z-box first": (
        lambda: rules.alpha_beta(1, 0),
        lambda z: z.ZPlus(),
        ("z_box", lambda z: z.ZBox(0.0, 1.0)),
    ),
}


def with_zennit(zennit, model, x, targets, rule, first):
    base = zennit.composites.layer_map_base(1e-6)
    base += [(zennit.types.Convolution, rule(zennit.rules)), (nn.Linear, rule(zennit.rules))]
    composite = zennit.composites.LayerMapComposite(base)
    if first is not None:
        special = [(zennit.types.Linear, first[1](zennit.rules))]
        composite = zennit.composites.SpecialFirstLayerMapComposite(base, special)

    def start(out):
        return torch.zeros_like(out).scatter_(1, targets[:, None], 1.0) * out

    with zennit.attribution.Gradient(model, composite) as attributor:
        return attributor(x.clone(), start)[1].detach()


def folded(model):
    """Batch normalisation folded by PyTorch; zennit's own canonizer is off by 1e-5."""
    layers = []
    for layer in model:
        if isinstance(layer, nn.BatchNorm2d):
            layers[-1] = fuse_conv_bn_eval(layers[-1], layer)
        elif isinstance(layer, nn.BatchNorm1d):
            layers[-1] = fuse_linear_bn_eval(layers[-1], layer)
        else:
            layers.append(layer)
    return nn.Sequential(*layers)


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "batch norm"])
@pytest.mark.parametrize("pool", ["max", "avg"])
@pytest.mark.parametrize("name", RULES)
def test_lrp_equals_zennit(zennit, name, pool, norm):
    ours, theirs, first = RULES[name]
    model = plain(pool=pool, norm=norm)
    x = drawn(6, 3, 14, 14, normal="box" not in name)
    special = {"flat": rules.flat, "w_square": rules.w_square, "z_box": lambda: rules.z_box(0.0, 1.0)}
    composite = everywhere(ours(), special[first[0]]() if first else None)
    reference = with_zennit(zennit, folded(model), x, TARGETS, theirs, first)
    assert error(lrp(model, x, TARGETS, composite), reference) < 1e-14


@pytest.mark.parametrize(("alpha", "beta"), [(1, 0), (2, 1)])
def test_presets_equal_zennit_composites(zennit, alpha, beta):
    model, x = plain(), drawn(6, 3, 14, 14)
    composite = Composite(rules.alpha_beta(alpha, beta), rules.epsilon(), rules.flat())
    theirs = {1: zennit.composites.EpsilonPlusFlat, 2: zennit.composites.EpsilonAlpha2Beta1Flat}[alpha]

    def start(out):
        return torch.zeros_like(out).scatter_(1, TARGETS[:, None], 1.0) * out

    with zennit.attribution.Gradient(model, theirs()) as attributor:
        reference = attributor(x.clone(), start)[1].detach()
    assert error(lrp(model, x, TARGETS, composite), reference) < 1e-14


NETWORKS = {
    "conv1d, groups, same": (
        lambda: (nn.Conv1d(4, 6, 4, padding="same", groups=2), nn.Linear(60, 3)),
        (4, 10),
    ),
    "conv3d, dilated": (lambda: (nn.Conv3d(2, 3, 2, dilation=2), nn.Linear(81, 3)), (2, 5, 5, 5)),
    "transposed": (lambda: (nn.ConvTranspose2d(3, 4, 3, 2, output_padding=1), nn.Linear(256, 3)), (3, 3, 3)),
    "circular": (
        lambda: (nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.Linear(64, 3)),
        (3, 4, 4),
    ),
    "dense on a sequence": (lambda: (nn.Linear(4, 5), nn.Linear(15, 3)), (3, 4)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_linear_call(name):
    make, shape = NETWORKS[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        first, last = make()
        x = torch.randn(4, *shape, dtype=torch.float64)
    model = nn.Sequential(first, nn.ReLU(), nn.Flatten(), last).double().eval()
    targets = torch.tensor([0, 1, 2, 0])
    zero = everywhere(rules.epsilon(0), pool=rules.epsilon(0), eps=0)
    assert error(lrp(model, x, targets, zero), times_gradient(model, x, targets)) < 1e-13
    for reveal in (False, True):
        contributions = deeplift(model, x, torch.full_like(x, 0.2), targets, reveal)
        change = chosen(model, x, targets) - chosen(model, torch.full_like(x, 0.2), targets)
        assert error(contributions.flatten(1).sum(1), change) < 1e-12


def times_gradient(model, x, targets):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(model(leaf).gather(1, targets[:, None]).sum(), leaf)[0] * x


# -- axioms on residual networks -------------------------------------------------------------------------


def test_lrp_z_is_input_times_gradient_on_a_residual_network():
    model, x, targets = residual(), drawn(5, 3, 32, 32), torch.tensor([0, 1, 2, 3, 0])
    zero = everywhere(rules.epsilon(0), pool=rules.epsilon(0), eps=0)
    assert error(lrp(model, x, targets, zero), times_gradient(model, x, targets)) < 1e-12


@pytest.mark.parametrize("rule", [rules.epsilon(0), rules.alpha_beta(2, 1, eps=0), rules.gamma(0.3, eps=0)])
def test_relevance_is_conserved_without_bias(rule):
    model, x, targets = residual(bias=False), drawn(5, 3, 32, 32), torch.tensor([0, 1, 2, 3, 0])
    result = lrp(model, x, targets, everywhere(rule, pool=rules.epsilon(0), eps=0))
    assert error(result.flatten(1).sum(1), chosen(model, x, targets)) < 1e-9


@pytest.mark.parametrize("reveal", [False, True], ids=["rescale", "reveal-cancel"])
@pytest.mark.parametrize("make", [plain, residual], ids=["plain", "residual"])
def test_deeplift_contributions_add_up(make, reveal):
    model = make()
    x = drawn(5, 3, 14, 14) if make is plain else drawn(5, 3, 32, 32)
    targets = torch.tensor([0, 1, 2, 3, 0])
    for baseline in (torch.zeros_like(x), drawn(*x.shape, seed=9)):
        change = chosen(model, x, targets) - chosen(model, baseline, targets)
        assert error(deeplift(model, x, baseline, targets, reveal).flatten(1).sum(1), change) < 1e-10


def test_captum_is_wrong_where_we_are_right():
    model, x, baseline = plain(), drawn(6, 3, 14, 14), drawn(6, 3, 14, 14, seed=9)
    change = chosen(model, x, TARGETS) - chosen(model, baseline, TARGETS)
    theirs = captum.DeepLift(model).attribute(x, baseline, target=TARGETS).flatten(1).sum(1).detach()
    assert error(theirs, change) > 0.1
    assert error(deeplift(model, x, baseline, TARGETS).flatten(1).sum(1), change) < 1e-12


# -- spellings -------------------------------------------------------------------------------------------

METHODS = {
    "epsilon": lambda m, x: lrp(m, x, TARGETS, everywhere(rules.epsilon(0.1))),
    "preset b": lambda m, x: lrp(
        m, x, TARGETS, Composite(rules.alpha_beta(2, 1), rules.epsilon(), rules.flat())
    ),
    "deep taylor": lambda m, x: lrp(m, x.abs(), TARGETS, deep_taylor(0.0, 5.0), "relu"),
    "rescale": lambda m, x: deeplift(m, x, torch.full_like(x, 0.1), TARGETS),
    "reveal-cancel": lambda m, x: deeplift(m, x, torch.full_like(x, 0.1), TARGETS, True),
    "guided": lambda m, x: propagate(Rectified(True), m, x, TARGETS)[0],
    "deconvnet": lambda m, x: propagate(Rectified(False), m, x, TARGETS)[0],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("method", METHODS)
def test_spellings_give_identical_maps(method, spelling):
    model, x = plain(), drawn(6, 3, 14, 14)
    wanted = METHODS[method](model, x)
    assert wanted.abs().sum() > 0
    assert error(METHODS[method](Spelled(model, spelling), x), wanted) < 1e-14


@pytest.mark.parametrize("method", METHODS)
def test_maps_do_not_depend_on_the_batch(method):
    model, x = plain(), drawn(6, 3, 14, 14)
    whole = METHODS[method](model, x)
    again = METHODS[method](model, x.flip(0).flip(0).clone())
    assert torch.equal(whole, again)


CURVES = {
    "ReLU": lambda: [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU()],
    "in place": lambda: [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)],
    "twice": lambda: [nn.Conv2d(3, 4, 3), *[nn.ReLU()] * 2, nn.Conv2d(4, 4, 3)],
    "ReLU6": lambda: [nn.Conv2d(3, 4, 3), nn.ReLU6(), nn.Conv2d(4, 4, 3), nn.ReLU()],
    "leaky": lambda: [nn.Conv2d(3, 4, 3), nn.LeakyReLU(0.0), nn.Conv2d(4, 4, 3), nn.LeakyReLU(0.1)],
    "smooth": lambda: [nn.Conv2d(3, 4, 3), nn.GELU(), nn.Conv2d(4, 4, 3), nn.ELU(inplace=True), nn.ReLU()],
    "frozen": lambda: [nn.Conv2d(3, 4, 3).requires_grad_(False), nn.ReLU(inplace=True)],
}


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("name", CURVES)
def test_rules_in_the_modules_of_known_networks_are_those_of_the_engine(name, gate, monkeypatch):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = nn.Sequential(*CURVES[name](), nn.Flatten(), nn.LazyLinear(3)).double().eval()
        x = torch.randn(9, 3, 8, 8).double()
        model(x)
    model[-1] = nn.Linear(model[-1].in_features, 3).double()  # no longer a lazy one
    before = [dict(module.__dict__) for module in model.modules()]
    targets = torch.arange(9) % 3
    assert apart(model, 4)
    found = rectified(model, x, targets, gate)
    wanted = propagate(Rectified(gate), model, x, targets)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)
    assert [dict(module.__dict__) for module in model.modules()] == before
    monkeypatch.setattr(multipliers, "apart", lambda *_: False)
    torch.testing.assert_close(rectified(model, x, targets, gate), wanted)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([nn.ReLU(), nn.Linear(5, 2)], "shapes cannot be multiplied"),
        ([nn.Sigmoid(), nn.ReLU(inplace=True), nn.Linear(3, 2)], "modified by an inplace operation"),
    ],
)
def test_rules_in_modules_are_taken_out_again_whatever_happens(layers, words):
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), *layers)
    with pytest.raises(RuntimeError, match=words):
        rectified(model, torch.rand(2, 4), torch.zeros(2, dtype=torch.long), True)
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_rectified_signals_equal_captum():
    model, x = plain(), drawn(6, 3, 14, 14)
    guided = captum.GuidedBackprop(model).attribute(x, target=TARGETS).detach()
    deconv = captum.Deconvolution(model).attribute(x, target=TARGETS).detach()
    assert error(METHODS["guided"](model, x), guided) < 1e-14
    assert error(METHODS["deconvnet"](model, x), deconv) < 1e-14


def test_relu6_is_a_rectifier():
    model = Between(nn.ReLU6())
    x, targets = drawn(30, 6, seed=2) * 10, torch.arange(30) % 3
    y = model.a(x)
    open_ = (y > 0) & (y < 6)
    assert (y > 6).any()
    signal = model.b.weight[targets].clamp_min(0) * open_
    assert error(propagate(Rectified(True), model, x, targets)[0], (signal @ model.a.weight).detach()) < 1e-14


def test_rescale_equals_captum_without_pooling():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU(), nn.Flatten())
        model = model.append(nn.Linear(200, 5)).double().eval()
    x, baseline = drawn(6, 3, 14, 14), drawn(6, 3, 14, 14, seed=9)
    theirs = captum.DeepLift(model).attribute(x, baseline, target=TARGETS).detach()
    assert error(deeplift(model, x, baseline, TARGETS), theirs) < 1e-14


# -- definitions, by loops -------------------------------------------------------------------------------


def reveal_cancel_by_loops(layers, x, x0, target):
    """Two-channel multipliers of the DeepLIFT paper, one sample, scalar arithmetic."""
    values = [(x, x0)]
    plus, minus = [np.maximum(x - x0, 0)], [np.minimum(x - x0, 0)]
    for kind, *weights in layers:
        (a, a0), p_in, n_in = values[-1], plus[-1], minus[-1]
        if kind == "dense":
            w, b = weights
            out, out0 = b + w @ a, b + w @ a0
            share = w * (a - a0)
            p, n = np.maximum(share, 0).sum(1), np.minimum(share, 0).sum(1)
        else:
            out, out0 = np.maximum(a, 0), np.maximum(a0, 0)
            f0, fp, fn, fb = (np.maximum(a0 + d, 0) for d in (0, p_in, n_in, p_in + n_in))
            p, n = 0.5 * (fp - f0) + 0.5 * (fb - fn), 0.5 * (fn - f0) + 0.5 * (fb - fp)
        values.append((out, out0))
        plus.append(p)
        minus.append(n)
    up = np.zeros(len(values[-1][0]))
    up[target] = 1.0
    down = up.copy()
    for place in reversed(range(len(layers))):
        kind, *weights = layers[place]
        (a, a0) = values[place]
        if kind == "dense":
            w, new = weights[0], np.zeros(len(a))
            for i in range(len(a)):
                for j in range(len(w)):
                    d = a[i] - a0[i]
                    m = 0.5 * (up[j] + down[j]) if d == 0 else up[j] if w[j, i] * d > 0 else down[j]
                    new[i] += w[j, i] * m
            up, down = new, new.copy()
        else:
            with np.errstate(divide="ignore", invalid="ignore"):
                up = up * np.where(plus[place] == 0, 0, plus[place + 1] / plus[place])
                down = down * np.where(minus[place] == 0, 0, minus[place + 1] / minus[place])
    return up * np.maximum(x - x0, 0) + down * np.minimum(x - x0, 0)


@pytest.mark.parametrize("seed", range(6))
def test_reveal_cancel_equals_its_definition(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        dense = [nn.Linear(7, 9), nn.Linear(9, 8), nn.Linear(8, 4)]
        for layer in dense:
            layer.double().bias.data.uniform_(-0.5, 0.5)
        x = torch.randn(3, 7, dtype=torch.float64)
        x0 = torch.randn(3, 7, dtype=torch.float64) * (seed % 2)
    x[0, 2], x[1, 3] = x0[0, 2], x0[1, 3]
    model = nn.Sequential(dense[0], nn.ReLU(), dense[1], nn.ReLU(inplace=True), dense[2])
    layers = []
    for layer in dense:
        layers += [("dense", layer.weight.detach().numpy(), layer.bias.detach().numpy()), ("relu",)]
    targets = torch.tensor([0, 3, 2])
    ours = deeplift(model, x, x0, targets, reveal_cancel=True)
    for k in range(3):
        wanted = reveal_cancel_by_loops(layers[:-1], x[k].numpy(), x0[k].numpy(), int(targets[k]))
        np.testing.assert_allclose(ours[k].numpy(), wanted, rtol=1e-11, atol=1e-13)


def test_reveal_cancel_on_the_minimum_of_two():
    weight = torch.tensor([[1.0, -1.0]], dtype=torch.float64)

    class Minimum(nn.Module):
        def forward(self, x):
            return x[:, :1] - F.relu(F.linear(x, weight))

    x = torch.tensor([[3.0, 1.0], [1.0, 3.0]], dtype=torch.float64)
    targets = torch.tensor([0, 0])
    both = deeplift(Minimum(), x, torch.zeros_like(x), targets, reveal_cancel=True)
    np.testing.assert_allclose(both, [[0.5, 0.5], [0.5, 0.5]])
    one = deeplift(Minimum(), x, torch.zeros_like(x), targets)
    np.testing.assert_allclose(one, [[0, 1], [1, 0]])


def matrix(conv, shape):
    """A convolution written out."""
    size = int(np.prod(shape))
    basis = torch.eye(size, dtype=torch.float64).reshape(size, *shape)
    out = F.conv2d(basis, conv.weight, None, conv.stride).detach()
    bias = conv.bias.detach()[:, None, None].expand(out.shape[1:]).reshape(-1)
    return out.reshape(size, -1).T.numpy(), bias.numpy(), out.shape[1:]


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_deep_taylor_equals_its_definition(seed, bounded):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        c1, c2 = nn.Conv2d(2, 4, 3, stride=2).double(), nn.Conv2d(4, 6, 2).double()
        l1, l2 = nn.Linear(24, 12).double(), nn.Linear(12, 3).double()
        x = torch.rand(4, 2, 7, 7, dtype=torch.float64)
    l2.bias.data += 0.3
    x[:, :, :3] = 0
    model = nn.Sequential(c1, nn.ReLU(), c2, nn.ReLU(), nn.Flatten(), l1, nn.ReLU(), l2)
    w1, b1, shape = matrix(c1, (2, 7, 7))
    w2, b2, _ = matrix(c2, shape)
    layers = [(w1, b1), (w2, b2)]
    layers += [(layer.weight.detach().numpy(), layer.bias.detach().numpy()) for layer in (l1, l2)]
    targets = torch.tensor([0, 1, 2, 0])
    composite = deep_taylor(0.0, 1.0) if bounded else deep_taylor(None, None)
    ours = lrp(model, x, targets, composite, "relu").flatten(1).numpy()
    for k in range(4):
        acts = [x[k].numpy().ravel()]
        for place, (w, b) in enumerate(layers):
            z = w @ acts[-1] + b
            acts.append(np.maximum(z, 0) if place < 3 else z)
        r = np.zeros(3)
        r[targets[k]] = max(acts[-1][targets[k]], 0)
        for place in (3, 2, 1, 0):
            w, a = layers[place][0], acts[place]
            if place:
                parts = a * np.maximum(w, 0)
            elif bounded:
                parts = a * w - np.minimum(w, 0)
            else:
                parts = w**2
            below = parts.sum(1, keepdims=True)
            share = np.divide(parts, below, out=np.zeros_like(parts), where=below != 0)
            r = (share * r[:, None]).sum(0)
        np.testing.assert_allclose(ours[k], r, rtol=1e-11, atol=1e-14)


def test_deep_taylor_shares_means_by_their_parts_and_merges_batch_normalisation():
    with torch.random.fork_rng():
        torch.manual_seed(2)
        conv, norm, dense = nn.Conv2d(2, 3, 3, bias=False), nn.BatchNorm2d(3), nn.Linear(3, 2)
        norm.weight.data.uniform_(-1.5, 1.5)
        norm.bias.data.uniform_(-0.5, 0.5)
        norm.running_mean.uniform_(-0.3, 0.3)
        norm.running_var.uniform_(0.5, 2)
    dense.bias.data += 1
    x, targets = torch.rand(3, 2, 6, 6, dtype=torch.float64), torch.tensor([0, 1, 0])
    pooled = (
        nn.Sequential(conv, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), dense).double().eval()
    )
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    # the same function: one convolution, and a dense layer that takes the mean
    plain = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)).double()
    plain[0].weight.data = conv.weight.data * scale.data[:, None, None, None]
    plain[0].bias.data = (norm.bias - norm.running_mean * scale).data
    plain[3].weight.data = dense.weight.data.repeat_interleave(16, 1) / 16
    plain[3].bias.data = dense.bias.data
    torch.testing.assert_close(pooled(x), plain(x))
    found, wanted = (lrp(model, x, targets, deep_taylor(0.0, 1.0), "relu") for model in (pooled, plain))
    assert wanted.abs().max() > 0
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-13)


SIGNED = {
    "enlarged": lambda: [nn.Upsample(scale_factor=2)],
    "mean of places": lambda: [nn.AvgPool2d(2), nn.Upsample(scale_factor=4)],
    "curved": lambda: [nn.Conv2d(2, 2, 3, padding=1), nn.Tanh(), nn.AdaptiveAvgPool2d(12)],
}
NORMED = {
    "behind pooling": lambda: [nn.Conv2d(2, 4, 3), nn.MaxPool2d(2), nn.BatchNorm2d(4), nn.ReLU()],
    "behind a ReLU": lambda: [nn.Conv2d(2, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.ReLU()],
}


def test_deep_taylor_shares_sums_of_nothing_evenly_whatever_lies_beside_them():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.AvgPool2d(2), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)]
        model = nn.Sequential(*layers).double()
        black, signed = torch.rand(1, 1, 16, 16).double(), torch.rand(1, 1, 16, 16).double() * 2 - 1
    model[-1].bias.data.fill_(2.0)
    black[..., :8] = 0  # nothing is negative there, and many means are zero
    ways = deep_taylor(-1.0, 1.0)
    both = lrp(model, torch.cat([black, signed]), torch.tensor([0, 0]), ways, "relu")
    alone = lrp(model, black, torch.tensor([0]), ways, "relu")
    torch.testing.assert_close(both[:1], alone)
    torch.testing.assert_close(alone.sum(), model(black)[0, 0].clamp_min(0), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", [*SIGNED, *NORMED])
def test_deep_taylor_hands_everything_on(name):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        x = torch.rand(6, 2, 6, 6) * 2 - 1
        first = nn.Sequential(*(SIGNED | NORMED)[name]())
        for norm in first.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.momentum = 1.0
        middle = first.train()(x)
        layers = [nn.Conv2d(middle.shape[1], 4, 3, padding=1, bias=False), nn.ReLU(), nn.Flatten()]
        model = nn.Sequential(first, *layers, nn.Linear(4 * middle.shape[2] * middle.shape[3], 3, bias=False))
    model.double().eval()
    x = x.double()
    targets, least = model(x).argmax(1), -1.0
    maps = lrp(model, x, targets, deep_taylor(least, 1.0), "relu")
    out = model(x).gather(1, targets[:, None])[:, 0].clamp_min(0)
    assert int((out > 0).sum()) >= 3
    assert bool((maps >= -1e-12).all()) or name in NORMED
    torch.testing.assert_close(maps.flatten(1).sum(1), out, rtol=1e-6, atol=1e-9)


def test_deep_taylor_of_enlarged_pictures_is_that_of_large_ones_summed_up():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 3)
        ).double()
        x = torch.rand(4, 3, 8, 8).double() * 2 - 1
    large = F.interpolate(x, scale_factor=2)
    targets = net(large).argmax(1)
    found = lrp(nn.Sequential(nn.Upsample(scale_factor=2), net), x, targets, deep_taylor(-1.0, 1.0), "relu")
    wanted = 4 * F.avg_pool2d(lrp(net, large, targets, deep_taylor(-1.0, 1.0), "relu"), 2)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-13)


def test_whole_bias_as_innvestigate_does_it():
    layer = nn.Linear(2, 1).double()
    layer.weight.data = torch.tensor([[2.0, -1.0]], dtype=torch.float64)
    layer.bias.data = torch.tensor([-0.5], dtype=torch.float64)
    x, target = torch.tensor([[1.0, 1.0]], dtype=torch.float64), torch.tensor([0])
    split = lrp(layer, x, target, everywhere(rules.alpha_beta(1, 0, eps=0)))
    whole = lrp(layer, x, target, everywhere(rules.alpha_beta(1, 0, eps=0, bias="innvestigate")))
    np.testing.assert_allclose(split, [[0.5, 0]])  # output 0.5, all of it from the positive part 2
    np.testing.assert_allclose(whole, [[0.5 * 2 / 1.5, 0]])


# -- in-place calls --------------------------------------------------------------------------------------


def alias_in(x):
    y = x
    x.relu_()
    x += 1.0
    return y * 2


def view_in(x):
    x = x.clone()
    x[:, :3].relu_()
    return x


def buffer_in(x):
    b = torch.zeros(len(x), 5, dtype=x.dtype)
    b[:, 1:4] = x[:, 1:4]
    b += x
    return b.relu_()


PAIRS = {
    "alias": (alias_in, lambda x: (F.relu(x) + 1.0) * 2),
    "view": (view_in, lambda x: torch.cat([F.relu(x[:, :3]), x[:, 3:]], 1)),
    "buffer": (buffer_in, lambda x: F.relu(F.pad(x[:, 1:4], (1, 1)) + x)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_aliases_and_views_see_in_place_changes(name):
    inside, outside = (Between(f) for f in PAIRS[name])
    x, targets = drawn(30, 6, seed=1) + 0.3, torch.arange(30) % 3
    for method in (
        lambda m: lrp(m, x, targets, everywhere(rules.epsilon())),
        lambda m: deeplift(m, x, torch.full_like(x, 0.3), targets),
        lambda m: deeplift(m, x, torch.full_like(x, 0.3), targets, True),
        lambda m: propagate(Rectified(True), m, x, targets)[0],
    ):
        assert error(method(inside), method(outside)) < 1e-14


# -- refusal ---------------------------------------------------------------------------------------------


class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx, g):
        return g


REFUSED_BY_LRP = {
    "softmax": lambda x: x.softmax(-1),
    "square": lambda x: x * x,
    "einsum": lambda x: torch.einsum("bi,bi->bi", x, x),
    "cumsum": lambda x: x.cumsum(-1),
    "layer norm": lambda x: F.layer_norm(x, (5,)),
    "custom function": Custom.apply,
    "power": lambda x: x**2,
    "sort": lambda x: x.sort(-1)[0],
    "exp in place": lambda x: x.exp_(),
    "reciprocal": lambda x: 1 / x,
    "norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(F.relu, x, use_reentrant=True),
    "maximum": lambda x: x.max(1, keepdim=True)[0].expand(-1, 5),
    "bound from the input": lambda x: x.clamp(max=x.roll(1, 0)),
    "weight from the input": lambda x: F.linear(x, x[:, :5].T @ x[:, :5]),
    "active dropout": lambda x: F.dropout(x, 0.5, True),
    "out=": lambda x: torch.add(F.relu(x), 0, out=torch.empty_like(x)),
}
REFUSED_BY_DEEPLIFT = {
    "mask": lambda x: x * (x > 0),
    "where": lambda x: torch.where(x > 0, x, 0 * x),
    "detached gate": lambda x: x * x.sigmoid().detach(),
    "masked fill": lambda x: x.masked_fill(x < 0, 0),
    "bound from the input": lambda x: x.clamp(max=x.roll(1, 0)),
    "weight from the input": lambda x: F.linear(x, x[:, :5].T @ x[:, :5]),
    "cumsum": lambda x: x.cumsum(-1),
    "branch": lambda x: F.relu(x) if bool(x.sum() > 0) else torch.tanh(x),
}


@pytest.mark.parametrize("name", REFUSED_BY_LRP)
def test_lrp_refuses_what_it_does_not_know(name):
    x, targets = drawn(4, 6, seed=1) + 0.3, torch.tensor([0, 1, 2, 0])
    with pytest.raises(UnsupportedOperation) as caught:
        lrp(Between(REFUSED_BY_LRP[name]), x, targets, everywhere(rules.epsilon()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", REFUSED_BY_DEEPLIFT)
def test_deeplift_refuses_what_it_does_not_know(name):
    x, targets = drawn(4, 6, seed=1) + 0.3, torch.tensor([0, 1, 2, 0])
    with pytest.raises(UnsupportedOperation):
        deeplift(Between(REFUSED_BY_DEEPLIFT[name]), x, -10 * x, targets)


def test_asserts_and_logs_stay_legal():
    def careful(x):
        assert x.max() < 1e9
        x.sum().item()
        return F.relu(x)

    x, targets = drawn(4, 6, seed=1) + 0.3, torch.tensor([0, 1, 2, 0])
    wanted = lrp(Between(F.relu), x, targets, everywhere(rules.epsilon()))
    for function in (careful, lambda x: x * (x > 0)):
        assert error(lrp(Between(function), x, targets, everywhere(rules.epsilon())), wanted) < 1e-14


def test_an_overwritten_layer_input_is_noticed():
    class Overwriting(Between):
        def forward(self, x):
            h = self.a(x)
            out = self.b(h)
            h.relu_()
            return out + h[:, :3]

    x, targets = drawn(4, 6, seed=1) + 0.3, torch.tensor([0, 1, 2, 0])
    with pytest.raises(UnsupportedOperation, match="overwrites"):
        lrp(Overwriting(None), x, targets, everywhere(rules.epsilon()))


def test_the_network_is_left_as_it_was():
    model, x = plain(norm=True), drawn(6, 3, 14, 14)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for method in METHODS.values():
        method(model, x)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not [q for q in model.modules() if q._forward_hooks or q._backward_hooks]
    assert not [name for t in model.state_dict().values() for name in vars(t) if name.startswith("_verax")]


def test_engines_nest_and_run_in_threads():
    from concurrent.futures import ThreadPoolExecutor

    model, x = plain(), drawn(6, 3, 14, 14)
    wanted = {name: method(model, x) for name, method in METHODS.items()}
    with ThreadPoolExecutor(4) as pool:
        jobs = [(name, pool.submit(METHODS[name], model, x)) for name in list(METHODS) * 2]
    for name, job in jobs:
        assert torch.equal(job.result(), wanted[name])
