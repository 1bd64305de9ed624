"""Modules and weights of a network as PyTorch gives them, and networks that nobody else's code runs in."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

import verax
from verax.engine import multipliers
from verax.networks.anatomy import Anatomy, device_of, homely, modules_of, weights_of
from verax.networks.inference import outputs
from verax.networks.starts import initialise


class Own(nn.Module):
    """Says for itself what it is made of."""

    def __init__(self):
        super().__init__()
        self.shown, self.hidden = nn.Linear(2, 2), nn.Linear(2, 2)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        yield prefix, self
        yield from self.shown.named_modules(memo, f"{prefix}.shown", remove_duplicate)

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        yield from self.shown.named_parameters(prefix, recurse, remove_duplicate)

    def forward(self, x):
        return self.hidden(self.shown(x))


class Wrapped(nn.Module):
    """Holds a network in a list, and hands out its parts itself."""

    def __init__(self):
        super().__init__()
        self.held = [nn.Sequential(nn.Linear(2, 2), nn.Dropout(), nn.Linear(2, 2)).double()]

    def modules(self):
        return iter([self, *self.held[0].modules()])

    def parameters(self, recurse=True):
        return self.held[0].parameters(recurse)

    def forward(self, x):
        return self.held[0](x)


def shared():
    layer = nn.Linear(3, 3)
    tied = nn.Linear(3, 3)
    tied.weight = layer.weight
    model = nn.Sequential(layer, nn.ModuleDict({"a": layer, "b": nn.ReLU()}), tied, nn.Sequential())
    model.register_module("missing", None)
    return model


MODELS = {
    "plain": lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2)),
    "none": nn.Identity,
    "shared": shared,
    "own": Own,
    "wrapped": Wrapped,
    "own inside": lambda: nn.Sequential(nn.Linear(2, 2), Own(), nn.ReLU()),
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU())),
    "scripted inside": lambda: nn.Sequential(torch.jit.script(nn.Linear(2, 2)), nn.ReLU()),
    "parametrised": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))),
    "resnet18": lambda: initialise("resnet18", 2, 0),
    "vit": lambda: initialise("vit", 2, 0),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_walk_gives_what_pytorch_gives(name):
    model = MODELS[name]()
    assert list(map(id, modules_of(model))) == list(map(id, model.modules()))
    found = list(weights_of(model))
    if "scripted" not in name:  # whose weights are other objects every time
        assert list(map(id, found)) == list(map(id, model.parameters()))
    assert [weight.shape for weight in found] == [weight.shape for weight in model.parameters()]


@pytest.mark.parametrize("deep", [False, True])
def test_hidden_modules_are_in_eval_mode_too(deep):
    model = Own()
    model.hidden = nn.Sequential(nn.Dropout(0.9), nn.Linear(2, 2))
    whole = nn.Sequential(nn.Linear(2, 2), model) if deep else model
    x = torch.ones(4, 2)
    with torch.no_grad():
        wanted = whole.eval()(x)
    whole.train()
    torch.testing.assert_close(outputs(whole, x), wanted)
    assert model.hidden[0].training


def test_devices_and_types_are_those_of_the_first_weight_or_buffer():
    class Buffered(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.zeros(2, device="meta"))

    assert device_of(Buffered()) == torch.device("meta")
    assert device_of(nn.Identity()) == torch.device("cpu")
    halved = Anatomy.of(nn.Sequential(nn.Linear(2, 2).half(), nn.Linear(2, 2)))
    assert halved.dtype(torch.float64) == torch.float16


class Drawing(nn.Module):
    """Draws from NumPy's global stream whenever it runs."""

    def forward(self, x):
        return x * float(np.random.rand())  # noqa: NPY002


def hooked():
    model = nn.Sequential(nn.Linear(3, 2))
    model[0].register_forward_hook(lambda module, given, made: made * float(np.random.rand()))  # noqa: NPY002
    return model


def replaced():
    model = nn.Sequential(nn.Linear(3, 2))
    inner = model[0].forward
    model[0].forward = lambda x: inner(x) * float(np.random.rand())  # noqa: NPY002
    return model


def given():
    """A layer of PyTorch that calls somebody's function."""

    def drawing(x):
        return x * float(np.random.rand())  # noqa: NPY002

    layer = nn.TransformerEncoderLayer(3, 1, 4, 0.0, activation=drawing, batch_first=True)
    return nn.Sequential(nn.Unflatten(1, (1, 3)), layer, nn.Flatten())


def added():
    return nn.Sequential(nn.Linear(3, 2), Drawing())


@pytest.mark.parametrize("make", [added, hooked, replaced, given])
def test_a_network_that_draws_from_numpy_draws_the_same_and_leaves_no_trace(make):
    model, x = make(), torch.rand(2, 3)
    assert not homely(modules_of(model))
    targets = torch.zeros(2, dtype=torch.long)
    maps = verax.explain(model, x, targets, method="gradient")  # also asks how many outputs there are
    _, before, place, *_ = np.random.get_state()  # noqa: NPY002
    assert torch.equal(maps, verax.explain(model, x, targets, method="gradient"))
    _, after, still, *_ = np.random.get_state()  # noqa: NPY002
    assert (before == after).all()
    assert place == still


def test_code_that_is_put_into_pytorch_is_no_home(monkeypatch):
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    assert homely(modules_of(model))
    hook = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not homely(modules_of(model))
    finally:
        hook.remove()
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x)
    assert not homely(modules_of(model))

    class Subclass(torch.Tensor):
        pass

    other = nn.Sequential(nn.Linear(3, 2))
    other[0].weight = nn.Parameter(torch.zeros(2, 3).as_subclass(Subclass))
    assert not homely(modules_of(other))


def test_the_wrapped_network_is_run_in_its_own_type_and_without_dropout():
    model, x = Wrapped(), torch.rand(3, 2)
    model.held[0].train()
    maps = [verax.explain(model, x, torch.zeros(3, dtype=torch.long), "gradient", seed=s) for s in (0, 1)]
    assert torch.equal(*maps)
    assert model.held[0].training


@pytest.mark.parametrize("kind", ["own", "builtin"])
def test_precision_and_cudnn_are_set_for_a_method_and_put_back(kind):
    cudnn, seen = torch.backends.cudnn, []

    def ask():
        return torch.get_float32_matmul_precision(), cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32

    class Asking(nn.Module):
        def forward(self, x):
            seen.append(ask())
            return x @ torch.ones(3, 2)

    def setting(model, inputs, targets):
        cudnn.benchmark, cudnn.allow_tf32 = True, True
        return inputs + 0 * model(inputs).sum()

    before = ask()
    try:
        torch.set_float32_matmul_precision("high")
        wanted = ask()
        targets = torch.zeros(2, dtype=torch.long)
        verax.explain(Asking(), torch.rand(2, 3), targets, setting if kind == "own" else "gradient")
        assert ask() == wanted
        assert seen[-1] == ("highest", kind == "own", True, kind == "own")
    finally:
        torch.set_float32_matmul_precision(before[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_layers_of_pytorch_alone_are_homely():
    assert homely(modules_of(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten())))
    assert homely(modules_of(initialise("vit", 2, 0)))  # a known network
    assert not homely(modules_of(nn.Sequential(nn.TransformerEncoderLayer(4, 2))))
    for name in MODELS:
        assert homely(modules_of(MODELS[name]())) == (name in ("plain", "none", "resnet18", "vit"))


def test_the_newer_switch_of_precision_is_no_obstacle_on_a_cpu(monkeypatch):
    class Other(nn.Sequential):
        pass

    model = Other(nn.Flatten(), nn.Linear(12, 2))
    x, targets = torch.rand(2, 3, 4), [0, 1]
    wanted = verax.explain(model, x, targets, "gradient")
    monkeypatch.setattr(torch.backends, "fp32_precision", "tf32")
    assert torch.equal(verax.explain(model, x, targets, "gradient"), wanted)


@pytest.mark.parametrize("method", ["smoothgrad", "gradient-shap"])
@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_the_callers_default_type_changes_no_draw(method, kind):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 2))
    x, targets = torch.rand(2, 1, 8, 8), [0, 1]
    wanted = verax.explain(model, x, targets, method)
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        assert torch.equal(verax.explain(model, x, targets, method), wanted)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("method", ["edge", "fullgrad"])
def test_autocast_of_the_caller_changes_no_rule(method):
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 2))
    x, targets = torch.rand(3, 1, 8, 8), [0, 1, 0]
    wanted = verax.explain(model, x, targets, method)
    with torch.autocast("cpu"):
        assert torch.equal(verax.explain(model, x, targets, method), wanted)


@pytest.mark.parametrize("size", [None, 5])
def test_baselines_and_segments_of_each_sample_go_with_it(size):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(64, 2)
    )
    x, targets = torch.rand(10, 3, 256, 256), [0] * 10
    more = {} if size is None else {"batch_size": size}
    for method, name, given in (
        ("integrated-gradients", "baseline", torch.rand(10, 3, 256, 256)),
        ("feature-ablation", "segments", torch.arange(10)[:, None, None, None] * 9 + torch.arange(256) // 99),
    ):
        rows = given.expand(10, -1, 256, 256)
        each = [
            verax.explain(model, x[i : i + 1], [0], method, settings={name: rows[i : i + 1]}) for i in (0, 9)
        ]
        maps = verax.explain(model, x, targets, method, settings={name: rows}, **more)
        torch.testing.assert_close(maps[[0, 9]], torch.cat(each), rtol=1e-4, atol=1e-6)
        with pytest.raises(
            verax.errors.InvalidInput, match=rf"'{name}' of shape \(5, .*\) does not fit 10 samples"
        ):
            verax.explain(model, x, targets, method, settings={name: rows[:5]}, **more)


@pytest.mark.parametrize("kind", ["no columns", "sparse"])
def test_outputs_that_are_none_are_refused_in_a_sentence(kind):
    class Odd(nn.Module):
        def forward(self, x):
            return x[:, :0] if kind == "no columns" else x.to_sparse()

    with pytest.raises(verax.errors.InvalidInput, match="must give a tensor"):
        verax.explain(Odd(), torch.rand(2, 4), None, "gradient")


def test_targets_that_went_with_their_outputs_are_refused_by_methods_that_ask_nobody():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 5))
    x, targets = torch.rand(3, 1, 8, 8), [4, 0, 1]
    verax.explain(model, x, targets, "gradient")
    model[1].weight.data, model[1].bias.data = model[1].weight.data[:3], model[1].bias.data[:3]
    with pytest.raises(verax.errors.InvalidInput, match="Target 4 does not exist"):
        verax.explain(model, x, targets, "random")


@pytest.mark.parametrize("kind", ["sparse", "nested", "complex"])
def test_strange_baselines_get_a_sentence(kind):
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    given = torch.zeros(3, 1, 8, 8)
    makes = {"sparse": given.to_sparse, "complex": lambda: given + 1j}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        strange = makes[kind]() if kind in makes else torch.nested.nested_tensor(list(given))
    with pytest.raises(verax.errors.VeraxError):
        verax.explain(model, torch.rand(3, 1, 8, 8), 0, "occlusion", baseline=strange)


def test_other_threads_see_no_rule(monkeypatch):
    """Guided backprop of known networks gives rules to calls of its own thread, not to the network."""
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    x, targets = torch.randn(4, 2, 8, 8), torch.tensor([0, 1, 2, 0])

    def slope(network):
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(network(leaf).gather(1, targets[:, None]).sum(), leaf)[0]

    right, found = slope(model), []
    usual = multipliers.gradient

    def meanwhile(*given):
        with ThreadPoolExecutor(1) as pool:
            found.append(pool.submit(slope, model).result())
        return usual(*given)

    monkeypatch.setattr(multipliers, "gradient", meanwhile)
    guided = verax.explain(model, x, targets, "guided-backprop")
    assert found
    assert all(torch.equal(one, right) for one in found)
    assert not torch.allclose(guided, right)
