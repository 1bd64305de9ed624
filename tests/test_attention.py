"""Transformers: fused calls, AttnLRP and CP-LRP against a frozen network, rollouts by definition."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import verax
from spellings import ATTENTION, Transformer, plain
from verax.engine import rules
from verax.engine.attention import AttentionLRP, attention_weights
from verax.engine.mode import Engine, forward
from verax.engine.multipliers import deeplift
from verax.engine.passes import propagate
from verax.engine.relevance import Composite
from verax.errors import UnsupportedOperation

TARGETS = torch.tensor([0, 1, 2, 4])
ZERO = Composite(rules.epsilon(0), rules.epsilon(0), pool=rules.epsilon(0), eps=0)


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def error(a, b):
    return float((a - b).norm() / b.norm())


def lrp(model, x, through_softmax, composite=ZERO):
    return propagate(AttentionLRP(composite, through_softmax), model, x, TARGETS, "output")[0]


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def assert_same(function, x):
    """The engine alone, which takes fused calls apart, gives PyTorch's value and gradient."""
    leaf, ours = forward(Engine(), Call(function), x)
    point = x.clone().requires_grad_()
    wanted = function(point)
    assert error(ours, wanted) < 1e-13
    signal = drawn(*wanted.shape, seed=8)
    (slope,) = torch.autograd.grad(ours, leaf, signal)
    assert error(slope, torch.autograd.grad(wanted, point, signal)[0]) < 1e-12


# -- fused calls -----------------------------------------------------------------------------------------

ALLOWED = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(1)) > 0.3
ALLOWED[1, :, 2] = False  # a query that may attend to nothing
FUSED = {
    "plain": {},
    "boolean mask": {"attn_mask": ALLOWED},
    "float mask": {"attn_mask": drawn(6, 6, seed=2)},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.7},
    "grouped queries": {"enable_gqa": True},
}


@pytest.mark.parametrize("name", FUSED)
def test_fused_attention_taken_apart(name):
    heads = 2 if name == "grouped queries" else 4

    def attend(x):
        q, k, v = x[:, :4], x[:, 4 : 4 + heads], x[:, 8 : 8 + heads]
        return F.scaled_dot_product_attention(q, k, v, **FUSED[name])

    assert_same(attend, drawn(4, 12, 6, 5))


PADDING = torch.tensor([[False] * 4 + [True] * 2, [False] * 6, [False] * 5 + [True], [True] + [False] * 5])
MULTIHEAD = {
    "plain": ({}, {}),
    "no weights": ({}, {"need_weights": False}),
    "weights of each head": ({}, {"average_attn_weights": False}),
    "padding": ({}, {"key_padding_mask": PADDING}),
    "mask": ({}, {"attn_mask": torch.ones(6, 6, dtype=torch.bool).triu(1)}),
    "mask of each head": ({}, {"attn_mask": drawn(16, 6, 6, seed=3)}),
    "causal": ({}, {"attn_mask": torch.ones(6, 6, dtype=torch.bool).triu(1), "is_causal": True}),
    "both masks": ({}, {"key_padding_mask": PADDING, "attn_mask": torch.eye(6, dtype=torch.bool)}),
    "samples second": ({"batch_first": False}, {}),
    "no bias": ({"bias": False}, {}),
    "bias of keys and values": ({"add_bias_kv": True}, {"key_padding_mask": PADDING}),
    "zero attention": ({"add_zero_attn": True}, {"key_padding_mask": PADDING}),
}


@pytest.mark.parametrize("name", MULTIHEAD)
def test_multihead_attention_taken_apart(name):
    made, called = MULTIHEAD[name]
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 4, **{"batch_first": True, **made}).double().eval()
    x = drawn(4, 6, 8).transpose(0, 1) if name == "samples second" else drawn(4, 6, 8)
    assert_same(lambda x: layer(x, x, x, **called)[0], x.contiguous())
    if called.get("need_weights", True):
        assert_same(lambda x: layer(x, x, x, **called)[1], x.contiguous())


@pytest.mark.parametrize("separate", [False, True])
def test_cross_attention_taken_apart(separate):
    torch.manual_seed(0)
    sizes = {"kdim": 5, "vdim": 7} if separate else {}
    layer = nn.MultiheadAttention(8, 2, batch_first=True, **sizes).double().eval()

    def attend(x):
        query, other = x[..., :3, :8], x[..., 3:, :]
        return layer(query, other[..., : sizes.get("kdim", 8)], other[..., : sizes.get("vdim", 8)])[0]

    assert_same(attend, drawn(4, 7, 9))
    assert_same(lambda x: attend(x[0]), drawn(1, 7, 9))  # one sample without a batch


def test_attention_with_dropout_is_refused():
    layer = nn.MultiheadAttention(8, 2, dropout=0.5).double().train()
    for call in (
        lambda x: layer(x, x, x)[0],
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    ):
        with pytest.raises(UnsupportedOperation, match="eval"):
            forward(Engine(), Call(call), drawn(4, 6, 8))


class Encoder(nn.Module):
    """PyTorch's own encoder, which has a fused inference path."""

    def __init__(self, first):
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=first)
        self.inner, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 5)
        self.double().eval()

    def forward(self, x):
        return self.head(self.inner(x, src_key_padding_mask=PADDING[:1].expand(len(x), -1)).mean(1))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("first", [False, True])
def test_the_fused_inference_path_of_encoders_does_not_slip_through(first, monkeypatch):
    model, x = Encoder(first), drawn(4, 6, 8)
    called = []
    for name in ("_transformer_encoder_layer_fwd", "_native_multi_head_attention"):
        native = getattr(torch, name)
        monkeypatch.setattr(torch, name, lambda *a, n=native, **k: called.append(1) or n(*a, **k))
    with torch.no_grad():
        model.requires_grad_(False)
        forward(Engine(), model, x)
        assert not called
        weights, _ = attention_weights(model, x)
        assert not called
        model(x)
        assert called or first  # without the engine it is taken
    point = x.clone().requires_grad_()  # the fused path zeroes padded tokens: no reference
    change = (model(point) - model(point * 0.3)).gather(1, TARGETS[:, None])[:, 0].detach()
    assert [tuple(layer.shape) for layer in weights] == [(4, 2, 6, 6)] * 2
    contributions = deeplift(model, x, x * 0.3, TARGETS)
    assert error(contributions.flatten(1).sum(1), change) < 1e-10


NORMS = {
    "layer": lambda x: F.layer_norm(x, (6, 5), drawn(6, 5, seed=1), drawn(6, 5, seed=2), 0.1),
    "layer, keywords": lambda x: F.layer_norm(x, normalized_shape=(5,), weight=drawn(5), bias=None),
    "rms": lambda x: F.rms_norm(x, (5,), drawn(5, seed=1)),
    "group": lambda x: F.group_norm(x, 3, drawn(12, seed=1), drawn(12, seed=2)),
    "instance": lambda x: F.instance_norm(x, weight=drawn(12, seed=1), bias=drawn(12, seed=2)),
}


@pytest.mark.parametrize("name", NORMS)
def test_normalisation_taken_apart(name):
    from verax.engine.normalisation import Normalisation

    class Apart(Engine):
        def layernorm(self, operation):
            with self:
                return Normalisation.of(operation)(operation.args[0])

    x = drawn(4, 12, 6, 5)
    leaf, ours = forward(Apart(), Call(NORMS[name]), x)
    assert error(ours, NORMS[name](x)) < 1e-13
    (slope,) = torch.autograd.grad(ours, leaf, drawn(*x.shape, seed=8))
    point = x.clone().requires_grad_()
    wanted = torch.autograd.grad(NORMS[name](point), point, drawn(*x.shape, seed=8))[0]
    assert error(slope, wanted) < 1e-12


# -- AttnLRP and CP-LRP ----------------------------------------------------------------------------------


class Frozen(nn.Module):
    """LRP with eps = 0 is input x gradient of this network: nonlinearities are ratios that do not change."""

    def __init__(self, model, through_softmax):
        super().__init__()
        self.model, self.through = model, through_softmax

    def forward(self, x):
        def ratio(x):
            return x * (F.gelu(x) / x).detach()

        def norm(x, layer):
            inverse = (x.var(-1, keepdim=True, correction=0) + layer.eps).rsqrt().detach()
            return (x - x.mean(-1, keepdim=True)) * inverse * layer.weight + layer.bias

        def half(a, b):
            return (a @ b.detach() + a.detach() @ b) / 2

        model = self.model
        x = model.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([model.first.expand(len(x), -1, -1), x], 1) + model.place
        for layer in model.layers:
            inner, y = layer.attend.inner, norm(x, layer.n1)
            packed = F.linear(y, inner.in_proj_weight, inner.in_proj_bias)
            q, k, v = packed.view(len(x), 17, 3, 4, -1).permute(2, 0, 3, 1, 4)
            p = (half(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])).softmax(-1)
            y = half(p, v) if self.through else p.detach() @ v
            x = x + inner.out_proj(y.transpose(1, 2).reshape(x.shape))
            x = x + layer.f2(ratio(layer.f1(norm(x, layer.n2))))
        return model.head(norm(x, model.norm)[:, 0])


@pytest.mark.parametrize("through", [True, False], ids=["AttnLRP", "CP-LRP"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_attention_lrp_is_input_times_gradient_of_a_frozen_network(through, bias):
    model, x = Transformer(bias=bias), drawn(4, 3, 16, 16)
    point, frozen = x.clone().requires_grad_(), Frozen(model, through)
    out = frozen(point)
    assert error(out, model(x)) < 1e-13
    wanted = torch.autograd.grad(out.gather(1, TARGETS[:, None]).sum(), point)[0] * x
    assert error(lrp(model, x, through), wanted) < 1e-10


@pytest.mark.parametrize("how", ATTENTION[1:])
@pytest.mark.parametrize("through", [True, False], ids=["AttnLRP", "CP-LRP"])
def test_attention_spellings_give_the_same_map(how, through):
    x, gamma = drawn(4, 3, 16, 16), Composite(rules.gamma(), rules.gamma())
    for composite in (ZERO, gamma):
        wanted = lrp(Transformer(), x, through, composite)
        assert error(lrp(Transformer(how), x, through, composite), wanted) < 1e-9


def test_cp_lrp_conserves_relevance():
    model, x = Transformer(bias=False), drawn(4, 3, 16, 16)
    out = model(x).gather(1, TARGETS[:, None])[:, 0].detach()
    assert error(lrp(model, x, False).flatten(1).sum(1), out) < 1e-11
    assert error(lrp(model, x, True).flatten(1).sum(1), out) > 1e-3  # the softmax takes some


def test_group_norm_keeps_the_relevance_of_what_it_normalises():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), nn.GroupNorm(2, 6), nn.ReLU(), nn.Flatten())
    model = model.append(nn.Linear(6 * 6 * 6, 5, bias=False)).double()
    x = drawn(4, 3, 8, 8)
    out = model(x).gather(1, TARGETS[:, None])[:, 0].detach()
    assert error(lrp(model, x, True).flatten(1).sum(1), out) < 1e-11


@pytest.mark.parametrize("reveal", [False, True], ids=["rescale", "reveal-cancel"])
@pytest.mark.parametrize("how", ATTENTION)
def test_deeplift_contributions_add_up_through_attention(how, reveal):
    model, x, baseline = Transformer(how), drawn(4, 3, 16, 16), drawn(4, 3, 16, 16, seed=5)
    change = (model(x) - model(baseline)).gather(1, TARGETS[:, None])[:, 0].detach()
    assert error(deeplift(model, x, baseline, TARGETS, reveal).flatten(1).sum(1), change) < 1e-11


def test_deeplift_survives_scores_that_are_far_apart():
    x, baseline = drawn(4, 5) * 2000, drawn(4, 5, seed=1) * 2000
    model = Call(lambda x: (x * torch.tensor([1.0, 1, 1, 1, 1e-3])).softmax(-1))
    change = (model(x) - model(baseline)).gather(1, TARGETS[:, None])[:, 0]
    contributions = deeplift(model, x, baseline, TARGETS)
    assert (contributions.sum(1) - change).abs().max() < 1e-12


# -- rollouts --------------------------------------------------------------------------------------------


def by_hand(model, x, targets=None):
    """Attention weights of the written-out transformer, kept by its own code."""
    kept, softmax = [], F.softmax

    def keep(*args, **kwargs):
        kept.append(softmax(*args, **kwargs))
        return kept[-1]

    F.softmax = keep
    try:
        out = model(x.clone().requires_grad_())
    finally:
        F.softmax = softmax
    slopes = torch.autograd.grad(out.gather(1, targets[:, None]).sum(), kept) if targets is not None else None
    return [layer.detach() for layer in kept], slopes


def enlarged(scores, like):
    picture = scores.reshape(len(like), 1, 4, 4)
    return F.interpolate(picture, (16, 16), mode="bilinear", align_corners=False).expand_as(like)


@pytest.mark.parametrize("token", [True, False], ids=["class token", "mean"])
@pytest.mark.parametrize("how", ATTENTION)
def test_attention_rollout_by_definition(how, token):
    x = drawn(4, 3, 16, 16)
    weights, _ = by_hand(Transformer("written", token=token), x)
    scores = []
    for n in range(4):
        flow = torch.eye(16 + token, dtype=torch.float64)
        for layer in weights:
            mixed = 0.5 * sum(layer[n, h] for h in range(4)) / 4 + 0.5 * torch.eye(16 + token)
            flow = (mixed / mixed.sum(1, keepdim=True)) @ flow
        scores.append(flow[0, 1:] if token else flow.mean(0))
    maps = verax.explain(Transformer(how, token=token), x, TARGETS, method="attention-rollout")
    assert error(maps, enlarged(torch.stack(scores), x)) < 1e-6


@pytest.mark.parametrize("token", [True, False], ids=["class token", "mean"])
@pytest.mark.parametrize("how", ATTENTION)
def test_chefer_by_definition(how, token):
    x = drawn(4, 3, 16, 16)
    weights, slopes = by_hand(Transformer("written", token=token), x, TARGETS)
    scores = []
    for n in range(4):
        relevance = torch.eye(16 + token, dtype=torch.float64)
        for layer, slope in zip(weights, slopes, strict=True):
            relevance = relevance + (layer[n] * slope[n]).clamp_min(0).mean(0) @ relevance
        scores.append(relevance[0, 1:] if token else (relevance - torch.eye(16)).mean(0))
    maps = verax.explain(Transformer(how, token=token), x, TARGETS, method="chefer")
    assert error(maps, enlarged(torch.stack(scores), x)) < 1e-6


def test_rollout_follows_attention_to_the_patch_it_looks_at():
    class Looking(nn.Module):
        """The class token attends to patch 6 alone."""

        def forward(self, x):
            v = F.avg_pool2d(x, 4).flatten(2).transpose(1, 2)
            v = F.pad(v, (0, 0, 1, 0))
            scores = torch.zeros(len(x), 1, 17, 17)
            scores[:, :, 0, 7] = 50
            scores = scores + 0 * x.mean()
            y = F.scaled_dot_product_attention(scores, torch.eye(17), v[:, None], scale=1.0)
            return y[:, 0, 0]

    x = torch.rand(2, 3, 16, 16)
    for name in ("attention-rollout", "chefer"):
        maps = verax.explain(Looking(), x, [0, 1], method=name, enlarging="nearest")
        assert bool((maps[:, :, 4:8, 8:12] > 0).all())
        assert maps[:, :, 4:8, 8:12].sum() > 0.99 * maps.sum()


def test_sequences_get_the_score_of_their_tokens():
    model, x = Encoder(True), drawn(4, 6, 8)
    maps = verax.explain(model, x, TARGETS, method="attention-rollout")
    assert bool((maps == maps[:, :, :1]).all())
    assert maps[0, 4:].abs().sum() < maps[0, :4].abs().sum()  # padding is only looked at by itself


@pytest.mark.parametrize("name", ["attention-rollout", "chefer"])
def test_networks_without_attention_are_refused(name):
    for model, x in ((plain(), drawn(4, 3, 14, 14)), (Call(lambda x: x.flatten(1).softmax(1)), drawn(4, 5))):
        with pytest.raises(UnsupportedOperation, match="no attention"):
            verax.explain(model, x, TARGETS, method=name)


@pytest.mark.parametrize("name", ["attention-rollout", "chefer"])
def test_attention_that_cannot_be_followed_is_refused(name):
    def windows(x):
        parts = x.reshape(-1, 1, 3, 8)
        return F.scaled_dot_product_attention(parts, parts, parts).reshape(len(x), 6, 8).mean(1)

    def shrinking(x):
        x = F.scaled_dot_product_attention(*[x[:, None]] * 3)[:, :, :4]
        return F.scaled_dot_product_attention(x, x, x).mean((1, 2))

    for function, reason in ((windows, "windows"), (shrinking, "number of tokens")):
        with pytest.raises(UnsupportedOperation, match=reason):
            verax.explain(Call(function), drawn(4, 6, 8), TARGETS, method=name)
    odd = Call(lambda x: F.scaled_dot_product_attention(*[x.flatten(2)] * 3).mean(1))
    with pytest.raises(UnsupportedOperation, match="grid"):
        verax.explain(odd, drawn(4, 90, 4, 4), TARGETS, method=name)


@pytest.mark.parametrize("name", ["attn-lrp", "cp-lrp", "attention-rollout", "chefer"])
def test_methods_do_not_depend_on_the_batch_and_leave_the_network_alone(name):
    model, x = Transformer(), drawn(4, 3, 16, 16)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    whole = verax.explain(model, x, TARGETS, method=name)
    assert error(verax.explain(model, x, TARGETS, method=name, batch_size=1), whole) < 1e-6
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert not [t for t in model.state_dict().values() if any("_verax" in key for key in vars(t))]
    if name.endswith("lrp"):
        assert error(verax.explain(model, x, TARGETS, method=name, gamma=0.25), whole) > 1e-3
