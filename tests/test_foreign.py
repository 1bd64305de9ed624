"""Networks of other libraries work as they are: what they give is unwrapped, in one place."""

from collections import OrderedDict
from typing import NamedTuple

import pytest
import torch
from torch import nn

import verax
from verax.errors import InvalidInput
from verax.networks.zoo import let_torchvision_import

TASK = "textbox/complex-cr1"


class ModelOutput(OrderedDict):
    """As Hugging Face's classifiers give it: an ordered mapping whose entries are attributes."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


class Given(NamedTuple):
    logits: torch.Tensor
    aux_logits: torch.Tensor


class Wrapped(nn.Module):
    """A network whose outputs come in something else."""

    def __init__(self, inner, wrap):
        super().__init__()
        self.inner, self.wrap = inner, wrap

    def forward(self, pixel_values):
        return self.wrap(self.inner(pixel_values))


WRAPPINGS = {
    "object": lambda y: ModelOutput(logits=y, hidden_states=(y[:, :, None, None],)),
    "mapping": lambda y: {"loss": None, "logits": y},
    "tuple": lambda y: (y, (y[:, :, None],), None),
    "named tuple": lambda y: Given(y, y + 1),
}


class Lightning(nn.Module):
    """As Lightning's modules are: an `nn.Module` with properties that raise outside of a training."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    @property
    def trainer(self):
        raise RuntimeError("is not attached to a Trainer")

    @property
    def device(self):
        return next(self.parameters()).device

    def forward(self, x):
        return self.net(x)


@pytest.fixture(scope="module")
def plain():
    task = verax.task(TASK)
    return task.network("cnn4"), task.cases(n=1)[:4]


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("method", ["gradient", "lrp-epsilon", "grad-cam", "occlusion"])
def test_maps_are_those_of_the_network_inside(plain, wrapping, method):
    model, cases = plain
    wrapped = Wrapped(model, WRAPPINGS[wrapping])
    for targets in (cases.targets, None):
        maps = verax.explain(wrapped, cases.inputs, targets, method=method)
        assert torch.equal(maps, verax.explain(model, cases.inputs, targets, method=method))


def test_everything_else_takes_them_too(plain):
    model, cases = plain
    wrapped = Wrapped(model, WRAPPINGS["object"])
    for output in ("probability", "margin"):
        maps = verax.explain(wrapped, cases.inputs, cases.targets, output=output)
        assert torch.equal(maps, verax.explain(model, cases.inputs, cases.targets, output=output))
    assert verax.certify(wrapped, TASK, n=5).passed
    method = "integrated-gradients"
    maps = verax.explain(wrapped, cases.inputs, cases.targets, method=method)
    tables = [
        verax.score(maps, cases, "faithfulness", model=network, method=method) for network in (model, wrapped)
    ]
    assert tables[0].equals(tables[1])
    gaps = [verax.completeness(n, cases.inputs, cases.targets, maps, method) for n in (model, wrapped)]
    assert torch.equal(*gaps)
    peer = verax.explain(wrapped, cases.inputs, cases.targets, method="captum:IntegratedGradients", n_steps=4)
    assert peer.shape == cases.inputs.shape


def test_models_are_aligned_as_they_are():
    from verax.tasks.alignment.faces import Faces

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 15 * 15, 2))
    faces = Faces({0: 2, 3: 2})
    scores = [
        verax.align(model, faces, method=method).scores
        for method in ("grad-cam", "gradient")
        for model in (net, Wrapped(net, WRAPPINGS["object"]), Lightning(net))
    ]
    for first, second, third in (scores[:3], scores[3:]):
        assert first.equals(second)
        assert first.equals(third)
    one = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 1))  # one output: yes or no
    both = [
        verax.align(m, faces, method="gradient").scores for m in (one, Wrapped(one, WRAPPINGS["mapping"]))
    ]
    assert both[0].equals(both[1])


def test_an_own_method_finds_the_layers(plain):
    model, cases = plain
    wrapped = Wrapped(model, WRAPPINGS["object"])

    def looking(network, inputs, targets):
        assert isinstance(network.inner[0], nn.Conv2d)
        assert network.wrap is WRAPPINGS["object"]
        assert not hasattr(network, "nothing")
        return inputs * network(inputs)[:, :1, None, None].detach()

    assert verax.explain(wrapped, cases.inputs, method=looking).shape == cases.inputs.shape


def test_lightning_modules(plain):
    model, cases = plain
    lit = Lightning(model)
    for method in ("gradient", "grad-cam", "captum:Saliency"):
        maps = verax.explain(lit, cases.inputs, cases.targets, method=method)
        assert torch.equal(maps, verax.explain(model, cases.inputs, cases.targets, method=method))
    assert verax.certify(lit, TASK, n=5).passed


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_tiny_networks_of_timm(name):
    let_torchvision_import()
    import timm

    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=3).eval()
    inputs = torch.rand(2, *model.default_cfg["input_size"])
    for method in ("gradient", "grad-cam") if name == "test_resnet" else ("attn-lrp", "chefer"):
        maps = verax.explain(model, inputs, method=method)
        assert maps.isfinite().all()
        assert maps.abs().sum() > 0


@pytest.mark.parametrize(
    ("wrap", "words"),
    [
        (lambda y: {"scores": y, "loss": None}, "something with logits, not dict with scores, loss"),
        (lambda y: "cat", "something with logits, not str"),
        (lambda y: (y, y), "gives 2 things, 2 of which can be the outputs"),
        (lambda y: (y[:, :, None, None],), "gives 1 things, none of which can be the outputs"),
        (lambda y: ModelOutput(logits=y[:, :, None]), "not shape"),
    ],
)
def test_a_network_without_logits_gets_one_sentence(plain, wrap, words):
    model, cases = plain
    wrapped = Wrapped(model, wrap)
    with pytest.raises(InvalidInput, match=words):
        verax.explain(wrapped, cases.inputs, cases.targets)
    with pytest.raises(InvalidInput, match=words):
        verax.certify(wrapped, TASK, n=5)


def test_whatever_a_network_raises_is_one_sentence(plain):
    def refuse(y):
        raise ValueError("wrong size\nof the picture")

    with pytest.raises(InvalidInput, match=r"failed on inputs of shape .* with ValueError: wrong size$"):
        verax.certify(Wrapped(plain[0], refuse), TASK, n=5)


@pytest.mark.parametrize("targets", [None, torch.tensor([1])])
def test_a_missing_batch_axis_is_named(plain, targets):
    model, cases = plain
    with pytest.raises(InvalidInput, match=r"A batch axis is missing: inputs of shape \(3, 64, 64\)"):
        verax.explain(model, cases.inputs[0], targets)
    with pytest.raises(InvalidInput, match="a batch axis is missing, so write inputs"):
        verax.explain(nn.Linear(4, 2), torch.rand(4))
    with pytest.raises(InvalidInput, match="cannot run on inputs of shape"):  # something else is wrong
        verax.explain(model, torch.rand(2, 5, 64, 64))


def test_names_of_classes_are_not_taken_for_scores():
    class Names(nn.Module):
        def forward(self, x):
            return x.flatten(1)[:, :3].argmax(1)

    with pytest.raises(InvalidInput, match="not scores"):
        verax.explain(Names(), torch.rand(2, 3, 4, 4))
