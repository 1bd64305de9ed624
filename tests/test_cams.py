"""Class activation maps against Captum, loops and one another (float64)."""

import importlib

import captum.attr as captum
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from spellings import ATTENTION, SPELLINGS, Spelled, Transformer, plain, residual
from verax.engine import batching, features, masking
from verax.engine.features import ablated_outputs, feature_map
from verax.errors import InvalidInput, InvalidParameter, UnsupportedOperation
from verax.methods import METHODS
from verax.methods import cams as own
from verax.networks.zoo import let_torchvision_import

TARGETS = torch.tensor([0, 1, 2, 3, 4, 0])
CAMS = {
    "grad-cam": own.grad_cam,
    "grad-cam-plus-plus": own.grad_cam_plus_plus,
    "hires-cam": own.hires_cam,
    "layer-cam": own.layer_cam,
    "score-cam": own.score_cam,
    "ablation-cam": own.ablation_cam,
    "guided-grad-cam": own.guided_grad_cam,
}


def drawn(*shape, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        x = torch.randn(*shape, dtype=torch.float64)
    x[:, :, :3] = 0
    return x


X = drawn(6, 3, 14, 14)


def error(a, b):
    assert a.shape == b.shape
    return float((a - b).norm() / b.norm())


def large(cam, relu=True):
    """A map (N, h, w) as all of these methods show it."""
    cam = F.relu(cam) if relu else cam
    return F.interpolate(cam[:, None], (14, 14), mode="bilinear").expand(-1, 3, -1, -1)


def halves(model):
    """`plain()` up to its last feature map, and the rest."""
    return model[:5], model[5:]


def pieces(model):
    """Activations and gradients of one sample after another."""
    body, head = halves(model)
    found = []
    for x, target in zip(X, TARGETS, strict=True):
        a = body(x[None]).detach().requires_grad_()
        (g,) = torch.autograd.grad(head(a)[0, target], a)
        found.append((a[0].detach(), g[0]))
    return found


# -- by Captum -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relu", [True, False])
def test_grad_cam_equals_captum(relu):
    model = plain()
    cam = captum.LayerGradCam(model, model[4]).attribute(X, TARGETS, relu_attributions=relu).detach()
    wanted = F.interpolate(cam, (14, 14), mode="bilinear").expand_as(X)
    assert error(own.grad_cam(model, X, TARGETS, relu=relu), wanted) < 1e-13
    assert error(own.grad_cam(model, X, TARGETS, "4", relu), wanted) < 1e-13


def test_guided_grad_cam_equals_captum():
    model = plain()
    theirs = captum.GuidedGradCam(model, model[4]).attribute(X, TARGETS, interpolate_mode="bilinear")
    assert error(own.guided_grad_cam(model, X, TARGETS), theirs.detach()) < 1e-13
    assert error(own.guided_grad_cam(model, X, TARGETS, "4"), theirs.detach()) < 1e-13


def test_hires_cam_equals_captums_layer_activation_times_gradient():
    model = plain()
    theirs = captum.LayerGradientXActivation(model, model[0]).attribute(X, TARGETS).detach().sum(1)
    assert error(own.hires_cam(model, X, TARGETS, "0", False), large(theirs, False)) < 1e-13


# -- by loops --------------------------------------------------------------------------------------------


def test_grad_cam_plus_plus_by_a_loop():
    model = plain()
    cams = []
    for a, g in pieces(model):
        cam = torch.zeros(a.shape[1:], dtype=a.dtype)
        for k in range(len(a)):
            weight, mass = 0.0, float(a[k].sum())
            for slope in g[k].flatten().tolist():
                below = 2 * slope**2 + mass * slope**3
                weight += (slope**2 / below if below else 0.0) * max(slope, 0.0)
            cam += weight * a[k]
        cams.append(cam)
    assert error(own.grad_cam_plus_plus(model, X, TARGETS), large(torch.stack(cams))) < 1e-12


@pytest.mark.parametrize("relu", [True, False])
def test_pixel_wise_cams_by_a_loop(relu):
    model = plain()
    hires = torch.stack([sum(a[k] * g[k] for k in range(len(a))) for a, g in pieces(model)])
    layer = torch.stack([sum(a[k] * g[k].clamp_min(0) for k in range(len(a))) for a, g in pieces(model)])
    assert error(own.hires_cam(model, X, TARGETS, relu=relu), large(hires, relu)) < 1e-13
    assert error(own.layer_cam(model, X, TARGETS, relu=relu), large(layer, relu)) < 1e-13


def test_hires_cam_adds_up_without_bias_behind_the_layer():
    model = residual(bias=False)
    x, targets = drawn(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
    activations, slopes = feature_map(model, x, targets)
    wanted = model(x).gather(1, targets[:, None])[:, 0].detach()
    assert error((activations * slopes).flatten(1).sum(1), wanted) < 1e-12


@pytest.mark.parametrize("start", [0.0, 0.4])
def test_score_cam_by_a_loop(start):
    model = plain()
    body, _ = halves(model)
    cams, skipped = [], 0
    with torch.no_grad():
        for x, target in zip(X, TARGETS, strict=True):
            a = body(x[None])[0]
            scores, kept = [], []
            for channel in a:
                if channel.min() == channel.max():
                    skipped += 1
                    continue
                mask = F.interpolate(channel[None, None], (14, 14), mode="bilinear")[0, 0]
                mask = (mask - mask.min()) / (mask.max() - mask.min())
                scores.append(model((x * mask + (1 - mask) * start)[None])[0, target])
                kept.append(channel)
            weights = torch.stack(scores).softmax(0)
            cams.append(sum(w * channel for w, channel in zip(weights, kept, strict=True)))
    assert skipped > 0
    ours = own.score_cam(model, X, TARGETS, baseline=start)
    assert error(ours, large(torch.stack(cams))) < 1e-12


def test_ablation_cam_by_a_loop():
    model = plain()
    body, head = halves(model)
    cams, weights = [], []
    with torch.no_grad():
        for x, target in zip(X, TARGETS, strict=True):
            a = body(x[None])[0]
            plain_score = head(a[None])[0, target]
            falls = []
            for k in range(len(a)):
                without = a.clone()
                without[k] = 0
                falls.append((plain_score - head(without[None])[0, target]) / plain_score.abs())
            cams.append(sum(w * channel for w, channel in zip(falls, a, strict=True)))
            weights.append(torch.stack(falls))
    assert error(own.ablation_cam(model, X, TARGETS, relu=False), large(torch.stack(cams), False)) < 1e-12
    assert error(own.ablation_cam(model, X, TARGETS), large(torch.stack(cams))) < 1e-12
    activations, outputs, without = ablated_outputs(model, X, TARGETS)
    dead = (activations == 0).flatten(2).all(2)
    assert dead.any()
    assert torch.equal(without[dead], outputs[:, None].expand_as(without)[dead])
    assert error((outputs[:, None] - without) / outputs.abs()[:, None], torch.stack(weights)) < 1e-12


def test_ablation_at_named_and_reused_layers():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            with torch.random.fork_rng():
                torch.manual_seed(0)
                self.conv, self.head = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(588, 5)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x, ablate=None):
            x = self.relu(self.conv(x))
            x = self.conv(x)
            if ablate is not None:
                x = x.clone()
                x[:, ablate] = 0
            return self.head(self.relu(x).flatten(1))

    model = Twice().double().eval()
    activations, _, without = ablated_outputs(model, X, TARGETS, "conv")
    assert activations.min() < 0  # before the ReLU, although that works in place
    for k in range(3):
        wanted = model(X, k).gather(1, TARGETS[:, None])[:, 0].detach()
        assert error(without[:, k], wanted) < 1e-13
    automatic, _, without = ablated_outputs(model, X, TARGETS)
    assert automatic.min() == 0
    for k in range(3):
        wanted = model(X, k).gather(1, TARGETS[:, None])[:, 0].detach()  # relu(0) = 0
        assert error(without[:, k], wanted) < 1e-13
    assert not [m for m in model.modules() if m._forward_hooks]


class Around(nn.Module):
    """A network with a way around the layer that loses channels, and other reasons not to repeat its map."""

    KINDS = ("plain", "skip", "both", "sized", "joined", "drawn")

    def __init__(self, kind):
        super().__init__()
        self.kind, self.before, self.zero, self.heads = kind, [], None, []
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 14 * 14, 5)

    def forward(self, x):
        self.before.append(len(x))
        size = len(x)
        made = self.conv(x)
        if self.zero is not None:  # the reference: ablated by hand
            made = made.clone()
            made[:, self.zero] = 0
        if self.kind == "skip":
            made = made.tanh() + x.mean(1, keepdim=True)
        if self.kind == "joined":
            made = torch.cat([made[:, :7], made[:, 7:] * x[:, :1]], 1)
        flat = made.reshape(size, -1) if self.kind == "sized" else made.flatten(1)
        if self.kind == "both":  # what is changed in place is used under both names
            flat = made.relu_().flatten(1) + made.flatten(1)
        self.heads.append(len(flat))
        out = self.head(flat)
        return out + torch.rand(()) if self.kind == "drawn" else out


@pytest.mark.parametrize("kind", Around.KINDS)
@pytest.mark.parametrize("count", [1, 6])
def test_ablation_behind_the_layer_gives_what_whole_passes_give(kind, count):
    network, x, y = Around(kind).double().eval(), X[:count], TARGETS[:count]
    layer = None if kind == "both" else "conv"
    with torch.random.fork_rng():
        _, plain_outputs, without = ablated_outputs(network, x, y, layer)
    spread = max(network.heads) == 8 * count and max(network.before) <= count + 1
    assert spread is (kind in ("plain", "both"))
    for k in range(8):
        network.zero = k
        wanted = network(x).gather(1, y[:, None])[:, 0].detach()
        if kind != "drawn":
            assert error(without[:, k], wanted) < 1e-13
    assert torch.isfinite(plain_outputs).all()


class Names(nn.Module):
    """What a ReLU in place gives is read under two names by heads that look at different channels."""

    def __init__(self, seed, kind):
        super().__init__()
        self.kind = kind
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv, self.first, self.second = nn.Conv2d(3, 8, 3), nn.Linear(8, 3), nn.Linear(8, 3)
        self.first.weight.data[:, :4] = 0
        self.second.weight.data[:, 4:] = 0

    def forward(self, x):
        h = self.conv(x)
        if self.kind == "view":
            y = h.view(h.shape).relu_()
        elif self.kind == "in place":
            y = h.relu_()
        else:
            y = h = h.relu()
        return self.first(y.mean((2, 3))) + self.second(h.mean((2, 3)))


@pytest.mark.parametrize("kind", ["view", "in place"])
@pytest.mark.parametrize("count", [1, 3])
def test_ablation_in_place_counts_under_every_name(kind, count):
    for seed in range(6):
        x, y = X[:count].abs(), torch.zeros(count, dtype=torch.long)
        found, wanted = (
            ablated_outputs(Names(seed, which).double(), x, y, None)[2] for which in (kind, "plain")
        )
        assert error(found, wanted) < 1e-13


def test_ablation_notices_other_ways():
    class Branching(nn.Module):
        def forward(self, x):
            x = (
                F.avg_pool2d(x, 2)
                if len(x) == 6
                else F.avg_pool2d(F.relu(x).flatten(1)[:, :75].view(-1, 3, 5, 5), 2)
            )
            return x.flatten(1)

    with pytest.raises(UnsupportedOperation, match="other operations"):
        ablated_outputs(Branching(), X, TARGETS)


@pytest.mark.parametrize("count", [1, 3])
def test_ablation_of_networks_that_overwrite_their_input(count):
    class Overwriting(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.head = nn.Conv2d(1, 6, 3), nn.Linear(6, 2)

        def forward(self, x):
            return self.head(self.a(x.mul_(2)).relu().mean((2, 3)))

    with torch.random.fork_rng():
        torch.manual_seed(4)
        model = Overwriting().double()
    x, targets = drawn(count, 1, 8, 8), torch.zeros(count, dtype=torch.long)
    _, plain, without = ablated_outputs(model, x.clone(), targets)
    with torch.no_grad():
        maps = model.a(2 * x).relu()
        for channel in range(6):
            kept = maps.clone()
            kept[:, channel] = 0
            wanted = model.head(kept.mean((2, 3)))[:, 0]
            torch.testing.assert_close(without[:, channel], wanted)
        torch.testing.assert_close(plain, model.head(maps.mean((2, 3)))[:, 0])


def test_ablation_sees_views_that_were_taken_before_a_relu_in_place():
    class Viewing(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)
            self.mean, self.part = nn.Linear(6, 2), nn.Linear(128, 2)

        def forward(self, x):
            h = self.b(self.a(x).relu())
            early = h[:, :2]
            h.relu_()
            return self.mean(h.mean((2, 3))) + 0.1 * self.part(early.flatten(1))

    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Viewing().double()
    x, targets = drawn(4, 1, 8, 8), torch.zeros(4, dtype=torch.long)
    together = own.ablation_cam(model, x, targets, relu=False)
    alone = torch.cat([own.ablation_cam(model, x[k : k + 1], targets[:1], relu=False) for k in range(4)])
    assert error(alone, together) < 1e-12


# -- graphs that begin at the layer ----------------------------------------------------------------------


class Onward(nn.Module):
    """Convolutions, and a layer whose map does not come from the input as autograd sees it."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.first, self.layer = nn.Conv2d(3, 4, 3, padding=1), nn.Identity()
        self.last, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(4, 4)

    def made(self, h):
        if self.how == "cut":
            return self.layer(h.detach())
        if self.how == "switched off":
            with torch.no_grad():
                h = h.sigmoid()
            return self.layer(h)
        if self.how == "of zeros":
            return self.layer(torch.zeros_like(h))
        if self.how == "of a mask":
            return self.layer((h > 0).to(h))
        return self.layer(h)

    def forward(self, x):
        h = self.made(self.first(x))
        return self.head(torch.relu(self.last(h)).mean((2, 3)))


def _both_ways(model, x, layer, monkeypatch):
    targets = torch.arange(len(x)) % 2
    short = feature_map(model, x, targets, layer)
    with monkeypatch.context() as patched:
        patched.setattr(features, "_begun", lambda *_: None)
        return short, feature_map(model, x, targets, layer)


def _known(kind, frozen):
    let_torchvision_import()
    resnet = importlib.import_module("torchvision.models.resnet")
    with torch.random.fork_rng():
        torch.manual_seed(2)
        layers = [
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 4, 3),
            nn.Dropout(),
        ]
        row = nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2))
        model = row if kind == "row" else resnet.ResNet(resnet.BasicBlock, [1, 1, 1, 1], num_classes=2)
    if kind not in ("row", "resnet"):  # parts that hand on what they got, and others go on with that too
        model.layer1[0].conv1 = {"in place": nn.ReLU(inplace=True), "same": nn.Identity()}[kind]
    return model.double().eval().requires_grad_(not frozen)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    ("kind", "layer"),
    [("row", str(number)) for number in range(7)]
    + [("resnet", name) for name in ("conv1", "relu", "layer1", "layer1.0.bn1", "layer2.0.relu", "layer3")]
    + [(kind, name) for kind in ("in place", "same") for name in ("layer1.0.conv1", "layer2")],
)
def test_a_graph_that_begins_at_the_layer_says_the_same(kind, layer, frozen, monkeypatch):
    model = _known(kind, frozen)
    x = drawn(3, 3, 32, 32)
    short, long = _both_ways(model, x, layer, monkeypatch)
    for one, other in zip(short, long, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)
    assert short[1].abs().sum() > 0


@pytest.mark.parametrize("method", ["grad-cam", "hires-cam", "layer-cam", "guided-grad-cam", "ablation-cam"])
@pytest.mark.parametrize("how", ["returned", "thrown away"])
def test_layers_in_place_say_the_same_whatever_becomes_of_what_they_return(how, method):
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.relu, self.head = nn.ReLU(inplace=True), nn.Linear(4, 2)
            self.how = "usual"

        def forward(self, x):
            x = self.a(x)
            if self.how == "usual":
                x = self.relu(x)
                y = self.b(x)
            elif self.how == "returned":
                y = self.b(self.relu(x))
            else:
                self.relu(x)
                y = self.b(x)
            return self.head((x + y).mean((2, 3)))

    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = InPlace().double()
    x, targets = drawn(3, 1, 8, 8), torch.tensor([0, 1, 0])
    wanted = CAMS[method](model, x, targets, "relu", False)
    model.how = how
    torch.testing.assert_close(CAMS[method](model, x, targets, "relu", False), wanted)
    assert wanted.abs().sum() > 0


@pytest.mark.parametrize("how", ["cut", "switched off", "of zeros", "of a mask"])
def test_layers_that_do_not_depend_on_the_input_are_refused_all_the_same(how):
    with pytest.raises(InvalidParameter, match="depends on the input"):
        feature_map(Onward(how).double(), drawn(3, 3, 8, 8), torch.tensor([0, 1, 2]), "layer")


def test_what_lies_before_a_named_layer_keeps_nothing(request):
    kept = []
    model = plain()

    def note(tensor):
        kept.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        feature_map(model, X, TARGETS, "4")
        few = len(kept)
        kept.clear()
        feature_map(model, X, TARGETS)
    assert few > 0
    if request.config.getoption("--fast-paths") == "never":
        assert few == len(kept)
    else:
        assert few < len(kept) / 2


def test_constant_and_empty_maps_give_no_nan():
    class Flat(nn.Module):
        def forward(self, x):
            features = torch.stack([0 * x[:, 0] + 2, 0 * x[:, 0], x[:, 1]], 1)
            return features.mean((2, 3))

    for name in CAMS:
        for target in range(3):
            maps = verax.explain(Flat(), X, target, method=name)
            assert torch.isfinite(maps).all(), name
    score = own.score_cam(Flat(), X, TARGETS % 3, relu=False)
    assert error(score, X[:, 1:2].expand_as(X)) < 1e-13  # the only channel that is not constant
    still = own.score_cam(Flat(), torch.zeros_like(X), TARGETS % 3)
    assert still.abs().max() == 0
    zero = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(576, 2)).double()
    for weight in zero.parameters():
        nn.init.zeros_(weight)
    for function in CAMS.values():
        assert function(zero, X, TARGETS % 2).abs().max() == 0


# -- what holds for all of them --------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("name", CAMS)
def test_spellings_give_identical_maps(name, spelling):
    model = plain()
    wanted = CAMS[name](model, X, TARGETS)
    assert wanted.abs().sum() > 0
    assert error(CAMS[name](Spelled(model, spelling), X, TARGETS), wanted) < 1e-13


@pytest.mark.parametrize("name", CAMS)
def test_maps_do_not_depend_on_the_batch(name, monkeypatch):
    model = plain()
    whole = verax.explain(model, X, TARGETS, method=name)
    assert error(verax.explain(model, X, TARGETS, method=name, batch_size=2), whole) < 1e-6
    order = torch.tensor([4, 2, 0, 1, 3, 5])
    assert error(verax.explain(model, X[order], TARGETS[order], method=name), whole[order]) < 1e-6
    assert error(verax.explain(model, X[3:4], TARGETS[3:4], method=name), whole[3:4]) < 1e-6
    monkeypatch.setattr(batching.rows_within_budget, "__defaults__", (588 * 5,))
    assert error(verax.explain(model, X, TARGETS, method=name), whole) < 1e-6


@pytest.mark.parametrize("service", ["ablated", "channel"])
def test_out_of_memory_halves_the_passes(service):
    model, asked = plain(), []

    class Greedy(nn.Module):
        def forward(self, x):
            asked.append(len(x))
            if len(x) > 6:
                raise torch.OutOfMemoryError("too much")
            return model(x)

    def run(network, rows):
        if service == "ablated":
            return features.ablated_outputs(network, X, TARGETS, rows=rows)[2]
        maps = feature_map(model, X, TARGETS)[0]
        return masking.channel_outputs(network, X, TARGETS, maps, torch.zeros(1), rows=rows)

    assert torch.allclose(run(Greedy(), 40), run(model, 512), rtol=1e-12, equal_nan=False)
    assert max(asked) > 6


@pytest.mark.parametrize("name", CAMS)
def test_bad_parameters_get_one_sentence(name):
    model = plain()
    cases = [
        (dict(layer="44"), InvalidParameter, "no layer '44'"),
        (dict(layer="8"), InvalidParameter, "gives no feature map"),
        (dict(inputs=X.flatten(1), model=nn.Linear(588, 5).double()), InvalidInput, "need pictures"),
        (dict(model=nn.Sequential(nn.Flatten(), nn.Linear(588, 5)).double()), InvalidInput, "name a layer"),
        (dict(rellu=True), InvalidParameter, "did you mean 'relu'"),
    ]
    for change, kind, words in cases:
        with pytest.raises(kind, match=words) as caught:
            verax.explain(**{"model": model, "inputs": X, "targets": TARGETS, "method": name, **change})
        assert "\n" not in str(caught.value)


def test_layers_and_facts():
    model = plain()
    for name, function in CAMS.items():
        assert error(function(model, X, TARGETS, layer="4"), function(model, X, TARGETS)) < 1e-13
        assert error(function(model, X, TARGETS, layer="0"), function(model, X, TARGETS)) > 0.01
        method = METHODS.get(name)
        assert method.family == "cams"
        assert method.paper
        assert method.transfer == ("projection" if name == "guided-grad-cam" else "plain")
    for name in set(CAMS) - {"guided-grad-cam"}:
        maps = CAMS[name](model, X, TARGETS)
        assert maps.min() >= 0
        assert torch.equal(maps[:, 0], maps[:, 2])


@pytest.mark.parametrize("how", ATTENTION)
@pytest.mark.parametrize("name", CAMS)
def test_attention_is_no_feature_map(name, how):
    """The map of a transformer is that of its patches, however attention is spelled."""
    model, x = Transformer(how), drawn(6, 3, 16, 16)
    named = verax.explain(model, x, 1, method=name, layer="patches")
    assert error(verax.explain(model, x, 1, method=name), named) < 1e-6


class ChannelsLast(nn.Module):
    """A convolution, a dense layer for every place and a mean; channels may stand last, to the end or not."""

    def __init__(self, how):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body, self.places, self.head = nn.Conv2d(3, 5, 3, 2), nn.Linear(5, 7), nn.Linear(7, 5)
        self.how = how
        self.eval().double()

    def forward(self, x):
        x = F.relu(self.body(x))
        if self.how == "first":
            weight = self.places.weight[:, :, None, None]
            return self.head(F.gelu(F.conv2d(x, weight, self.places.bias)).mean((2, 3)))
        turned = x.transpose(1, 2).transpose(2, 3) if self.how == "steps" else x.permute(0, 2, 3, 1)
        x = F.gelu(self.places(turned))
        if self.how == "back":
            return self.head(x.permute(0, 3, 1, 2).mean((2, 3)))
        return self.head(x.mean((1, 2)))


@pytest.mark.parametrize("how", ["last", "back", "steps"])
@pytest.mark.parametrize("name", [*CAMS, "fullgrad"])
def test_channels_may_stand_last(name, how):
    usual = verax.explain(ChannelsLast("first"), X, 1, method=name)
    assert error(verax.explain(ChannelsLast(how), X, 1, method=name), usual) < 1e-6
