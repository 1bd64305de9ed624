"""Full float32 by fixed algorithms, whatever the caller has set, and all of it as it was afterwards."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import verax
from verax.networks.inference import halved, ordinary, outputs, undisturbed
from verax.networks.precision import _PLACES, precisely, products, searching

B = torch.backends


def old(name, value):
    return lambda: setattr(name(), "allow_tf32", value)


def new(name, value):
    return lambda: setattr(name(), "fp32_precision", value)


STATES = {
    "fresh": lambda: None,
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "convolutions": old(lambda: B.cudnn, False),
    "products": old(lambda: B.cuda.matmul, True),
    **{f"everything {value}": new(lambda: B, value) for value in ("ieee", "tf32")},
    **{f"cudnn {value}": new(lambda: B.cudnn, value) for value in ("ieee", "tf32")},
    **{f"cudnn.conv {value}": new(lambda: B.cudnn.conv, value) for value in ("ieee", "tf32")},
    "cudnn.rnn": new(lambda: B.cudnn.rnn, "ieee"),
    "cuda.matmul": new(lambda: B.cuda.matmul, "tf32"),
    **{f"mkldnn {value}": new(lambda: B.mkldnn, value) for value in ("tf32", "bf16")},
    **{f"mkldnn.matmul {value}": new(lambda: B.mkldnn.matmul, value) for value in ("tf32", "bf16")},
    "mkldnn.conv": new(lambda: B.mkldnn.conv, "bf16"),
}


def asked(ask):
    try:
        return ask()
    except RuntimeError as error:
        return type(error)


def settings():
    """All that torch says of itself."""
    kinds = (B, B.cudnn, B.mkldnn, *_PLACES)
    return (
        *(kind.fp32_precision for kind in kinds),
        asked(lambda: B.cudnn.allow_tf32),
        asked(lambda: B.cuda.matmul.allow_tf32),
        asked(torch.get_float32_matmul_precision),
        (B.cudnn.benchmark, B.cudnn.deterministic, B.cudnn.enabled),
        (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    )


@pytest.fixture(params=STATES)
def state(request):
    """The process as a caller may have set it."""
    before = settings()
    both = [(kind, kind.fp32_precision) for kind in (B, B.cudnn, B.mkldnn, *_PLACES)]
    tf32, precision = B.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    STATES[request.param]()
    yield settings()
    for kind, _ in both:
        kind.fp32_precision = "none"
    B.cudnn.allow_tf32 = tf32
    torch.set_float32_matmul_precision(precision)
    for kind, value in both:
        if kind.fp32_precision != value:
            kind.fp32_precision = value
    assert settings() == before


class Seen(TorchDispatchMode):
    """The settings in which operations run."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if "convolution" in str(operation) or "mm" in str(operation):
            dtypes = {each.dtype for each in args if isinstance(each, torch.Tensor)}
            self.found.add((*(place.fp32_precision for place in _PLACES[3:]), *dtypes))
        return operation(*args, **(kwargs or {}))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_everything_is_full_inside_and_as_it_was_outside(state, device):
    with precisely(torch.device(device)):
        inside = [place.fp32_precision for place in (_PLACES if device == "cuda" else _PLACES[3:])]
        assert set(inside) <= {"ieee", "none"}
        if device == "cuda":
            assert (B.cudnn.benchmark, B.cudnn.deterministic) == (False, True)
        with precisely(torch.device("cuda")):
            pass
        assert [place.fp32_precision for place in (_PLACES if device == "cuda" else _PLACES[3:])] == inside
    assert settings() == state
    with pytest.raises(ZeroDivisionError), precisely(torch.device(device)):
        1 / 0  # noqa: B018
    assert settings() == state


def test_studies_and_trainings_compute_as_a_fresh_process_does(state):
    """What is kept has a name that says nothing of the caller's settings."""
    B.cudnn.deterministic = B.cudnn.benchmark = True
    before = settings()
    with ordinary():
        places = {place: place.fp32_precision for place in _PLACES}
        assert {places.pop(place) for place in (B.cudnn.conv, B.cudnn.rnn)} == {"tf32"}
        assert set(places.values()) <= {"ieee", "none"}
        assert (B.cudnn.enabled, B.cudnn.benchmark, B.cudnn.deterministic) == (True, False, False)
    assert settings() == before
    B.cudnn.deterministic = B.cudnn.benchmark = False


def test_what_a_method_sets_is_put_back(state):
    named = products() is not None

    def rude(model, inputs, targets):
        B.cudnn.enabled, B.cudnn.benchmark, B.cudnn.deterministic = False, True, False
        if named:  # else nobody could say what it was
            torch.set_float32_matmul_precision("medium")
        B.mkldnn.conv.fp32_precision = "bf16"
        B.fp32_precision = "tf32"
        random.seed(1)
        return inputs

    drawn = random.getstate()
    verax.explain(network(), torch.rand(2, 3, 8, 8), method=rude)
    assert settings() == state
    assert random.getstate() == drawn


def test_a_method_that_draws_from_python_draws_the_same_again():
    def drawing(model, inputs, targets):
        return inputs * random.random()

    x = torch.rand(2, 3, 8, 8)
    maps = [verax.explain(network(), x, method=drawing, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(maps[0], maps[1])
    assert not torch.equal(maps[0], maps[2])


@pytest.mark.parametrize("state", ["fresh", "high", "products"], indirect=True)
def test_old_names_can_be_read_inside_where_they_could_outside(state):
    """Other people's methods run there, and look."""
    with precisely(torch.device("cuda")):
        assert B.cudnn.allow_tf32 is False
        assert B.cuda.matmul.allow_tf32 is False
        assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("state", ["everything tf32"], indirect=True)
def test_places_go_on_to_follow_the_whole_process(state):
    with precisely(torch.device("cuda")):
        pass
    B.fp32_precision = "ieee"
    assert {place.fp32_precision for place in _PLACES[3:]} == {"ieee"}
    B.fp32_precision = "tf32"


def test_networks_are_asked_and_explained_in_full(state):
    model, x = network(), torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    with Seen() as seen:
        found = outputs(model, x)
        maps = verax.explain(model, x, method="integrated-gradients")
        verax.explain(model, x, method=lambda model, inputs, targets: inputs * model(inputs).sum().detach())
    assert settings() == state
    assert {kind for kinds in seen.found for kind in kinds} <= {"ieee", "none", torch.float32}
    assert found.dtype == torch.float32
    assert maps.isfinite().all()


def test_nobody_follows_the_callers_autocast():
    model, x = network(), torch.rand(2, 3, 8, 8)
    wanted = outputs(model, x), verax.explain(model, x, method="gradient")
    with torch.autocast("cpu", torch.bfloat16):
        found = outputs(model, x), verax.explain(model, x, method="gradient")
        assert torch.is_autocast_enabled("cpu")
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def test_what_a_network_sets_does_not_stay():
    class Meddling(nn.Sequential):
        def forward(self, x):
            torch.set_float32_matmul_precision("medium")
            return super().forward(x)

    model = Meddling(*network())
    outputs(model, torch.rand(1, 3, 8, 8))
    assert torch.get_float32_matmul_precision() == "highest"


def test_threads_leave_the_settings_as_they_were():
    torch.set_float32_matmul_precision("high")
    try:
        inside = settings()
        model, x = network(), torch.rand(2, 3, 8, 8)

        def ask():
            for _ in range(20):
                outputs(model, x)
                verax.explain(model, x, method="gradient")

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert settings() == inside
    finally:
        torch.set_float32_matmul_precision("highest")


def test_kernels_are_looked_for_only_meanwhile_whoever_explains_beside_it():
    """A question that began before a training ended would put back what the training had set."""
    before, gpu = B.cudnn.benchmark, torch.device("cuda")
    inside, ended = threading.Event(), threading.Event()

    def asks():
        with undisturbed(network()), precisely(gpu):
            inside.set()
            ended.wait(0.2)  # the training wants to end now

    with ThreadPoolExecutor(1) as pool:
        with searching(gpu):
            assert B.cudnn.benchmark
            asking = pool.submit(asks)
            inside.wait()
            assert not B.cudnn.benchmark
        ended.set()
        asking.result()
        assert B.cudnn.benchmark is before

        def trains():
            with searching(gpu):
                return B.cudnn.benchmark

        assert pool.submit(trains).result() is before  # no other thread than the main one
    with searching(torch.device("cpu")):
        assert B.cudnn.benchmark is before


@pytest.mark.filterwarnings("ignore:CUDA is not available")
def test_rounded_weights_are_not_kept_for_other_threads():
    """Torch keeps them for the whole process, also while they change."""
    assert torch.is_autocast_cache_enabled()
    with halved(torch.device("cuda")):
        assert not torch.is_autocast_cache_enabled()
    assert torch.is_autocast_cache_enabled()
