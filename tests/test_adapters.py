"""Other people's implementations as methods: against ours, and what they refuse.

pytorch_grad_cam shows a map by rectifying it, moving its minimum to 0 and its maximum to 1, enlarging it
(bilinear, in float32), and moving minimum and maximum once more. All of that but the rectifying is affine in
each sample, so `shown` does it to our enlarged maps and the two must agree. It adds 1e-7 to every maximum and
1e-6 to denominators of Grad-CAM++; heads are scaled up here so that these do not count.
"""

import importlib

import numpy as np
import pytest
import torch
from torch import nn

import verax
from spellings import plain
from verax.errors import InvalidInput, InvalidParameter, MethodFailed, MissingExtra, UnknownName
from verax.methods import METHODS, adapters
from verax.methods import cams as own
from verax.methods.references import deep_shap
from verax.seeding import Streams

TARGETS = torch.tensor([0, 1, 2, 3, 4, 0])
GRADIENTS = ("GradCAM", "GradCAMElementWise", "GradCAMPlusPlus", "HiResCAM", "LayerCAM", "XGradCAM")
EIGEN = ("EigenCAM", "EigenGradCAM", "KPCA_CAM", "SegEigenCAM")
AROUND = ("FinerCAM", "RefineCAM", "SESS")
CAMS = (*GRADIENTS, *EIGEN, *AROUND, "AblationCAM", "FEM", "FullGrad", "RandomCAM", "ScoreCAM", "ShapleyCAM")
BLIND = {"EigenCAM", "FEM", "KPCA_CAM", "RandomCAM"}
"""Classes whose maps do not depend on the explained output, by definition."""


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


X = drawn(6, 3, 14, 14)


def error(a, b):
    assert a.shape == b.shape
    return float((a - b).norm() / b.norm())


def network(*layers, seed=0):
    """A network in float64 whose biases count."""
    model = nn.Sequential(*layers).double().eval()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for weight in model.parameters():
            nn.init.uniform_(weight, -0.5, 0.5) if weight.ndim == 1 else nn.init.xavier_normal_(weight)
    return model


# -- shap ------------------------------------------------------------------------------------------------


def mlp(outputs=5, activation=nn.ReLU):
    return network(
        nn.Linear(7, 12), activation(), nn.Linear(12, 9), activation(), nn.Linear(9, outputs), seed=4
    )


def pictures():
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2)]
    model = network(*layers, nn.Conv2d(6, 8, 3), nn.ELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 5))
    model[1].running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(1))
    return model


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU])
def test_deep_shap_equals_shap_on_vectors(activation):
    model, x, references = mlp(activation=activation), drawn(6, 7), drawn(9, 7, seed=1)
    theirs = METHODS.get("shap:DeepExplainer").function(model, x.clone(), TARGETS, references)
    ours = deep_shap(model, x, TARGETS, Streams.of(torch.arange(6), "test"), references)
    assert error(ours, theirs) < 1e-10


def test_deep_shap_equals_shap_on_pictures_with_one_pooling():
    model, references = pictures(), drawn(4, 3, 14, 14, seed=1)
    theirs = METHODS.get("shap:DeepExplainer").function(model, X.clone(), TARGETS, references)
    ours = deep_shap(model, X, TARGETS, Streams.of(torch.arange(6), "test"), references)
    assert error(ours, theirs) < 1e-5  # shap calls differences below 1e-6 none


def test_shap_through_explain():
    x, references = drawn(6, 7), drawn(9, 7, seed=1)
    deep = verax.explain(mlp(), x, TARGETS, method="shap:DeepExplainer", references=references)
    assert error(deep, verax.explain(mlp(), x, TARGETS, method="deep-shap", references=references)) < 1e-6
    black = verax.explain(mlp(), x, TARGETS, method="shap:DeepExplainer")
    assert error(black, verax.explain(mlp(), x, TARGETS, method="deeplift-rescale")) < 1e-6
    # an estimate of integrated gradients, in float32
    many = verax.explain(mlp(), x, TARGETS, method="shap:GradientExplainer", nsamples=2000, batch_size=500)
    exact = verax.explain(mlp(), x, TARGETS, method="integrated-gradients", steps=200)
    assert error(many, exact) < 0.05
    few = verax.explain(mlp(), x, TARGETS, method="shap:GradientExplainer", nsamples=2)
    assert error(few, exact) > 0.05  # the parameter arrived


def test_shap_explains_the_class_that_is_asked_for():
    x = drawn(6, 7)
    mixed = verax.explain(mlp(), x, TARGETS, method="shap:DeepExplainer")
    for row, target in enumerate(TARGETS.tolist()):
        alone = verax.explain(mlp(), x[row : row + 1], target, method="shap:DeepExplainer")
        assert error(mixed[row : row + 1], alone) < 1e-6


def test_shap_refuses_in_sentences():
    for name in ("KernelExplainer", "TreeExplainer", "LinearExplainer", "Explanation"):
        with pytest.raises(
            UnknownName, match=f"^shap:{name} takes no PyTorch network; shap:DeepExplainer and"
        ):
            METHODS.get(f"shap:{name}")
    with pytest.raises(UnknownName, match="did you mean 'DeepExplainer'"):
        METHODS.get("shap:DeepExplaner")
    for name, value in (("ranked_outputs", 1), ("return_variances", True)):
        with pytest.raises(InvalidParameter, match=name):
            verax.explain(mlp(), drawn(2, 7), method="shap:GradientExplainer", **{name: value})
    with pytest.raises(InvalidParameter, match="must be a tensor"):
        verax.explain(mlp(), drawn(2, 7), method="shap:DeepExplainer", references=4)
    with pytest.raises(InvalidInput, match=r"\(references, 7\)"):
        verax.explain(mlp(), drawn(2, 7), method="shap:DeepExplainer", references=drawn(4, 6))


def test_shap_says_when_it_cannot_follow_a_network():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = mlp()[0], mlp()[2]

        def forward(self, x):
            return 50 * self.second(self.first(x).relu())

    with pytest.raises(MethodFailed, match="do not sum up") as caught:
        verax.explain(Functional(), drawn(2, 7), method="shap:DeepExplainer")
    assert "\n" not in str(caught.value)
    verax.explain(Functional(), drawn(2, 7), method="shap:DeepExplainer", check_additivity=False)


# -- pytorch_grad_cam ------------------------------------------------------------------------------------


def strong(factor=1e3):
    """Convolutions and a head with large weights; the layer looked at is "2", without a ReLU behind it."""
    layers = [nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.Tanh(), nn.Flatten()]
    model = network(*layers, nn.Linear(200, 5), seed=2)
    model[5].weight.data *= factor
    return model


def shown(maps):
    """Our enlarged map as pytorch_grad_cam shows it (see above)."""
    low, high = maps.amin((1, 2, 3), keepdim=True), maps.amax((1, 2, 3), keepdim=True)
    return (maps - low) / (high - low)


def theirs(name, model, layer="2", targets=TARGETS, **parameters):
    return METHODS.get(f"grad-cam:{name}").function(model, X.clone(), targets, layer=layer, **parameters)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("GradCAM", own.grad_cam),
        ("GradCAMPlusPlus", own.grad_cam_plus_plus),
        ("HiResCAM", own.hires_cam),
        ("LayerCAM", own.layer_cam),
    ],
)
def test_cams_by_gradients_equal_pytorch_grad_cam(name, ours):
    model = strong()
    assert error(theirs(name, model), shown(ours(model, X, TARGETS, layer="2"))) < 1e-5


def test_score_cam_equals_pytorch_grad_cam_where_nothing_is_enlarged():
    """It enlarges masks with aligned corners, which moves them by half a pixel; the paper's code does not.

    So the layer here has the size of the input. Our masks at other sizes: `test_cams.py`, by a loop.
    """
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU()]
    model = network(*layers, nn.AvgPool2d(7), nn.Flatten(), nn.Linear(32, 5), seed=2)
    ours = own.score_cam(model, X, TARGETS, layer="2")
    assert error(theirs("ScoreCAM", model), shown(ours)) < 1e-5
    smaller = strong(1)
    assert error(theirs("ScoreCAM", smaller), shown(own.score_cam(smaller, X, TARGETS, layer="2"))) > 1e-3


def rectified():
    """The layer looked at is the ReLU "3"."""
    layers = [nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU(), nn.Flatten()]
    return network(*layers, nn.Linear(200, 5), seed=2)


def test_ablation_cam_equals_pytorch_grad_cam_where_it_follows_the_paper():
    """It does so behind a ReLU and for positive outputs.

    Where activations can be negative it writes -1e7 over a channel and not 0. It divides by the output, not
    by its magnitude: a negative one turns its map around, which is shown by turning the network around.
    """
    model = rectified()
    rows = model(X).gather(1, TARGETS[:, None])[:, 0] > 0
    assert rows.any()
    wanted = shown(own.ablation_cam(model, X, TARGETS, layer="3"))[rows]
    assert error(theirs("AblationCAM", model, layer="3")[rows], wanted) < 1e-5
    turned = rectified()
    for weight in turned[5].parameters():
        weight.data *= -1
    assert error(theirs("AblationCAM", turned, layer="3")[rows], wanted) < 1e-5
    ours, honest = (own.ablation_cam(m, X, TARGETS, layer="3", relu=False) for m in (model, turned))
    assert error(honest, -ours) < 1e-12


def test_finer_cam_compares_with_other_classes():
    model = strong(1)
    assert error(theirs("FinerCAM", model), theirs("GradCAM", model)) > 0.05
    assert error(theirs("FinerCAM", model), theirs("FinerCAM", model, alpha=0.2)) > 0.05


def test_parameters_reach_constructor_and_call():
    model = rectified()
    assert error(theirs("SESS", model, num_scales=1), theirs("SESS", model)) > 0.01
    usual = theirs("GradCAM", model)
    assert error(theirs("GradCAM", model, reshape_transform=lambda t: t.flip(-1)), usual) > 0.01
    assert error(theirs("GradCAM", model, eigen_smooth=True), usual) > 0.01
    assert error(theirs("GradCAM", model, layer="0"), usual) > 0.01
    assert error(theirs("GradCAM", model, layer=None), usual) == 0  # the last convolution


@pytest.mark.parametrize("name", CAMS)
def test_cams_run_through_explain(name, capfd):
    model = plain()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    maps = verax.explain(model, X, TARGETS, method=f"grad-cam:{name}")
    assert maps.shape == X.shape
    assert bool(maps.isfinite().all())
    assert maps.max() > maps.min()
    assert torch.equal(maps, verax.explain(model, X, TARGETS, method=f"grad-cam:{name}"))
    other = verax.explain(model, X, (TARGETS + 1) % 5, method=f"grad-cam:{name}")
    assert torch.equal(maps, other) == (name in BLIND)
    assert not [m for m in model.modules() if m._forward_hooks or m._backward_hooks]
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert capfd.readouterr() == ("", "")  # no progress bar for every sample


def test_all_cams_of_the_package_are_covered():
    package = importlib.import_module("pytorch_grad_cam")
    refused = []
    for word in dir(package):
        if isinstance(getattr(package, word), type) and word not in CAMS:
            with pytest.raises(UnknownName, match="makes no maps by itself"):
                METHODS.get(f"grad-cam:{word}")
            refused.append(word)
    assert "GuidedBackpropReLUModel" in refused


def test_cams_refuse_in_sentences():
    with pytest.raises(InvalidInput, match="no convolution module"):
        verax.explain(mlp(), drawn(2, 7), method="grad-cam:GradCAM")
    with pytest.raises(InvalidParameter, match="no layer '77'"):
        verax.explain(strong(), X, method="grad-cam:GradCAM", layer="77")
    with pytest.raises(UnknownName, match="did you mean 'LayerCAM'"):
        METHODS.get("grad-cam:LayerCam")
    with pytest.raises(InvalidInput, match="compares outputs"):
        verax.explain(strong()[:5].append(nn.Linear(200, 1).double()), X, method="grad-cam:FinerCAM")


# -- all of them -----------------------------------------------------------------------------------------


class One(nn.Module):
    """A regression network: its outputs are ``(N,)``."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)[:, 0]


@pytest.mark.parametrize(
    "name",
    ["captum:IntegratedGradients", "zennit:EpsilonPlusFlat", "shap:DeepExplainer", "shap:GradientExplainer"]
    + [
        f"grad-cam:{name}" for name in ("GradCAM", "AblationCAM", "SESS", "FullGrad", "RefineCAM", "ScoreCAM")
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_networks_with_one_output(name):
    body = network(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(864, 1), seed=2)
    column, flat = verax.explain(body, X, method=name), verax.explain(One(body), X, method=name)
    assert bool(flat.isfinite().all())
    assert flat.abs().sum() > 0
    assert torch.equal(column, flat)


FUNCTIONAL = "same map for the functional spelling of a network"
IN_PLACE = "same map for the in-place spelling of a network"
ORDER = {"does not depend on the batch", "does not depend on the order"}
LEFT = "leaves network and inputs untouched"


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("shap:DeepExplainer", {FUNCTIONAL, IN_PLACE, LEFT}),
        ("shap:GradientExplainer", ORDER),
        ("grad-cam:GradCAM", {IN_PLACE, LEFT}),
        ("grad-cam:ScoreCAM", {IN_PLACE}),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_the_checks_find(name, faults):
    report = verax.check_method(name)
    assert {check.name for check in report.checks if check.passed is False} == faults, str(report)


def test_draws_are_seeded_and_the_global_stream_is_put_back():
    np.random.seed(5)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002

    def run(seed):
        return verax.explain(mlp(), drawn(3, 7), 0, method="shap:GradientExplainer", nsamples=5, seed=seed)

    first, again, other = run(0), run(0), run(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize("peer", ["shap", "grad-cam"])
def test_a_missing_package_gives_the_command(peer, monkeypatch):
    real = importlib.import_module

    def missing(module, *rest):
        if module in ("shap", "pytorch_grad_cam"):
            raise ImportError(module)
        return real(module, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    adapter = getattr(adapters, peer.replace("-", "_"))
    with pytest.raises(MissingExtra, match=rf"^'{peer}' is not installed; .*'verax\[compare\]'$"):
        adapter("Anything")


@pytest.mark.parametrize("name", ["NoiseTunnel", "LayerActivation", "NeuronGradient"])
def test_classes_without_maps_of_the_input_are_refused(name):
    with pytest.raises(UnknownName, match="no map of the input"):
        verax.methods.METHODS.get(f"captum:{name}")
