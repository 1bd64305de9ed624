"""Known functions: the closed form against walking piece by piece, and F as a module."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import verax
from verax.errors import InvalidInput, InvalidParameter, MissingFile, WeightsError
from verax.seeding import Streams
from verax.tasks.climate.analytic import analytic
from verax.tasks.climate.functions import LocalFunctions

FIELD = analytic()
SAMPLES = FIELD.draw(Streams.of(torch.arange(200), "tests"))


def walk(knots, slopes, x):
    """C(x) of one cell: start at 0 and add slope times length, piece by piece (the published way)."""
    edges = [-np.inf, *knots, np.inf]
    total = 0.0
    for left, right, slope in zip(edges[:-1], edges[1:], slopes, strict=True):
        covered = np.clip([0.0, x], left, right) if np.isfinite([left, right]).any() else np.array([0.0, x])
        total += slope * (covered[1] - covered[0])
    return total


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-3, 3, width=32), max_size=6, unique=True),
    st.lists(st.floats(-5, 5, width=32), min_size=8, max_size=8),
    st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=10),
)
def test_the_closed_form_is_the_walk(knots, slopes, points):
    knots = sorted({*knots, 0.0})
    slopes = slopes[: len(knots) + 1]
    function = LocalFunctions(torch.tensor([knots]), torch.tensor([slopes]), 0.5)
    made = function.values(torch.tensor(points)[:, None])[:, 0]
    for value, x in zip(made.tolist(), points, strict=True):
        assert value == pytest.approx(0.5 * walk(knots, slopes, x), abs=2e-5)


def test_drawn_functions_agree_with_the_walk_and_the_published_form():
    function = LocalFunctions.draw(FIELD, seed=3)
    made = function.values(SAMPLES[:3]).double()
    knots, slopes = function.knots.double().numpy(), function.slopes.double().numpy() * function.scale
    for row, x in zip(made.numpy(), SAMPLES[:3].double().numpy(), strict=True):
        walked = [walk(knots[cell], slopes[cell], x[cell]) for cell in range(len(FIELD))]
        np.testing.assert_allclose(row, walked, atol=5e-9)
    # a + w0 x + sum (w_j - w_{j-1}) max(x - k_j, 0)
    jumps = np.diff(slopes, axis=1)
    offset = -(jumps * np.maximum(-knots, 0)).sum(1)
    x = SAMPLES[:3].double().numpy()
    bends = (jumps * np.maximum(x[:, :, None] - knots, 0)).sum(2)
    np.testing.assert_allclose(made.numpy(), offset + slopes[:, 0] * x + bends, atol=5e-9)


@pytest.mark.parametrize("breaks", [0, 1, 2, 5, 30])
def test_functions_pass_through_nothing_and_never_jump(breaks):
    function = LocalFunctions.draw(FIELD, breaks, seed=1)
    assert function.knots.shape == (458, breaks)
    assert function.slopes.shape == (458, breaks + 1)
    assert function.values(torch.zeros(1, 458)).abs().max() == 0  # to the last digit
    assert function.total(torch.zeros(1, 458)) == 0
    if breaks:
        assert ((function.knots == 0).sum(1) == 1).all()
    for knot in function.knots.T:
        step = 1e-4
        change = function.values((knot + step)[None]) - function.values((knot - step)[None])
        most = 2 * step * function.slopes.abs().max() * function.scale
        assert change.abs().max() <= most * 1.1 + 1e-8


def test_no_breaks_are_linear():
    function = LocalFunctions.draw(FIELD, 0, seed=5)
    assert torch.allclose(function.values(SAMPLES), SAMPLES * function.slopes[:, 0] / 458, atol=1e-9)
    assert torch.allclose(function.total(3 * SAMPLES), 3 * function.total(SAMPLES), atol=1e-6)


def test_slopes_and_breaks_are_maps_of_the_field():
    slopes = torch.cat([LocalFunctions.draw(FIELD, 5, seed).slopes for seed in range(60)], 1)
    found = torch.corrcoef(slopes.double())
    assert torch.corrcoef(torch.stack([found.flatten(), FIELD.correlation.flatten()]))[0, 1] > 0.85
    first = LocalFunctions.draw(FIELD, 5, 0)
    assert torch.equal(first.slopes, LocalFunctions.draw(FIELD, 5, 0).slopes)
    assert first.digest == LocalFunctions.draw(FIELD, 5, 0).digest != LocalFunctions.draw(FIELD, 5, 1).digest


def test_breaks_know_nothing_of_slopes():
    function = LocalFunctions.draw(FIELD, 5, 0)
    knots = function.knots[function.knots != 0].reshape(458, 4)
    nearest = (knots[:, :, None] - function.slopes[:, None, :]).abs().amin((1, 2))
    assert nearest.median() > 1e-3  # none of them is one of the cell's slopes
    ordered = function.slopes[:, :4].sort(1).values
    both = torch.stack([(knots - knots.mean(0)).flatten(), (ordered - ordered.mean(0)).flatten()])
    assert torch.corrcoef(both)[0, 1].abs() < 0.9


def test_the_module_adds_up_and_has_the_right_gradient():
    function = LocalFunctions.draw(FIELD, seed=2)
    module = function.module()
    x = SAMPLES.clone().requires_grad_()
    out = module(x)
    assert out.shape == (200, 1)
    assert torch.allclose(out[:, 0], function.total(SAMPLES), atol=1e-7)
    assert torch.allclose(function.values(SAMPLES).sum(1), function.total(SAMPLES), atol=1e-7)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    assert torch.allclose(gradient, function.slope(SAMPLES), atol=1e-9)
    # the slope is that of the piece a value lies in
    piece = (SAMPLES[:, :, None] > function.knots).sum(2)
    expected = function.slopes.expand(200, -1, -1).gather(2, piece[:, :, None])[:, :, 0] / 458
    assert torch.allclose(gradient, expected, atol=1e-8)


def agreement(maps, truth):
    both = [t - t.mean(1, keepdim=True) for t in (maps.double(), truth.double())]
    return (both[0] * both[1]).sum(1) / (both[0].norm(dim=1) * both[1].norm(dim=1))


def test_explainers_are_right_on_the_module():
    x = SAMPLES[:20]
    rough, gradients = [], []
    for seed in range(20):
        function = LocalFunctions.draw(FIELD, seed=seed)
        truth = function.values(x)
        rough.append(agreement(x * function.slope(x), truth).mean())
        gradients.append(agreement(function.slope(x), truth).mean())
    assert torch.stack(rough).mean() == pytest.approx(0.72, abs=0.1)
    assert abs(torch.stack(gradients).mean()) < 0.15
    module, truth = function.module(), function.values(x)
    one_out = torch.stack([module(x * (torch.arange(458) != cell))[:, 0] for cell in range(0, 458, 40)], 1)
    assert torch.allclose(module(x) - one_out, truth[:, ::40], atol=1e-7)
    steps = (torch.arange(64) + 0.5) / 64
    path = x * torch.stack([function.slope(x * step) for step in steps]).mean(0)
    assert agreement(path, truth).min() > 0.9995


def test_deeplift_is_right_on_the_module():
    x = SAMPLES[:4]
    function = LocalFunctions.draw(FIELD, seed=4)
    targets = torch.zeros(4, dtype=torch.int64)
    maps = verax.explain(function.module(), x, targets, method="deeplift-rescale")
    assert agreement(maps, function.values(x)).min() > 0.9999


def test_functions_are_saved_with_their_seed(tmp_path):
    function = LocalFunctions.draw(FIELD, 3, seed=11)
    again = LocalFunctions.load(function.save(tmp_path / "f.safetensors", field=FIELD.digest))
    assert again.digest == function.digest
    assert (again.seed, again.scale, again.breaks) == (11, function.scale, 3)
    assert torch.equal(again.values(SAMPLES), function.values(SAMPLES))
    linear = LocalFunctions.draw(FIELD, 0, seed=1)
    assert LocalFunctions.load(linear.save(tmp_path / "g.safetensors")).digest == linear.digest


def test_wrong_functions_are_refused(tmp_path):
    with pytest.raises(MissingFile, match="There is no file"):
        LocalFunctions.load(tmp_path / "none")
    (tmp_path / "broken").write_bytes(b"nothing")
    with pytest.raises(WeightsError, match="does not hold functions"):
        LocalFunctions.load(tmp_path / "broken")
    for knots, slopes in (
        (torch.zeros(3), torch.zeros(3)),
        (torch.zeros(3, 1), torch.zeros(3)),
        (torch.zeros(3, 1, dtype=torch.int64), torch.zeros(3, 2)),
        (torch.full((3, 1), torch.nan), torch.zeros(3, 2)),
    ):
        about = {"scale": (0.5).hex(), "seed": "0", "facts": "{}"}
        save_file({"knots": knots, "slopes": slopes}, tmp_path / "flat", about)
        with pytest.raises(WeightsError, match="does not hold functions"):
            LocalFunctions.load(tmp_path / "flat")
    for wrong in (-1, 1.5, True, 1000):
        with pytest.raises(InvalidParameter, match="breaks must be"):
            LocalFunctions.draw(FIELD, wrong)
    with pytest.raises(InvalidInput, match="2 break points need 3 slopes"):
        LocalFunctions(torch.zeros(4, 2), torch.zeros(4, 2), 1.0)
    with pytest.raises(InvalidInput, match="must rise"):
        LocalFunctions(torch.tensor([[1.0, 0.0]]), torch.zeros(1, 3), 1.0)
    with pytest.raises(InvalidInput, match="samples of 458 cells"):
        LocalFunctions.draw(FIELD).total(torch.zeros(3, 4))


def test_slopes_and_break_points_are_drawn_apart():
    function = LocalFunctions.draw(FIELD, 5)
    drawn = {tuple(row) for row in function.slopes.T.tolist()}
    knots = {value for row in function.knots.tolist() for value in row} - {0.0}
    assert not knots & {value for row in drawn for value in row}
