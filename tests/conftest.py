"""Every test has a store of its own, so that nothing is read from or left in the user's cache, and the same
random numbers, whatever ran before it.

``--fast-paths always`` takes every fast path for networks of any size, ``never`` none of them: the proofs of
methods hold either way (`make test-full`).
"""

import random
import signal

import numpy as np
import pytest
import torch

from verax.engine import convolutions, features, kernels, layouts, multipliers, passes, spots


def pytest_addoption(parser):
    parser.addoption("--fast-paths", choices=("usual", "always", "never"), default="usual")
    parser.addoption("--gpu", action="store_true", help="fail where no GPU is, not even a pretended one")


def pytest_configure(config):
    # a shell hands down to what it starts in the background that Ctrl-C is to be ignored; tests press it
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--gpu") and not torch.cuda.is_available():
        raise pytest.UsageError("No GPU is here, not even a pretended one: see `make test-gpu`.")


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU, if only that of `make test-gpu`"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 (what other libraries draw from)
    torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def fast_paths(request, monkeypatch):
    wanted = request.config.getoption("--fast-paths")
    if wanted == "usual":
        return
    least = 0 if wanted == "always" else 2**62
    for module, name in ((convolutions, "_WORTH"), (convolutions, "_WORTH_ON_CPU"), (layouts, "_ROWS")):
        monkeypatch.setattr(module, name, least)
    if wanted == "never":
        for module in (features, multipliers, passes):
            monkeypatch.setattr(module, "apart", lambda *_: False)
    monkeypatch.setattr(spots, "_FEW", 1 if wanted == "always" else -1)
    monkeypatch.setattr(spots, "_CHANNELS", 1)
    if wanted == "always":
        quick = convolutions.quick

        def choose(call, cuda):
            simple = len(call.stride) == 2 and call.groups == 1 and max(call.dilation) == 1
            return quick(call, True) or (convolutions.by_phases if simple else None)

        def spelled(shape, padding, sides):
            apart = any(not 0 <= p < side for p, side in zip(padding, shape[2:], strict=True))
            ways = (kernels.by_product, kernels.in_reverse, kernels.directly)
            return None if apart else ways[shape[0] % 3]

        def forward(shape, padding, sides):
            apart = spelled(shape, padding, sides) is None
            return kernels.by_product if shape[0] % 2 and not apart else None

        ahead = convolutions.ahead
        monkeypatch.setattr(convolutions, "quick", choose)
        monkeypatch.setattr(convolutions, "ahead", lambda operation, call, cuda: ahead(operation, call, True))
        monkeypatch.setattr(kernels, "spelling", spelled)
        monkeypatch.setattr(kernels, "forward", forward)


@pytest.fixture(autouse=True)
def own_store(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("store")
    monkeypatch.setenv("VERAX_STORE", str(folder))
    return folder
