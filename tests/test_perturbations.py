"""Perturbation methods against brute force, closed forms, axioms and Captum."""

import itertools
import math
import warnings

import captum.attr as captum
import numpy as np
import pytest
import torch
from captum._utils.models.model import Model
from torch import nn

import verax
from verax.engine import batching, masking
from verax.engine.coalitions import Game
from verax.engine.segments import grid, segments_of, slic
from verax.errors import InvalidInput, InvalidParameter
from verax.methods import perturbations, shapley
from verax.seeding import Streams

SEGMENTED = ("lime", "kernel-shap", "shapley-sampling", "exact-shapley")
ALL = (*SEGMENTED, "rise")
SHAPLEY = {
    "kernel-shap": shapley.kernel_shap,
    "shapley-sampling": shapley.shapley_sampling,
    "exact-shapley": shapley.exact_shapley,
}


def seeded(function, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return function()


def picture_net(size=16, channels=3):
    out = (size - 3) // 2 + 1
    return seeded(
        lambda: nn.Sequential(
            nn.Conv2d(channels, 6, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(6 * out * out, 4)
        )
    ).eval()


def vector_net(features=6):
    return seeded(
        lambda: nn.Sequential(nn.Linear(features, 12), nn.Tanh(), nn.Linear(12, 3)).double().eval(), 1
    )


@pytest.fixture
def pictures():
    inputs = seeded(lambda: torch.rand(5, 3, 16, 16))
    inputs[:, :, :4] = 0
    return inputs, torch.tensor([0, 3, 1, 2, 2])


@pytest.fixture
def vectors():
    return seeded(lambda: torch.randn(4, 6).double()), torch.tensor([0, 2, 1, 1])


def streams_of(count, label="test"):
    return Streams.of(torch.arange(count), label)


def shapley_values(name, model, x, y, **parameters):
    """A method's own float64, which `explain` would round to float32."""
    if name != "exact-shapley":
        parameters["streams"] = streams_of(len(x))
    return SHAPLEY[name](model, x, y, **parameters).detach()


def rise_of_output(model, x, y, fill=0.0):
    with torch.no_grad():
        return (model(x) - model(torch.full_like(x, fill))).gather(1, y[:, None])[:, 0]


def brute_force(function, players):
    """Shapley values of one game, order by order, in plain Python."""
    total = [0.0] * players
    for order in itertools.permutations(range(players)):
        inside = set()
        for player in order:
            before = function(frozenset(inside))
            inside.add(player)
            total[player] += function(frozenset(inside)) - before
    return [value / math.factorial(players) for value in total]


def by_brute_force(model, x, y, fill):
    rows = []
    for one, target, low in zip(x, y, fill, strict=True):
        known = {}

        def worth(inside, one=one, target=target, low=low, known=known):
            if inside not in known:
                point = torch.tensor(
                    [float(one[k] if k in inside else low[k]) for k in range(len(one))], dtype=x.dtype
                )
                known[inside] = model(point[None])[0, target].item()
            return known[inside]

        rows.append(brute_force(worth, x.shape[1]))
    return torch.tensor(rows, dtype=torch.float64)


def test_exact_shapley_by_brute_force(vectors):
    x, y = vectors
    x[1, 2] = 0.25  # a dummy
    model = vector_net()
    fill = torch.full_like(x, 0.25)
    ours = shapley_values("exact-shapley", model, x, y, baseline=0.25)
    torch.testing.assert_close(ours, by_brute_force(model, x, y, fill), rtol=0, atol=1e-12)
    assert ours[1, 2] == 0


@pytest.mark.parametrize("features", [2, 3, 6])
def test_kernel_shap_with_all_coalitions_is_exact(features):
    model = vector_net(features)
    x = seeded(lambda: torch.randn(3, features).double(), 5)
    x[2, 0] = 0
    y = torch.tensor([0, 1, 2])
    exact = shapley_values("exact-shapley", model, x, y)
    for samples in (2**features - 2, 2**features + 11):
        ours = shapley_values("kernel-shap", model, x, y, samples=samples)
        torch.testing.assert_close(ours, exact, rtol=0, atol=1e-8)


def test_kernel_shap_by_the_constrained_least_squares_of_its_own_coalitions(vectors):
    x = seeded(lambda: torch.randn(3, 9).double(), 2)
    y = torch.tensor([0, 2, 1])
    model = vector_net(9)
    pairs = 40
    game = Game.of(model, x, y, "grid", None, 0.0)
    ours = shapley.kernel_values(game, streams_of(3), pairs)
    half = shapley._drawn(streams_of(3), pairs, game.active)
    zs = torch.cat([half, ~half], 1).numpy().astype(float)
    assert zs.sum(2).min() >= 1
    assert zs.sum(2).max() <= 8
    with torch.no_grad():
        low = model(torch.zeros(1, 9).double())[0].numpy()
        for k in range(3):
            out = model(torch.from_numpy(zs[k]) * x[k])[:, y[k]].numpy() - low[y[k]]
            total = float(model(x[k : k + 1])[0, y[k]]) - low[y[k]]
            a = zs[k].T @ zs[k]
            # Lagrange: minimise the squares subject to sum(phi) = total
            kkt = np.block([[2 * a, np.ones((9, 1))], [np.ones((1, 9)), np.zeros((1, 1))]])
            wanted = np.linalg.solve(kkt, np.concatenate([2 * zs[k].T @ out, [total]]))[:9]
            np.testing.assert_allclose(ours[k], wanted, atol=1e-9)


def test_drawn_sizes_follow_the_shapley_kernel():
    active = torch.ones(1, 7, dtype=torch.bool)
    drawn = shapley._drawn(streams_of(1), 40_000, active)[0]
    share = torch.bincount(drawn.sum(1), minlength=8) / 40_000
    wanted = torch.tensor([0.0, *[1 / (s * (7 - s)) for s in range(1, 7)], 0.0])
    torch.testing.assert_close(share, wanted / wanted.sum(), rtol=0, atol=0.01)
    each = torch.tensor(
        [math.comb(7, s) * float(shapley.kernel(torch.tensor(7), torch.tensor(s))) for s in range(8)]
    )
    torch.testing.assert_close(each / each.sum(), wanted / wanted.sum())
    assert (drawn.double().mean(0) - 0.5).abs().max() < 0.02


def test_few_coalitions_of_many_players(pictures):
    inputs, targets = pictures
    model = picture_net().double()
    x = inputs.double()
    maps = shapley_values("kernel-shap", model, x, targets, samples=10, size=2)
    assert maps.isfinite().all()
    torch.testing.assert_close(maps.flatten(1).sum(1), rise_of_output(model, x, targets), rtol=0, atol=1e-12)


def test_sampling_converges_and_adds_up_at_every_count(vectors):
    x, y = vectors
    model = vector_net()
    exact = shapley_values("exact-shapley", model, x, y)
    errors = []
    for permutations in (1, 2, 7, 50, 800):
        ours = shapley_values("shapley-sampling", model, x, y, permutations=permutations)
        torch.testing.assert_close(ours.sum(1), rise_of_output(model, x, y), rtol=0, atol=1e-12)
        errors.append(float((ours - exact).norm() / exact.norm()))
    assert errors[-1] < 0.01
    assert errors[-1] < errors[2] < errors[0]


def test_kernel_shap_converges():
    model, y = vector_net(10), torch.tensor([0, 1, 2])
    x = seeded(lambda: torch.randn(3, 10).double(), 3)
    exact = shapley_values("exact-shapley", model, x, y)
    errors = []
    for samples in (30, 100, 1000):
        ours = shapley_values("kernel-shap", model, x, y, samples=samples)
        torch.testing.assert_close(ours.sum(1), rise_of_output(model, x, y), rtol=0, atol=1e-12)
        errors.append(float((ours - exact).norm() / exact.norm()))
    assert errors[2] < 0.02
    assert errors[2] < errors[1] < errors[0]


def test_pairs_carry_half_of_the_variance():
    """An order and its reverse give exact values where a game has interactions of two players only."""

    class Pairs(nn.Module):
        def forward(self, x):
            return ((x[:, :, None] * x[:, None, :]).sum((1, 2)) + x.sum(1))[:, None]

    x = seeded(lambda: torch.randn(2, 7).double())
    y = torch.zeros(2, dtype=torch.int64)
    exact = shapley_values("exact-shapley", Pairs(), x, y)
    torch.testing.assert_close(exact, x * x.sum(1, keepdim=True) + x, rtol=0, atol=1e-12)
    ours = shapley_values("shapley-sampling", Pairs(), x, y, permutations=2)
    torch.testing.assert_close(ours, exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SHAPLEY)
def test_additive_models_are_solved_exactly(name):
    x = seeded(lambda: torch.randn(4, 8).double())
    x[0, 3] = 1.0

    class Additive(nn.Module):
        def forward(self, x):
            parts = torch.stack([x**2, x.sin()], 1)
            return parts.sum(2)

    y = torch.tensor([0, 1, 0, 1])
    wanted = torch.where(y[:, None] == 0, x**2 - 1, x.sin() - math.sin(1.0))
    few = {"kernel-shap": dict(samples=80), "shapley-sampling": dict(permutations=3), "exact-shapley": {}}[
        name
    ]
    ours = shapley_values(name, Additive(), x, y, baseline=1.0, **few)
    torch.testing.assert_close(ours, wanted, rtol=0, atol=1e-10)


class Blind(nn.Module):
    """Treats features 0 and 1 alike and never looks at feature 2."""

    def forward(self, x):
        a = (x[:, 0] + x[:, 1]).tanh() * x[:, 3]
        return torch.stack([a + x[:, 4].sin() * x[:, 3], a], 1)


@pytest.mark.parametrize("name", SHAPLEY)
def test_dummy_and_symmetry(name):
    x = seeded(lambda: torch.randn(3, 5).double())
    x[:, 1] = x[:, 0]
    y = torch.tensor([0, 1, 0])
    ours = shapley_values(
        name, Blind(), x, y, **({"permutations": 4000} if name == "shapley-sampling" else {})
    )
    assert ours[:, 2].abs().max() < 1e-12
    tolerance = 0.03 if name == "shapley-sampling" else 1e-12
    assert (ours[:, 0] - ours[:, 1]).abs().max() < tolerance * ours.abs().max()
    assert ours[:, 0].abs().min() > 0.01


@pytest.mark.parametrize("name", SHAPLEY)
@pytest.mark.parametrize("spec", ["grid", "slic", "own", "own-each", "own-channels"])
def test_values_add_up_on_pictures(name, spec, pictures):
    inputs, targets = pictures
    model, x = picture_net().double(), inputs.double()
    whole = {
        "own": torch.arange(256).reshape(16, 16) // 90 * 7 - 3,
        "own-each": torch.arange(5 * 256).reshape(5, 1, 16, 16) // 100 % 4,
        "own-channels": torch.arange(3)[:, None, None].expand(3, 16, 16).clone(),
    }
    few = {"kernel-shap": dict(samples=6), "shapley-sampling": dict(permutations=1), "exact-shapley": {}}[
        name
    ]
    maps = shapley_values(name, model, x, targets, segments=whole.get(spec, spec), **few)
    assert maps.shape == x.shape
    torch.testing.assert_close(maps.flatten(1).sum(1), rise_of_output(model, x, targets), rtol=0, atol=1e-12)
    if spec == "own-channels":
        assert (maps.flatten(2).std(2) < 1e-12).all()
        assert maps[0, 0, 0, 0] != maps[0, 1, 0, 0]
    elif spec == "grid":
        assert torch.equal(maps[:, 0], maps[:, 2])
        assert (maps[:, :, :8, :8].flatten(1).std(1) < 1e-12).all()


@pytest.mark.parametrize("shape", [(7,), (300,), (2, 20), (2, 6, 9), (1, 9, 9, 9)])
@pytest.mark.parametrize("name", ["lime", "rise", "kernel-shap", "shapley-sampling"])
def test_vectors_sequences_pictures_and_volumes(name, shape):
    count = math.prod(shape)
    model = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(count, 2))).eval()
    x = seeded(lambda: torch.rand(3, *shape))
    few = {"permutations": 2} if name == "shapley-sampling" else {"samples": 60}
    maps = verax.explain(model, x, 1, method=name, **few)
    assert maps.shape == x.shape
    assert maps.isfinite().all()
    if name in SHAPLEY:
        wanted = rise_of_output(model, x, torch.ones(3, dtype=torch.int64))
        torch.testing.assert_close(maps.flatten(1).sum(1), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("count", "ridge"), [(300, 1.0), (40, 1e-300)])
def test_lime_of_more_features_than_samples_is_always_the_same(count, ridge):
    """LU decompositions on a busy CPU were not, and next to no penalty leaves many solutions."""
    model = seeded(lambda: nn.Linear(count, 2)).eval()
    x = seeded(lambda: torch.rand(3, count))
    options = {"method": "lime", "samples": count // 5, "ridge": ridge}
    first = verax.explain(model, x, 1, **options)
    assert first.isfinite().all()
    assert all(torch.equal(verax.explain(model, x, 1, **options), first) for _ in range(8))


@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_lime_by_a_ridge_in_numpy(distance, pictures):
    inputs, targets = pictures
    model, x = picture_net().double(), inputs.double()
    samples, streams = 90, streams_of(5)
    maps = perturbations.lime(
        model, x, targets, streams, samples=samples, size=5, distance=distance, ridge=0.7, baseline=0.1
    )
    label = np.add.outer(np.arange(16) // 5 * 4, np.arange(16) // 5)
    masks = streams.uniform("coalitions", 16, samples).mT.numpy() < 0.5
    masks[:, 0] = True
    for k in range(5):
        z = masks[k].astype(float)
        shown = torch.from_numpy(masks[k][:, label])[:, None]
        with torch.no_grad():
            y = model(torch.where(shown, x[k], torch.tensor(0.1).double()))[:, targets[k]].numpy()
        if distance == "cosine":
            length = np.linalg.norm(z, axis=1)
            cosine = np.where(length > 0, z.sum(1) / np.where(length > 0, length, 1) / 4.0, 0)
            w = np.exp(-(((1 - cosine) / 0.25) ** 2))
        else:
            w = np.exp(-(np.linalg.norm(1 - z, axis=1) ** 2) / (0.75 * 4.0) ** 2)
        # the penalty leaves the constant free
        a = np.c_[z, np.ones(samples)]
        penalty = 0.7 * np.eye(17)
        penalty[16, 16] = 0
        wanted = np.linalg.solve(a.T @ (w[:, None] * a) + penalty, a.T @ (w * y))[:16]
        sizes = np.bincount(label.ravel(), minlength=16) * 3
        np.testing.assert_allclose(maps[k, 1].numpy(), (wanted / sizes)[label], atol=1e-12)


def test_rise_by_a_loop(pictures):
    inputs, targets = pictures
    model, x = picture_net().double(), inputs.double()
    streams, samples, cells = streams_of(5), 25, 3
    ours = perturbations.rise(
        model, x, targets, streams, samples=samples, grid=cells, probability=0.3, baseline=0.2
    )
    side = math.ceil(16 / cells)
    own = streams.bits("masks", samples)
    for k in range(5):
        total = torch.zeros(16, 16).double()
        for m in range(samples):
            one = Streams(own[k, m : m + 1], streams.seed)
            small = (one.uniform("cells", cells, cells) < 0.3).double()
            big = nn.functional.interpolate(small[None], ((cells + 1) * side,) * 2, mode="bilinear")[0, 0]
            top, left = (int(one.integers(f"shift {axis}", side)) for axis in (0, 1))
            mask = big[top : top + 16, left : left + 16]
            with torch.no_grad():
                value = model((x[k] * mask + 0.2 * (1 - mask))[None])[0, targets[k]]
            total += value * mask
        torch.testing.assert_close(ours[k, 2], total / samples / 0.3, rtol=0, atol=1e-12)


def test_random_masks_show_as_much_as_asked():
    masks = perturbations.random_masks(streams_of(4000), (12, 12), 4, 0.3)
    assert masks.min() >= 0
    assert masks.max() <= 1
    assert (masks.mean(0) - 0.3).abs().max() < 0.03
    assert (masks != masks.round()).double().mean() > 0.3  # soft


class LeastSquares(Model):
    """scikit-learn's linear models for Captum, without scikit-learn."""

    def __init__(self, ridge=0.0):
        self.ridge = ridge

    def fit(self, train_data, **kwargs):
        z, y, w = (torch.cat([batch[k] for batch in train_data]).double() for k in range(3))
        w = w.clamp(max=1e6)  # Captum stands a million for the infinite weight of the two ends
        part = (w / w.sum())[:, None]
        zc, yc = z - (part * z).sum(0), y.reshape(-1) - (part[:, 0] * y.reshape(-1)).sum()
        a = (zc * w[:, None]).T
        self.weights = torch.linalg.lstsq(
            a @ zc + self.ridge * torch.eye(z.shape[1]), a @ yc, driver="gelsd"
        ).solution

    def representation(self):
        return self.weights[None]

    def __call__(self, x):
        return x @ self.weights


def correlation(a, b):
    return float(torch.corrcoef(torch.stack([a.flatten().double(), b.flatten().double()]))[0, 1])


def test_agreement_with_captum(pictures):
    inputs, targets = pictures
    model = picture_net()
    x, y = inputs[:2] + 0.1, targets[:2]
    labels = grid(x, 4).labels
    sizes = 4 * 4 * 3
    few = dict(feature_mask=labels, target=y)
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        shap = captum.KernelShap(model)
        shap.interpretable_model = LeastSquares()
        theirs = shap.attribute(x, n_samples=1500, perturbations_per_eval=500, **few)
        ours = verax.explain(model, x, y, method="kernel-shap", size=4, samples=1500) * sizes
        exact = verax.explain(model, x, y, method="shapley-sampling", size=4, permutations=400) * sizes
        assert correlation(ours, theirs) > 0.99
        assert (ours - exact).norm() <= (theirs - exact).norm()
        sampling = captum.ShapleyValueSampling(model)
        theirs = sampling.attribute(x, n_samples=60, perturbations_per_eval=16, **few)
        ours = verax.explain(model, x, y, method="shapley-sampling", size=4, permutations=60) * sizes
        assert correlation(ours, theirs) > 0.98
        local = captum.Lime(
            model,
            LeastSquares(1.0),
            captum._core.lime.get_exp_kernel_similarity_function("euclidean", 3.0 * 48**0.5),
        )
        theirs = local.attribute(x, n_samples=1500, perturbations_per_eval=500, **few)
        ours = verax.explain(model, x, y, method="lime", size=4, samples=1500, distance="l2") * sizes
        assert correlation(ours, theirs) > 0.95


@pytest.mark.parametrize("name", ALL)
def test_maps_do_not_depend_on_the_batch(name, pictures, monkeypatch):
    inputs, targets = pictures
    model = picture_net()
    few = {
        "exact-shapley": {},
        "shapley-sampling": dict(permutations=3, size=5),
        "kernel-shap": dict(samples=30, size=5),
    }.get(name, dict(samples=30))

    def run(some=slice(None), **more):
        return verax.explain(model, inputs[some], targets[some], method=name, **few, **more)

    whole = run()
    assert whole.dtype == torch.float32

    def close(a, b):
        assert a.shape == b.shape
        assert (a - b).norm() <= 1e-5 * b.norm()

    assert torch.equal(run(), whole)
    close(run(batch_size=2), whole)
    order = torch.tensor([4, 2, 0, 1, 3])
    close(run(order), whole[order])
    close(run(slice(3, 4)), whole[3:4])
    monkeypatch.setattr(batching, "BUDGET", 1)
    monkeypatch.setattr(batching.rows_within_budget, "__defaults__", (768 * 3,))
    close(run(), whole)
    if name != "exact-shapley":
        monkeypatch.undo()
        assert not torch.allclose(run(seed=1), whole)


@pytest.mark.parametrize("name", SEGMENTED)
def test_own_segments_of_unequal_number_do_not_depend_on_the_batch(name, pictures):
    inputs, targets = pictures
    model, x = picture_net().double(), inputs.double() + 0.1
    labels = (
        torch.arange(5 * 256).reshape(5, 1, 16, 16) // 25 % torch.tensor([2, 9, 4, 5, 7]).reshape(5, 1, 1, 1)
    )
    few = {"exact-shapley": {}, "shapley-sampling": dict(permutations=3)}.get(name, dict(samples=20))

    def run(some):
        more = {} if name == "exact-shapley" else {"streams": streams_of(5)[some]}
        function = {**SHAPLEY, "lime": perturbations.lime}[name]
        return function(model, x[some], targets[some], segments=labels[some], **few, **more)

    whole = run(slice(None))
    for k in range(5):
        torch.testing.assert_close(run(slice(k, k + 1)), whole[k : k + 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ALL)
def test_float64_is_kept(name, vectors):
    x, y = vectors
    function = {**SHAPLEY, "lime": perturbations.lime, "rise": perturbations.rise}[name]
    more = {} if name == "exact-shapley" else {"streams": streams_of(4)}
    for dtype in (torch.float32, torch.float64):
        assert function(vector_net().to(dtype), x.to(dtype), y, **more).dtype == dtype


def test_an_input_that_is_the_baseline():
    model = vector_net(4)
    x, y = torch.zeros(2, 4).double(), torch.tensor([0, 1])
    x[1, 2] = 3.0
    for name in SHAPLEY:
        maps = shapley_values(name, model, x, y)
        assert (maps[0] == 0).all()
        assert maps[1, 2].item() == pytest.approx(rise_of_output(model, x, y)[1].item())
        assert (maps[1, [0, 1, 3]] == 0).all()
        assert (shapley_values(name, model, x[:1], y[:1]) == 0).all()


def test_a_segment_that_differs_in_one_channel_is_no_dummy(pictures):
    inputs, targets = pictures
    model, x = picture_net().double(), inputs.double()
    x[:, 1:] = 0
    for name in SHAPLEY:
        maps = shapley_values(name, model, x, targets)
        wanted = rise_of_output(model, x, targets)
        torch.testing.assert_close(maps.flatten(1).sum(1), wanted, rtol=0, atol=1e-12)
        assert wanted.abs().min() > 1e-3


def test_same_masked_inputs_share_one_pass(pictures):
    inputs, targets = pictures
    x = inputs.clone()
    x[:, :, :, 4:] = 0  # with the black rows above: three 4 x 4 patches of 16 are left
    rows = []

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = picture_net()

        def forward(self, x):
            rows.append(len(x))
            return self.inner(x)

    shapley.exact_shapley(Counting(), x, targets, size=4)
    assert sum(rows) == 5 * 2**3
    rows.clear()
    shapley.kernel_shap(Counting(), x, targets, streams_of(5), size=4, samples=500)
    assert sum(rows) == 5 * 2**3
    rows.clear()
    # LIME draws dummies too; with 200 coalitions all 8 of the others come up
    perturbations.lime(Counting(), x, targets, streams_of(5), size=4, samples=200)
    assert sum(rows) == 5 * 2**3
    game = Game.of(picture_net().double(), inputs.double(), targets, "grid", 2, 0.0)
    drawn = streams_of(5).uniform("z", 70, game.players) < 0.7
    worth = game.worth(drawn)
    shown = drawn[:, :, grid(inputs, 2).labels[0, 0]]
    wanted = masking.masked_outputs(
        picture_net().double(), inputs.double(), targets, shown, torch.zeros(1).double()
    )
    torch.testing.assert_close(worth, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shape", [(6,), (2, 5), (3, 6, 6)])
def test_masks_of_all_kinds(shape, shared, soft):
    x = seeded(lambda: torch.rand(4, *shape))
    x[:2, ..., :2] = 0.5
    places = shape[1:] if len(shape) > 1 else shape
    masks = seeded(lambda: torch.rand(*(() if shared else (4,)), 7, *places))
    masks = masks.clamp(0.4, 0.9).sub(0.4).mul(2) if soft else masks > 0.5
    if soft:
        masks[..., 2:] = masks[..., 2:].round()
        masks[(1,) if shared else (slice(None), 1)] = 0.6  # removes a little everywhere
    masks[(0,) if shared else (slice(None), 0)] = True
    rows = []
    inner = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 3), nn.Tanh()))

    class Counting(nn.Module):
        def forward(self, x):
            rows.append(len(x))
            return inner(x)

    y = torch.tensor([0, 1, 2, 0])
    found = masking.masked_outputs(Counting(), x, y, masks, torch.full_like(x, 0.5), rows=5)
    assert max(rows) <= 5
    changed = 0
    for k in range(4):
        for m in range(7):
            mask = masks[m] if shared else masks[k, m]
            kept = mask.float()
            masked = x[k] * kept + 0.5 * (1 - kept)
            changed += not torch.equal(masked, x[k])
            with torch.no_grad():
                assert found[k, m].item() == pytest.approx(inner(masked[None])[0, y[k]].item(), abs=1e-6)
    assert sum(rows) == 4 + changed
    with pytest.raises(InvalidInput, match="do not fit"):
        masking.masked_outputs(inner, x, y, masks[..., :-1], x)
    if not shared:
        with pytest.raises(InvalidInput, match="do not fit"):
            masking.masked_outputs(inner, x[:3], y[:3], masks, x[:3])


def test_out_of_memory_halves_the_passes(pictures):
    inputs, targets = pictures
    asked = []

    class Greedy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = picture_net()

        def forward(self, x):
            asked.append(len(x))
            if len(x) > 7:
                raise torch.OutOfMemoryError("too much")
            return self.inner(x)

    for name in ALL:
        few = {"exact-shapley": {}, "shapley-sampling": dict(permutations=2)}.get(name, dict(samples=20))
        asked.clear()
        small = verax.explain(Greedy(), inputs, targets, method=name, batch_size=5, **few)
        torch.testing.assert_close(
            small, verax.explain(picture_net(), inputs, targets, method=name, **few), rtol=1e-4, atol=1e-6
        )
        assert max(asked) > 7
        assert asked[-1] <= 7


def test_slic_follows_colours():
    picture = torch.zeros(2, 3, 16, 16)
    picture[0, 0, :, 6:] = 1  # the edge lies between the patches' own edges
    picture[1] = seeded(lambda: torch.rand(3, 16, 16))
    cut = slic(picture, 4)
    assert cut.count == 16
    labels = cut.labels[0, 0]
    left, right = set(labels[:, :6].flatten().tolist()), set(labels[:, 6:].flatten().tolist())
    assert not left & right
    assert torch.equal(slic(picture[1:], 4).labels[0], cut.labels[1])
    assert torch.equal(slic(picture * 5 + 2, 4).labels[0], cut.labels[0])
    assert torch.equal(slic(picture * 8, 4).labels[1], cut.labels[1])
    assert torch.equal(slic(picture, 4, compactness=1e6).labels, grid(picture, 4).labels.expand(2, 1, 16, 16))
    sequence = torch.tensor([[[0.0, 0, 0, 0, 0, 1, 1, 1]]])
    assert slic(sequence, 4).labels.flatten().tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    # one round of k-means by hand: the nearest of the neighbouring centres
    one = slic(picture[1:], 8, iterations=1).labels[0, 0]
    x = picture[1].double()
    x = (x - x.min()) / (x.max() - x.min())
    rows, cols = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    points = torch.stack([*(x / 0.1), rows / 8, cols / 8]).flatten(1).T
    start = grid(picture, 8).labels.flatten()
    centres = torch.stack([points[start == k].mean(0) for k in range(4)])
    assert torch.equal(one.flatten(), torch.cdist(points, centres).argmin(1))


def test_grids():
    assert grid(torch.zeros(2, 3, 5, 4), 2).labels[0, 0].tolist() == [
        [0, 0, 1, 1],
        [0, 0, 1, 1],
        [2, 2, 3, 3],
        [2, 2, 3, 3],
        [4, 4, 5, 5],
    ]
    assert segments_of("grid", torch.zeros(1, 3, 64, 64)).count == 64
    assert segments_of("grid", torch.zeros(1, 200)).count == 200
    assert segments_of("grid", torch.zeros(1, 1000)).count == 1000
    assert segments_of("grid", torch.zeros(1, 4000)).count == 1000
    assert segments_of("grid", torch.zeros(1, 3, 64, 64), most=16).count == 16
    assert segments_of("grid", torch.zeros(1, 40), most=16).count == 14
    own = segments_of(torch.tensor([9, 9, -4, 100, 9]), torch.zeros(2, 5))
    assert own.labels.tolist() == [[1, 1, 0, 2, 1]]
    assert own.sizes(torch.zeros(2, 5)).tolist() == [[1, 3, 1]] * 2


def test_bad_parameters(pictures):
    inputs, targets = pictures
    model = picture_net()
    flat = torch.rand(2, 20)
    cases = [
        (dict(method="rise", samples=0), "from 1, not 0"),
        (dict(method="rise", grid=0), "'grid'.*from 1, not 0"),
        (dict(method="rise", probability=1.0), "between 0 and 1, not 1.0"),
        (dict(method="lime", samples=1), "from 2 or None, not 1"),
        (dict(method="lime", distance="cosin"), "did you mean 'cosine'"),
        (dict(method="lime", ridge=0.0), "above 0"),
        (dict(method="lime", width=-1.0), "above 0"),
        (dict(method="kernel-shap", samples=1), "from 2 or None, not 1"),
        (dict(method="kernel-shap", samples=20.5), "not 20.5"),
        (dict(method="kernel-shap", segments="gird"), "did you mean 'grid'"),
        (dict(method="kernel-shap", size=0), "whole number from 1 or None, not 0"),
        (dict(method="kernel-shap", segments=torch.zeros(16, 16)), "whole numbers"),
        (dict(method="kernel-shap", segments=torch.zeros(16, 15, dtype=torch.int64)), "do not fit"),
        (dict(method="shapley-sampling", permutations=0), "'permutations'.*from 1, not 0"),
        (dict(method="exact-shapley", size=2), "at most 16 segments .* not 48"),
        (dict(method="exact-shapley", baseline="noise"), "noise"),
        (dict(method="lime", baseline="blurr"), "did you mean 'blur'"),
    ]
    for change, words in cases:
        with pytest.raises((InvalidParameter, InvalidInput), match=words) as caught:
            verax.explain(model, inputs, targets, **change)
        assert "\n" not in str(caught.value)
        assert str(caught.value)[-1] in ".?", caught.value
    with pytest.raises(InvalidInput, match="vectors have 'grid' only"):
        verax.explain(nn.Linear(20, 2), flat, 0, method="lime", segments="slic")


@pytest.mark.parametrize(("count", "players"), [(50, 64), (20, 8), (8, 8), (5, 30), (1, 3)])
def test_least_squares_are_the_shortest_solution(count, players):
    generator = torch.Generator().manual_seed(count)
    active = torch.rand(40, players, generator=generator) < torch.linspace(0, 1.1, 40)[:, None]
    rows = ((torch.rand(40, count, players, generator=generator) < 0.5) & active[:, None]).double()
    rows -= rows.sum(2, keepdim=True) / active.sum(1).clamp(min=1)[:, None, None]
    rows *= active[:, None]
    rows[:, count // 2] = rows[:, 0]  # a coalition that was drawn twice
    weights = torch.rand(40, count, dtype=torch.float64, generator=generator)
    wanted = torch.randn(40, count, dtype=torch.float64, generator=generator)
    root = weights.sqrt()[..., None]
    expected = torch.linalg.lstsq(rows * root, wanted[..., None] * root, rcond=1e-7, driver="gelsd").solution
    found = shapley._least_squares(rows, wanted, weights, active)
    torch.testing.assert_close(found, expected[..., 0], rtol=1e-6, atol=1e-6)
    alone = shapley._least_squares(rows[-1:], wanted[-1:], weights[-1:], active[-1:])
    assert torch.allclose(alone, found[-1:], rtol=1e-12)


class Counting(nn.Module):
    """Counts the passes through a network, and their rows."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.rows = inner, []

    def forward(self, x):
        self.rows.append(len(x))
        return self.inner(x)


@pytest.mark.parametrize(
    ("method", "settings", "rows"),
    [("feature-ablation", {"size": 4}, 1 + 16), ("occlusion", {"window": 8, "stride": 8}, 1 + 4)],
)
def test_the_whole_picture_goes_with_what_is_hidden_in_it(method, settings, rows):
    model = Counting(nn.Sequential(nn.Flatten(), nn.Linear(256, 2)))
    x = torch.rand(1, 1, 16, 16) + 0.1
    verax.explain(model, x, [0], method, settings=settings)  # asks how many outputs there are
    model.rows.clear()
    verax.explain(model, x, [0], method, settings=settings)
    assert model.rows == [rows]
