"""Faithfulness metrics against naive loops and direct formulas."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

import verax
from verax.engine import batching
from verax.engine.baselines import blurred
from verax.engine.gradients import gradient
from verax.errors import InvalidInput, InvalidParameter
from verax.metrics import faithfulness
from verax.seeding import Streams, content_ids


def seeded(function, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return function()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = seeded(
            lambda: nn.Sequential(
                nn.Conv2d(3, 6, 3, 2), nn.Tanh(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(6 * 25, 4)
            )
        )
        self.rows = []

    def forward(self, x):
        self.rows.append(len(x))
        return self.inner(x)


@pytest.fixture
def data():
    inputs = seeded(lambda: torch.rand(4, 3, 12, 12).double())
    inputs[:, :, :4] = 0
    maps = seeded(lambda: torch.randn(4, 3, 12, 12).double(), 1)
    maps[1] = 0  # all tied
    maps[2] = maps[2].round()  # many ties
    return Net().double().eval(), inputs, torch.tensor([0, 3, 1, 2]), maps


def ties(count):
    """The documented order of equals: one fixed shuffle of the places."""
    return Streams.of(torch.zeros(1, dtype=torch.int64), "ties").uniform("t", count)[0].tolist()


def naive(model, x, y, maps, steps, start, end, probability, region=1):
    """Change places one step after the other, in plain Python: (steps + 1) outputs of one sample."""
    side = x.shape[-1]
    cells = -(-side // region)
    score = np.zeros((cells, cells))
    for row in range(side):
        for col in range(side):
            score[row // region, col // region] += float(maps[:, row, col].sum())
    luck = np.array(ties(cells * cells)).reshape(cells, cells)
    order = sorted(np.ndindex(cells, cells), key=lambda k: (-score[k], luck[k]))
    point, outputs, done = start.clone(), [], 0
    for step in range(steps + 1):
        until = int(np.floor(step * cells * cells / steps + 0.5))
        for row, col in order[done:until]:
            block = (
                slice(None),
                slice(row * region, (row + 1) * region),
                slice(col * region, (col + 1) * region),
            )
            point[block] = end[block]
        done = until
        with torch.no_grad():
            out = model(point[None])[0]
        outputs.append(float(out.softmax(0)[y] if probability else out[y]))
    return outputs


def area(outputs):
    return sum((a + b) / 2 for a, b in itertools.pairwise(outputs)) / (len(outputs) - 1)


@pytest.mark.parametrize("steps", [1, 12, 144])
def test_deletion_and_insertion_by_a_loop(steps, data):
    model, x, y, maps = data
    deleted = faithfulness.deletion(model, x, y, maps, steps=steps)
    inserted = faithfulness.insertion(model, x, y, maps, steps=steps)
    zeros, soft = torch.zeros_like(x), blurred(x)
    for k in range(4):
        one = naive(model, x[k], y[k], maps[k], steps, x[k], zeros[k], True)
        two = naive(model, x[k], y[k], maps[k], steps, soft[k], x[k], True)
        assert deleted[k].item() == pytest.approx(area(one), abs=1e-12)
        assert inserted[k].item() == pytest.approx(area(two), abs=1e-12)


@pytest.mark.parametrize("region", [1, 5])
def test_pixel_flipping_by_a_loop(region, data):
    model, x, y, maps = data
    steps = 9
    ours = faithfulness.pixel_flipping(model, x, y, maps, steps=steps, baseline=0.3, region=region)
    assert ours.shape == (4, 10)
    end = torch.full_like(x, 0.3)
    for k in range(4):
        wanted = naive(model, x[k], y[k], maps[k], steps, x[k], end[k], False, region)
        np.testing.assert_allclose(ours[k], wanted, atol=1e-12)
    fell = faithfulness.perturbation_area(ours)
    np.testing.assert_allclose(fell, [np.mean([row[0] - v for v in row]) for row in ours.numpy()])


def test_uneven_steps_are_measured_where_they_are():
    class Sum(nn.Module):
        def forward(self, x):
            return x.sum(1, keepdim=True)

    x = torch.ones(1, 7).double()
    places, values = faithfulness.curve(Sum(), x, torch.tensor([0]), x, steps=3)
    torch.testing.assert_close(values[0], 7 * (1 - places))
    assert (places * 7).round().tolist() == [0, 2, 5, 7]
    score = faithfulness.deletion(Sum(), x, torch.tensor([0]), x, steps=3, output="logit")
    assert score.item() == pytest.approx(3.5)
    assert len(faithfulness.curve(Sum(), x, torch.tensor([0]), x, steps=100)[0]) == 8


def test_steps_that_change_nothing_need_no_pass(data):
    model, x, y, _ = data
    maps = torch.zeros_like(x)
    maps[:, :, :4] = 1  # the black rows go first: 4 of 12 steps
    faithfulness.pixel_flipping(model, x, y, maps, steps=12)
    assert sum(model.rows) == 1 + 4 * (1 + 8)  # one row tells how many outputs there are


def test_a_good_map_beats_a_bad_one():
    cases = verax.task("textbox/simple-fr").cases(n=2)
    model = verax.task("textbox/simple-fr").network()
    best = verax.explain(model, cases.inputs, cases.targets, method="shapley-sampling", permutations=2)
    drop, rise = (
        f(model, cases.inputs, cases.targets, best) for f in (faithfulness.deletion, faithfulness.insertion)
    )
    other_drop, other_rise = (
        f(model, cases.inputs, cases.targets, -best) for f in (faithfulness.deletion, faithfulness.insertion)
    )
    assert drop.mean() < other_drop.mean() - 0.1
    assert rise.mean() >= other_rise.mean()


def test_ties_do_not_follow_the_index(data):
    _, x, _, maps = data
    flat = faithfulness.removal_ranks(torch.zeros_like(x), x)
    assert torch.equal(flat[0], flat[1])
    first = flat[0, 0].flatten().double()
    assert abs(torch.corrcoef(torch.stack([first, torch.arange(144.0).double()]))[0, 1]) < 0.2
    patches = faithfulness.removal_ranks(torch.full_like(x, 0.1), x, region=3)
    assert patches[0, 0, ::3, ::3].flatten().argsort().tolist() == np.argsort(ties(16)).tolist()
    broken = maps.clone()
    broken[0, 0, 0, 0] = float("nan")
    broken[3, 1, 2, 3] = float("inf")
    ranks = faithfulness.removal_ranks(broken, x)
    assert torch.equal(ranks[0], flat[0])
    assert torch.equal(ranks[3], flat[0])
    shuffled = faithfulness.removal_ranks(maps[2:3], x[2:3])
    score = maps[2].sum(0).flatten()[shuffled.flatten().argsort()]
    assert (score.diff() <= 0).all()


def test_infidelity_by_its_formula(data):
    model, x, y, maps = data
    samples = 11
    streams = Streams.of(content_ids(x), "infidelity", 3)
    own = streams.bits("perturbations", samples)
    for kind in ("noise", "square"):
        more = dict(samples=samples, perturbation=kind, noise=0.2, square=5, baseline=0.1, seed=3)
        ours = faithfulness.infidelity(model, x, y, maps, **more)
        scaled = faithfulness.infidelity(model, x, y, maps, scaled=True, **more)
        for k in range(4):
            guess, fall = [], []
            for m in range(samples):
                drawn = Streams(own[k, m : m + 1], streams.seed)
                if kind == "noise":
                    step = 0.2 * drawn.normal("noise", 3, 12, 12)[0].double()
                else:
                    step = torch.zeros(3, 12, 12).double()
                    top, left = (int(drawn.integers(f"corner {axis}", 8)) for axis in (0, 1))
                    block = (slice(None), slice(top, top + 5), slice(left, left + 5))
                    step[block] = x[k][block] - 0.1
                with torch.no_grad():
                    fall.append(float(model(x[k : k + 1])[0, y[k]] - model((x[k] - step)[None])[0, y[k]]))
                guess.append(float((step * maps[k]).sum()))
            guess, fall = np.array(guess), np.array(fall)
            assert ours[k].item() == pytest.approx(np.mean((guess - fall) ** 2), abs=1e-12)
            best = guess @ fall / (guess @ guess) if guess @ guess else 0.0
            assert scaled[k].item() == pytest.approx(np.mean((best * guess - fall) ** 2), abs=1e-12)


def test_the_gradient_of_a_linear_network_is_faithful():
    model = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(75, 3)).double())
    x = seeded(lambda: torch.rand(4, 3, 5, 5).double())
    y = torch.tensor([0, 1, 2, 0])
    slope = gradient(model, x, y)
    for kind in ("noise", "square"):
        assert faithfulness.infidelity(model, x, y, slope, perturbation=kind, square=2).max() < 1e-20
        assert faithfulness.infidelity(model, x, y, 3 * slope, perturbation=kind, square=2).min() > 1e-4
        assert faithfulness.infidelity(model, x, y, 3 * slope, perturbation=kind, scaled=True).max() < 1e-20
    assert faithfulness.max_sensitivity(model, x, y, "gradient").max() < 1e-6


def test_max_sensitivity_by_its_formula(data):
    model, x, y, _ = data
    streams = Streams.of(content_ids(x), "sensitivity", 5)
    ours = faithfulness.max_sensitivity(
        model, x, y, "gradient", samples=4, radius=0.1, relative=False, seed=5
    )
    part = faithfulness.max_sensitivity(model, x, y, "gradient", samples=4, radius=0.1, seed=5)
    still = gradient(model, x, y)
    gaps = []
    for draw in range(4):
        move = 0.1 * (2 * streams.uniform(("move", draw), 3, 12, 12) - 1)
        assert move.abs().max() <= 0.1
        gaps.append((gradient(model, x + move, y) - still).flatten(1).norm(dim=1))
    wanted = torch.stack(gaps).amax(0)
    torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=0)
    torch.testing.assert_close(part, wanted / still.flatten(1).norm(dim=1), rtol=1e-5, atol=0)
    # noise of the method itself is the same at both points
    noisy = faithfulness.max_sensitivity(model, x, y, "smoothgrad", radius=0.0, samples=2)
    assert (noisy == 0).all()
    assert (faithfulness.max_sensitivity(model, x, y, "random", radius=0.1, samples=2) == 0).all()
    own = faithfulness.max_sensitivity(model, x, y, lambda model, inputs, targets: inputs * 0, samples=1)
    assert (own == 0).all()
    few = faithfulness.max_sensitivity(model, x, y, "shapley-sampling", samples=1, permutations=1, size=6)
    assert few.shape == (4,)


@pytest.mark.parametrize("name", ["deletion", "insertion", "pixel_flipping", "infidelity", "max_sensitivity"])
def test_scores_do_not_depend_on_the_batch(name, data, monkeypatch):
    model, x, y, maps = data

    def run(some):
        last = maps[some] if name != "max_sensitivity" else "gradient"
        return getattr(faithfulness, name)(model, x[some], y[some], last)

    whole = run(slice(None))
    assert whole.dtype == torch.float64
    assert torch.equal(run(slice(None)), whole)
    order = torch.tensor([3, 1, 0, 2])
    torch.testing.assert_close(run(order), whole[order], rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(run(slice(2, 3)), whole[2:3], rtol=1e-6, atol=1e-12)
    monkeypatch.setattr(batching.rows_within_budget, "__defaults__", (432 * 3,))
    model.rows.clear()
    torch.testing.assert_close(run(slice(None)), whole, rtol=1e-6, atol=1e-12)
    if name != "max_sensitivity":
        assert max(model.rows) <= 3


def test_the_network_is_left_in_its_mode(data):
    model, x, y, maps = data
    still = [f(model, x, y, maps) for f in (faithfulness.deletion, faithfulness.infidelity)]
    model.train()
    again = [f(model, x, y, maps) for f in (faithfulness.deletion, faithfulness.infidelity)]
    assert all(torch.equal(a, b) for a, b in zip(still, again, strict=True))
    assert model.training
    assert model.inner[3].training


def test_vectors_and_noise():
    model = seeded(lambda: nn.Sequential(nn.Linear(9, 5), nn.Tanh(), nn.Linear(5, 2)))
    x, y = seeded(lambda: torch.rand(3, 9)), torch.tensor([0, 1, 0])
    for score in (faithfulness.deletion, faithfulness.insertion, faithfulness.infidelity):
        assert score(model, x, y, x).isfinite().all()
    noisy = faithfulness.pixel_flipping(model, x, y, x, baseline="noise", region=2)
    assert noisy.shape == (3, 6)
    alone = faithfulness.pixel_flipping(model, x[1:2], y[1:2], x[1:2], baseline="noise", region=2)
    torch.testing.assert_close(alone, noisy[1:2], rtol=1e-6, atol=0)
    other = faithfulness.pixel_flipping(model, x, y, x, baseline="noise", region=2, seed=1)
    assert not torch.equal(noisy, other)
    assert faithfulness.infidelity(model, x, y, x, perturbation="square", square=3).isfinite().all()


def test_bad_parameters(data):
    model, x, y, maps = data
    cases = [
        (faithfulness.deletion, (maps[:, :1],), {}, "do not fit"),
        (faithfulness.deletion, (maps,), dict(steps=0), "steps.*from 1, not 0"),
        (faithfulness.insertion, (maps,), dict(output="probabilty"), "did you mean"),
        (faithfulness.pixel_flipping, (maps,), dict(region=0), "region.*from 1, not 0"),
        (faithfulness.infidelity, (maps,), dict(perturbation="nois"), "did you mean 'noise'"),
        (faithfulness.infidelity, (maps,), dict(samples=0), "from 1, not 0"),
        (faithfulness.infidelity, (maps,), dict(square=0), "square.*from 1, not 0"),
        (faithfulness.max_sensitivity, ("gradient",), dict(radius=-1.0), "from 0, not -1"),
        (faithfulness.max_sensitivity, ("gradient",), dict(samples=0), "from 1, not 0"),
    ]
    for function, last, change, words in cases:
        with pytest.raises((InvalidInput, InvalidParameter), match=words) as caught:
            function(model, x, y, *last, **change)
        assert "\n" not in str(caught.value)
