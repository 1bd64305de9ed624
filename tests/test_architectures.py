"""Unmodified torchvision and timm networks with random weights: axioms in float64.

What each network can be held against depends on what it is made of. LRP-z is input x gradient where all
nonlinearities are ReLUs (`LINEAR`); ReLU6, SiLU and hardswish break that, not conservation. LayerNorm is
refused by plain LRP, and CP-LRP takes its place (`TRANSFORMER`). `TIMM` says of each network whether plain
LRP has a rule for everything ("plain"), only attn-lrp and cp-lrp do ("normalised"), or whether its attention
can be followed from token to token as well ("followed").
"""

import pytest
import torch
from torch import nn

import verax
from verax.engine import rules
from verax.engine.attention import AttentionLRP
from verax.engine.multipliers import Rectified, deeplift
from verax.engine.passes import propagate
from verax.engine.relevance import LRP, Composite
from verax.errors import UnsupportedOperation

LINEAR = ("resnet18", "vgg11_bn", "densenet121", "googlenet", "squeezenet1_0")
GATED = ("mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0")
TRANSFORMER = ("vit_b_16", "convnext_tiny", "swin_t")
QUICK = ("resnet18", "vit_b_16", "convnext_tiny")
ALL = [
    pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow)
    for name in (*LINEAR, *GATED, *TRANSFORMER)
]
ZERO = Composite(rules.epsilon(0), rules.epsilon(0), pool=rules.epsilon(0), eps=0)


@pytest.fixture(scope="module")
def models():
    # a registry torchvision needs these operators beside a CPU-only torch
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip("torchvision.models")


def make(models, name, bias=True):
    """The network with random weights and statistics; without bias, nothing is added to the signal."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name == "vit_b_16":
            model = models.VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=10)
            model.heads.head.weight.data.normal_(0, 0.2)
        elif name == "swin_t":
            model = models.SwinTransformer([2, 2], 24, [2, 2], [2, 4], [4, 4], num_classes=10)
        elif name == "googlenet":
            model = models.googlenet(weights=None, num_classes=10, aux_logits=False, init_weights=False)
        else:
            model = getattr(models, name)(weights=None, num_classes=10)
        model = model.double().train()
        norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
        for layer in norms:  # statistics of real signals, then disturbed, so that no signal dies out
            layer.momentum = 1.0
        if norms:
            model(torch.randn(4, 3, size(name), size(name), dtype=torch.float64))
        for layer in norms:
            layer.running_var *= torch.rand_like(layer.running_var) * 1.5 + 0.5
            layer.running_mean += 0.3 * torch.randn_like(layer.running_mean) * layer.running_var.sqrt()
            layer.weight.data.uniform_(0.5, 1.5)
            layer.bias.data.uniform_(-0.3, 0.3)
        for layer in model.modules():
            if isinstance(layer, nn.LayerNorm):
                layer.weight.data.uniform_(0.5, 1.5)
                layer.bias.data.uniform_(-0.2, 0.2)
            if hasattr(layer, "layer_scale"):
                layer.layer_scale.data.uniform_(0.3, 1)
        if not bias:
            for layer in norms:
                layer.running_mean.zero_()
            for key, weight in model.named_parameters():
                if "bias" in key or key in ("class_token", "encoder.pos_embedding"):
                    weight.data.zero_()
    return model.eval()


def size(name):
    return 32 if name in TRANSFORMER else 64


def data(model, name):
    generator = torch.Generator().manual_seed(5)
    x, baseline = torch.randn(2, 3, 3, size(name), size(name), dtype=torch.float64, generator=generator)
    return x, 0.3 * baseline, model(x).argmax(1)


def chosen(model, x, targets):
    return model(x).gather(1, targets[:, None])[:, 0].detach()


def worst(found, wanted):
    return float((found - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("name", [p for p in ALL if p.values[0] in LINEAR])
def test_lrp_z_is_input_times_gradient(models, name):
    model = make(models, name)
    x, _, targets = data(model, name)
    point = x.clone().requires_grad_()
    slope = torch.autograd.grad(model(point).gather(1, targets[:, None]).sum(), point)[0]
    assert worst(propagate(LRP(ZERO), model, x, targets, "output")[0], slope * x) < 1e-11


@pytest.mark.parametrize("name", ALL)
def test_relevance_is_conserved_without_bias(models, name):
    model = make(models, name, bias=False)
    x, _, targets = data(model, name)
    engine = AttentionLRP(ZERO, through_softmax=False) if name in TRANSFORMER else LRP(ZERO)
    found = propagate(engine, model, x, targets, "output")[0].flatten(1).sum(1)
    assert worst(found, chosen(model, x, targets)) < 1e-10


@pytest.mark.parametrize("reveal", [False, True], ids=["rescale", "reveal-cancel"])
@pytest.mark.parametrize("name", ALL)
def test_deeplift_contributions_add_up(models, name, reveal):
    model = make(models, name)
    x, baseline, targets = data(model, name)
    change = chosen(model, x, targets) - chosen(model, baseline, targets)
    assert worst(deeplift(model, x, baseline, targets, reveal).flatten(1).sum(1), change) < 1e-10


@pytest.mark.parametrize("name", ALL)
def test_guided_backprop_is_the_gradient_where_there_is_no_relu(models, name):
    model = make(models, name)
    x, _, targets = data(model, name)
    found = propagate(Rectified(True), model, x, targets)[0]
    point = x.clone().requires_grad_()
    slope = torch.autograd.grad(model(point).gather(1, targets[:, None]).sum(), point)[0]
    assert bool(found.isfinite().all())
    assert bool(found.abs().sum() > 0)
    # a change of 1e-16 in the input moves the gradient of efficientnet_b0 by 3e-10
    assert (worst(found, slope) < 1e-8) == (name in (*TRANSFORMER, "efficientnet_b0"))


@pytest.mark.parametrize(
    "name", [p if p.values[0] == "vit_b_16" else pytest.param(*p.values, marks=pytest.mark.slow) for p in ALL]
)
def test_presets_give_finite_maps(models, name):
    model = make(models, name)
    x, _, targets = data(model, name)
    for composite in (
        Composite(rules.alpha_beta(2, 1), rules.epsilon(), rules.flat()),
        Composite(rules.gamma(), rules.gamma()),
    ):
        for engine in (LRP, AttentionLRP):
            if engine is AttentionLRP or name not in TRANSFORMER:
                found = propagate(engine(composite), model, x, targets, "output")[0]
                assert bool(found.isfinite().all())
                assert bool(found.abs().sum() > 0)


@pytest.mark.parametrize("name", [p for p in ALL if p.values[0] in TRANSFORMER])
def test_plain_lrp_names_what_it_cannot_do(models, name):
    model = make(models, name)
    x, _, targets = data(model, name)
    with pytest.raises(UnsupportedOperation, match=r"layer_norm.*attn-lrp"):
        propagate(LRP(ZERO), model, x, targets, "output")


# -- timm ------------------------------------------------------------------------------------------------

TIMM = {
    "vit_tiny_patch16_224": "followed",
    "deit_tiny_distilled_patch16_224": "followed",
    "vit_small_patch14_reg4_dinov2": "followed",  # registers, LayerScale
    "eva02_tiny_patch14_224": "followed",  # rotary positions, SwiGLU
    "swin_tiny_patch4_window7_224": "normalised",
    "swinv2_tiny_window8_256": "normalised",  # cosine attention
    "maxvit_pico_rw_256": "normalised",
    "convnext_atto": "normalised",
    "convnextv2_atto": "normalised",  # global response normalisation
    "xcit_nano_12_p16_224": "normalised",
    "edgenext_xx_small": "normalised",
    "mixer_s32_224": "normalised",
    "levit_128s": "normalised",  # caches its position biases
    "tiny_vit_5m_224": "normalised",
    "mobilevit_xxs": "normalised",
    "resmlp_12_224": "plain",
    "resnet18": "plain",
    "regnety_002": "plain",
    "efficientnet_b0": "plain",
    "efficientnet_lite0": "plain",
    "tf_efficientnetv2_b0": "plain",
    "mobilenetv3_small_050": "plain",
    "mobilenetv4_conv_small": "plain",
    "fastvit_t8": "plain",
}
TIMM_QUICK = ("vit_tiny_patch16_224", "mobilenetv3_small_050", "edgenext_xx_small")
SIDE = {"vit_small_patch14_reg4_dinov2": 56, "eva02_tiny_patch14_224": 56}
POSITIONS = ("cls_token", "dist_token", "reg_token", "pos_embed", "token_projection")
EACH = [pytest.param(name, marks=[] if name in TIMM_QUICK else pytest.mark.slow) for name in TIMM]


@pytest.fixture(scope="module")
def timm(models):  # it imports torchvision
    return pytest.importorskip("timm")


def made(timm, name, bias=True):
    """A network of timm with random weights and statistics; without bias, nothing is added to the signal."""
    side, options = SIDE.get(name, 64), {"pretrained": False, "num_classes": 10}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        try:
            model = timm.create_model(name, img_size=side, **options)
        except TypeError:  # networks for any size
            model = timm.create_model(name, **options)
        model = model.double().train()
        for key, weight in model.named_parameters():
            if weight.ndim == 1:  # scales, LayerScale among them, and shifts
                span = (0.5, 1.5) if weight.abs().max() > 0 else (-0.2, 0.2)
                weight.data.uniform_(*span)
            elif weight.abs().max() == 0:
                weight.data.normal_(0, 0.1)
            if key.startswith(("head", "classifier", "fc")) and weight.ndim == 2:
                weight.data.normal_(0, weight.shape[1] ** -0.5)
        norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        for layer in norms:
            layer.momentum = 1.0
        if norms:
            model(torch.randn(4, 3, side, side, dtype=torch.float64))
        for layer in norms:
            layer.running_var *= torch.rand_like(layer.running_var) * 1.5 + 0.5
            layer.running_mean += 0.3 * torch.randn_like(layer.running_mean) * layer.running_var.sqrt()
        if not bias:
            for layer in norms:
                layer.running_mean.zero_()
            for key, weight in model.named_parameters():
                if key.endswith(("bias", ".beta")) or any(word in key for word in POSITIONS):
                    weight.data.zero_()
    return model.eval()


def pictures(name):
    side, generator = SIDE.get(name, 64), torch.Generator().manual_seed(5)
    return torch.randn(2, 2, 3, side, side, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("name", EACH)
def test_timm_relevance_is_conserved_without_bias(timm, name):
    model, x = made(timm, name, bias=False), pictures(name)[0]
    targets = model(x).argmax(1)
    engines = [AttentionLRP(ZERO, through_softmax=False), LRP(ZERO)]
    for engine in engines[: 2 if TIMM[name] == "plain" else 1]:
        found = propagate(engine, model, x, targets, "output")[0].flatten(1).sum(1)
        assert worst(found, chosen(model, x, targets)) < 1e-10
    if TIMM[name] != "plain":
        with pytest.raises(UnsupportedOperation, match="attn-lrp"):
            propagate(engines[1], model, x, targets, "output")


@pytest.mark.parametrize("reveal", [False, True], ids=["rescale", "reveal-cancel"])
@pytest.mark.parametrize("name", EACH)
def test_timm_deeplift_contributions_add_up(timm, name, reveal):
    model, (x, baseline) = made(timm, name), pictures(name)
    targets = model(x).argmax(1)
    change = chosen(model, x, targets) - chosen(model, 0.3 * baseline, targets)
    assert worst(deeplift(model, x, 0.3 * baseline, targets, reveal).flatten(1).sum(1), change) < 1e-10


@pytest.mark.parametrize("name", EACH)
def test_timm_methods_run_or_say_why_not(timm, name):
    model, x = made(timm, name), pictures(name)[0]

    def run(method, **parameters):
        maps = verax.explain(model, x, method=method, **parameters)
        assert bool(maps.isfinite().all())
        assert maps.abs().sum() > 0

    run("guided-backprop")
    run("attn-lrp")
    if TIMM[name] == "plain":
        run("deep-taylor", low=-5.0, high=5.0)
    else:
        with pytest.raises(UnsupportedOperation, match="attn-lrp"):
            run("deep-taylor")
    for method in ("chefer", "attention-rollout"):
        if TIMM[name] == "followed":
            run(method)
        else:
            with pytest.raises(UnsupportedOperation, match=r"attention|Attention"):
                run(method)
