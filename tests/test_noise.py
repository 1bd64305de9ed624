"""Dropout without a generator: the right share, the same everywhere, other values in each step and layer."""

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import verax
from pretended import PRETENDED
from verax.networks import NETWORKS, noise, training
from verax.networks.recipes import Recipe, find_recipe
from verax.networks.starts import initialise
from verax.networks.steps import Stepper
from verax.seeding import Streams


class Odd(nn.Dropout):
    """Somebody's own dropout."""

    def forward(self, x):
        return x


def streams(number):
    return Streams.of(torch.tensor([number]), "test")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("shape", [(64, 3, 17, 31), (100001,)])
def test_a_share_of_the_values_is_dropped_and_the_others_make_up_for_it(share, shape):
    x = torch.rand(shape) + 1
    out = noise.dropped(x, share, streams(3))
    kept = out != 0
    assert abs(float(kept.double().mean()) - (1 - share)) < 0.01
    torch.testing.assert_close(out[kept], (x / (1 - share))[kept] if share < 1 else x[:0].flatten())
    assert float(out.mean()) == pytest.approx(float(x.mean()) * (share < 1), rel=0.05)


def test_next_to_everything_can_be_dropped():
    out = noise.dropped(torch.ones(200_000), 1 - 1e-7, streams(3))
    assert int((out > 0).sum()) < 20


def test_neighbours_and_steps_are_independent():
    x = torch.ones(40, 1000)
    one, two = (noise.dropped(x, 0.5, streams(number)) - 1 for number in (1, 2))
    assert abs(float((one * two).mean())) < 0.02
    for lag in (1, 2, 3, 4, 8):  # four values come from one word
        assert abs(float((one[:, lag:] * one[:, :-lag]).mean())) < 0.02
    assert abs(float((one[1:] * one[:-1]).mean())) < 0.02


def test_each_call_of_a_layer_drops_other_values_and_the_same_when_repeated():
    shared = nn.Dropout(0.5)
    model = nn.Sequential(shared, nn.Identity(), shared).train()
    x, ids = torch.ones(8, 500), torch.tensor([7])
    state = torch.get_rng_state()
    with noise.drawn(model, ids):
        first = model(x)
    assert torch.equal(torch.get_rng_state(), state)
    with noise.drawn(model, ids):
        assert torch.equal(model(x), first)
    with noise.drawn(model, ids + 1):
        assert not torch.equal(model(x), first)
    assert set(first.unique().tolist()) == {0.0, 4.0}
    assert 0.22 < float((first > 0).double().mean()) < 0.28  # a quarter passes both: they are independent
    assert "forward" not in vars(shared)


def test_gradients_pass_where_values_do():
    x = torch.ones(10, 100, requires_grad=True)
    out = noise.dropped(x, 0.25, streams(5))
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_a_network_that_is_asked_drops_nothing_and_errors_leave_it_as_it_was():
    model = nn.Sequential(nn.Dropout(0.5)).eval()
    x = torch.rand(3, 4)
    with noise.drawn(model, torch.tensor([0])):
        assert torch.equal(model(x), x)
    with pytest.raises(ZeroDivisionError), noise.drawn(model, torch.tensor([0])):
        1 / 0  # noqa: B018
    assert "forward" not in vars(model[0])


class Called(nn.Module):
    """Calls its dropout in a way of its own."""

    def __init__(self, drop=None):
        super().__init__()
        self.flat, self.drop, self.last = nn.Flatten(), drop or nn.Dropout(0.5), nn.Linear(12, 2)

    def forward(self, x):
        return self.last(self.called(self.flat(x)))

    def called(self, x):
        return self.drop(input=x)


class Thrown(Called):
    def called(self, x):
        x = x.clone()
        self.drop(x)
        return x


class Checkpointed(Called):
    def called(self, x):
        return checkpoint(lambda x: self.drop(x).sin(), x, use_reentrant=False)


class Functional(Called):
    def called(self, x):
        return F.dropout(self.drop(x), 0.5, self.training)


class Attending(Called):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(12, 2, 8, dropout=0.3, batch_first=True)

    def called(self, x):
        return self.layer(x[:, None])[:, 0]


class Unlike(Called):
    """Asks what it is given, which nothing can answer without numbers."""

    def called(self, x):
        return x if x.sum() > 0 else -x


SHARED = nn.Dropout(0.5)
OTHERS = {
    "called": lambda classes: Called(),
    "thrown": lambda classes: Thrown(nn.Dropout(0.5, inplace=True)),
    "checkpointed": lambda classes: Checkpointed(),
    "functional": lambda classes: Functional(),
    "attending": lambda classes: Attending(),
    "unlike": lambda classes: Unlike(),
    "compiled": lambda classes: compiled(),
    "channels": lambda classes: nn.Sequential(nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(12, 2)),
    "odd": lambda classes: nn.Sequential(Odd(0.5), nn.Flatten(), nn.Linear(12, 2), nn.AlphaDropout(0.5)),
    "hooked": lambda classes: hooked(),
}


def compiled():
    model = Called()
    model.compile(backend="eager")
    return model


def hooked():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 2))
    model[1].register_forward_hook(lambda *_: None)
    return model


@pytest.mark.parametrize("name", ["cnn3", "alexnet", "vgg16", "resnet18", "vit"])
def test_networks_of_our_own_draw_nothing_from_the_generator(name):
    assert not noise.draws(NETWORKS.get(name), 2, (3, 64, 64))


@pytest.mark.parametrize("name", OTHERS)
def test_what_still_draws_from_the_generator_is_seen_and_seeded(name, monkeypatch):
    """Whatever the caller drew before, and his generator is as it was."""
    assert noise.draws(OTHERS[name], 2, (3, 2, 2))
    assert not noise.layers(OTHERS[name](2))
    monkeypatch.setitem(NETWORKS._items, "other", OTHERS[name])
    monkeypatch.setattr(training, "_EVALUATED", 2)
    monkeypatch.setattr(training, "_CERTIFIED", 2)
    task, plan = verax.task("textbox/simple-fr"), replace(find_recipe("fast"), batch=8, epochs=1, scenes=8)
    small = nn.Sequential(nn.AvgPool2d(32))
    monkeypatch.setitem(NETWORKS._items, "other", lambda classes: nn.Sequential(small, OTHERS[name](classes)))
    found = []
    for before in (0, 1):
        torch.manual_seed(before)
        state = torch.get_rng_state()
        done = training.train(task, "other", recipe=plan, groups=[11, 12], device="cpu", quiet=True)
        assert torch.equal(torch.get_rng_state(), state)
        found.append(torch.cat([weight.flatten() for weight in done.model.state_dict().values()]))
    assert torch.equal(*found)


def test_networks_that_are_made_of_the_same_layer_have_one_each():
    """Threads would put back each other's."""

    def make(classes):
        return nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(12, 6), SHARED, nn.Linear(6, classes))

    def learn(seed):
        job = training._Job(task, training.names.parse("cnn3"), seed, plan, None, torch.device("cpu"), True)
        return job._begin(0, lambda state: None)[0]

    task, plan = verax.task("textbox/simple-fr"), find_recipe("fast")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS._items, "cnn3", make)
        one, two = learn(0), learn(1)
    assert noise.layers(one)[0] is not noise.layers(two)[0]


def little():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 2))


def learned(device="cpu", key=5, again=False, block=1):
    """Weights after three steps."""
    plan = replace(find_recipe("fast"), batch=32, epochs=2)
    pictures = torch.rand(32, 3, 2, 2, generator=torch.Generator().manual_seed(1)).to(device)
    labels = (pictures.flatten(1).sum(1) > 6).long()
    first = key + again  # noise of before that must not stay
    stepper = Stepper(little().to(device), plan, 3, noise=first, block=block, rough=False)
    if again:
        for _ in range(3):
            stepper(pictures, labels)
        stepper.restart(little().to(device), key)
    for _ in range(3):
        stepper(pictures, labels)
    return stepper.weights.detach().cpu()


def test_training_with_dropout_depends_on_its_key_alone():
    wanted = learned()
    torch.rand(1000)
    state = torch.get_rng_state()
    weights = learned()
    assert torch.equal(weights, wanted)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(learned(again=True), wanted)
    assert not torch.allclose(learned(key=6), wanted, atol=1e-6)


def test_networks_that_hold_their_parts_in_functions_learn_in_all_of_them(monkeypatch):
    class Closed(nn.Module):
        def __init__(self, classes):
            super().__init__()
            self.body, self.last = nn.Sequential(nn.AvgPool2d(32), nn.Flatten()), nn.Linear(12, classes)
            self.head = lambda x: self.last(x)

        def forward(self, x):
            return self.head(self.body(x))

    monkeypatch.setitem(NETWORKS._items, "closed", Closed)
    task, plan = verax.task("textbox/simple-fr"), replace(find_recipe("fast"), batch=8, epochs=1, scenes=40)
    done = training.train(task, "closed", recipe=plan, groups=[11, 12], device="cpu", quiet=True)
    start = initialise("closed", 2, 0)
    assert float((done.model.last.weight - start.last.weight).detach().abs().max()) > 5e-3


def test_looking_at_a_network_leaves_what_it_is_made_of():
    norm = nn.BatchNorm1d(4, affine=False).eval()
    noise.draws(lambda classes: nn.Sequential(norm, nn.Linear(4, classes)), 2, (4,))
    assert not norm.training
    assert int(norm.num_batches_tracked) == 0


def test_every_step_drops_other_values_and_every_seed_and_try_too(monkeypatch):
    masks, keys = [], []
    drop, start, again = noise.dropped, Stepper.__init__, Stepper.restart

    def watched(x, share, streams):
        masks.append(drop(torch.ones_like(x), share, streams) > 0)
        return drop(x, share, streams)

    def begin(stepper, *given, noise, **named):
        keys.append(noise)
        start(stepper, *given, noise=noise, **named)

    def restart(stepper, model, noise):
        keys.append(noise)
        again(stepper, model, noise)

    monkeypatch.setattr(noise, "dropped", watched)
    learned()
    assert len(masks) == 3
    assert not any(torch.equal(one, two) for one, two in combinations(masks, 2))

    monkeypatch.setattr(Stepper, "__init__", begin)
    monkeypatch.setattr(Stepper, "restart", restart)
    monkeypatch.setattr(training, "_TEST", 1)
    small = nn.Sequential(nn.AvgPool2d(32), nn.Flatten())
    monkeypatch.setitem(NETWORKS._items, "little", lambda classes: nn.Sequential(small, *little()[1:]))
    never = replace(
        find_recipe("published"), batch=2, epochs=1, scenes=1, tries=2, accept=1.1, stop=None, dead=None
    )
    for seed in (0, 1):
        options = {"groups": [11, 12], "device": "cpu", "quiet": True}
        training.train(verax.task("textbox/simple-fr"), "little", recipe=never, seed=seed, **options)
    assert len(set(keys)) == len(keys) == 4


@pytest.mark.gpu
def test_a_gpu_drops_the_same(monkeypatch):
    x, many = torch.ones(33, 7, 5), torch.tensor([3])
    here = noise.dropped(x, 0.4, Streams.of(many, "test"))
    there = noise.dropped(x.cuda(), 0.4, Streams.of(many.cuda(), "test"))
    assert torch.equal(there.cpu(), here)
    monkeypatch.setattr(Stepper, "recorded", False)
    torch.testing.assert_close(learned("cuda"), learned(), rtol=1e-3, atol=1e-4)
    monkeypatch.undo()
    if not PRETENDED:  # which cannot record steps
        torch.testing.assert_close(learned("cuda"), learned(), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(learned("cuda", again=True), learned(), rtol=1e-3, atol=1e-4)


class Now(nn.Module):
    """Draws as it is told, in training."""

    def __init__(self, draw):
        super().__init__()
        self.draw, self.steps = draw, 0

    def forward(self, x):
        self.steps += self.training
        return self.draw(self.steps, x) if self.training else x


@pytest.mark.parametrize(
    "draw",
    [
        lambda step, x: F.dropout(x) if step > 2 else x,
        lambda step, x: F.dropout(x) if len(x) > 2 else x,
        lambda step, x: x if random.random() < 0.5 else 2 * x,
        lambda step, x: x * float(np.random.rand()),  # noqa: NPY002
    ],
    ids=["later", "of large batches", "of Python", "of NumPy"],
)
def test_noise_of_other_kinds_is_seen_and_seeded(draw, monkeypatch):
    def make(classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, classes), Now(draw))

    assert noise.draws(make, 2, (3, 64, 64))
    monkeypatch.setitem(NETWORKS._items, "drawing", make)
    tiny = Recipe(rate=1e-3, batch=8, epochs=1, scenes=16, cycle=False)
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()  # noqa: NPY002

    def weights():
        done = verax.train(
            verax.task("textbox/simple-fr"), "drawing", recipe=tiny, groups=[1, 12], device="cpu", quiet=True
        )
        return done.model[1].weight

    first = weights()
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tobytes() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])
    random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
    assert torch.equal(weights(), first)


class Scaled(nn.Module):
    """Attention in the one operation that a GPU has for it, which drops by itself."""

    def __init__(self, share):
        super().__init__()
        self.share = share

    def forward(self, x):
        x = x.flatten(1)[:, None, None]
        return torch.ops.aten._scaled_dot_product_flash_attention(x, x, x, self.share)[0].flatten(1)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_attention_draws_where_it_drops(share):
    def encoder(classes):
        return nn.Sequential(
            nn.Flatten(2), nn.TransformerEncoderLayer(16, 2, 8, dropout=share, batch_first=True)
        )

    for make in (lambda classes: Scaled(share), encoder):
        assert noise.draws(make, 2, (3, 4, 4)) == (share > 0)


@pytest.mark.parametrize("watched", [0, 1, None])
def test_networks_whose_containers_are_watched_keep_the_dropout_of_pytorch(watched):
    def make(classes):
        inner = nn.Sequential(nn.Dropout(0.5), nn.Flatten())
        model = nn.Sequential(inner, nn.Linear(12, classes))
        if watched is not None:
            (model, inner)[watched].register_forward_pre_hook(lambda *_: None)
        return model

    assert len(noise.layers(make(2))) == (watched is None)
    assert noise.draws(make, 2, (3, 2, 2)) == (watched is not None)
