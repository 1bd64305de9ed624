"""Scores of alignment against golden vectors, plain loops and what they promise of degenerate inputs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verax.errors import InvalidInput, InvalidParameter
from verax.metrics import METRICS, cases8, chance, pixels, pointing, shared_interest
from verax.metrics.alignment import SCORES, Judging, collapse, judge
from verax.metrics.alignment import shared_interest as score_all
from verax.metrics.binarisation import Binarisation, binarise, flat

SIDE = 250


def box(rows, cols, side=SIDE):
    mask = torch.zeros(1, side, side, dtype=torch.bool)
    mask[0, slice(*rows), slice(*cols)] = True
    return mask


GOLDEN = [
    (box((0, 100), (0, 100)), box((50, 150), (50, 150)), 1 / 7, 0.25, 0.25),
    (box((100, 250), (200, 250)), box((50, 250), (100, 250)), 0.25, 0.25, 1.0),
    (box((0, 250), (0, 250)), box((50, 100), (50, 100)), 0.04, 1.0, 0.04),
    (box((0, 100), (0, 100)), box((150, 250), (150, 250)), 0.0, 0.0, 0.0),
    (box((50, 100), (50, 100)), box((50, 100), (50, 100)), 1.0, 1.0, 1.0),
]


@pytest.mark.parametrize(("marked", "shown", "iou", "saliency", "truth"), GOLDEN)
def test_golden_vectors(marked, shown, iou, saliency, truth):
    assert float(shared_interest.iou(shown, marked)) == pytest.approx(iou, abs=1e-15)
    assert float(shared_interest.saliency_coverage(shown, marked)) == pytest.approx(saliency, abs=1e-15)
    assert float(shared_interest.ground_truth_coverage(shown, marked)) == pytest.approx(truth, abs=1e-15)
    assert float(shared_interest.energy(shown.double(), marked)) == pytest.approx(saliency, abs=1e-15)
    # one mask after the other gives what all together give
    all_marked, all_shown = (torch.cat([row[place] for row in GOLDEN]) for place in (0, 1))
    row = next(n for n, row in enumerate(GOLDEN) if row[0] is marked)
    assert float(shared_interest.iou(all_shown, all_marked)[row]) == pytest.approx(iou, abs=1e-15)


# --- plain loops ---------------------------------------------------------------------------------------


def plain_region(values, rule, number):
    """One map by the published recipe: scaled to [0, 1], then compared."""
    values = values.astype(np.float64)
    if not np.isfinite(values).all() or values.min() == values.max():
        return np.zeros(values.shape, bool)
    scaled = (values - values.min()) / (values.max() - values.min())
    if rule == "std":
        return scaled >= scaled.mean() + number * scaled.std()
    if rule == "threshold":
        return scaled >= number
    if rule == "percentile":
        return values >= np.percentile(values, number)
    raise AssertionError(rule)


def plain_scores(values, mask, rule, number):
    region = plain_region(values, rule, number)
    values = values.astype(np.float64)
    if not mask.any():
        return dict.fromkeys(SCORES, math.nan)
    both, either = (region & mask).sum(), (region | mask).sum()
    usable = values if np.isfinite(values).all() else np.zeros_like(values)
    peaks = [mask[r, c] for r, c in np.ndindex(mask.shape) if usable[r, c] == usable.max()]
    mass = usable.clip(0)
    mass = mass if mass.max() > 0 else np.ones_like(mass)
    return {
        "iou": both / either,
        "ground-truth-coverage": both / mask.sum(),
        "saliency-coverage": both / region.sum() if region.any() else 0.0,
        "pointing-game": float(np.mean(peaks)),
        "energy": mass[mask].sum() / mass.sum(),
    }


def batch(count, height, width, seed, dtype):
    """Maps of many kinds: noise, signed noise, few levels (ties), constant, NaN, infinite, huge."""
    random = np.random.default_rng(seed)
    maps = random.normal(size=(count, height, width))
    maps[::3] = np.abs(maps[::3])
    maps[1::4] = random.integers(0, 4, (len(maps[1::4]), height, width)) / 4
    maps[5::11] = random.choice([0.0, -2.0, 3.5], (len(maps[5::11]), 1, 1))
    maps[6::13, 0, 0] = math.nan
    maps[7::17, -1, -1] = math.inf
    maps[8::19] *= 1e30
    masks = random.random((count, height, width)) < random.random((count, 1, 1))
    masks[::9] = False
    masks[4::9] = True
    return maps.astype(dtype), masks


@pytest.mark.parametrize("rule", [("std", 1.0), ("std", -0.5), ("threshold", 0.5), ("percentile", 90.0)])
@pytest.mark.parametrize("shape", [(7, 9), (16, 16), (1, 8), (5, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_those_of_a_plain_loop(rule, shape, dtype):
    maps, masks = batch(120, *shape, seed=1, dtype=dtype)
    found = judge(torch.from_numpy(maps), torch.from_numpy(masks), Judging(Binarisation(*rule)))
    for row in range(len(maps)):
        wanted = plain_scores(maps[row], masks[row], *rule)
        for name, value in wanted.items():
            got = float(found.scores[name][row])
            close = 1e-6 if dtype == np.float32 else 1e-12
            assert got == pytest.approx(value, abs=close, nan_ok=True), (row, name)
    assert found.empty.tolist() == (~masks.any((1, 2))).tolist()


def test_regions_are_those_of_a_plain_loop_in_every_chunk(monkeypatch):
    monkeypatch.setattr(pixels, "_CHUNK", 300)
    maps, masks = batch(60, 8, 8, seed=2, dtype=np.float64)
    for rule, number in (("std", 1.0), ("threshold", 0.25), ("percentile", 33.3)):
        wanted = np.stack([plain_region(one, rule, number) for one in maps])
        assert (binarise(torch.from_numpy(maps), f"{rule}:{number}").numpy() == wanted).all()
    both = score_all(torch.from_numpy(maps), torch.from_numpy(masks))
    monkeypatch.undo()
    whole = score_all(torch.from_numpy(maps), torch.from_numpy(masks))
    for name in SCORES:
        assert torch.allclose(both[name], whole[name], equal_nan=True)


def test_strongest_pixels_are_exactly_k_and_ties_favour_no_corner():
    maps = torch.rand(20, 6, 8, dtype=torch.float64)
    shown = binarise(maps, "top:10")
    assert (shown.sum((1, 2)) == 10).all()
    for values, region in zip(maps, shown, strict=True):
        assert values[region].min() >= values[~region].max()
    assert (binarise(maps, "top:0.25").sum((1, 2)) == 12).all()
    levels = torch.zeros(1, 32, 32)
    levels[0, 0, 0] = 1  # all others are tied
    chosen = binarise(levels, "top:101")[0]
    assert chosen[0, 0]
    assert chosen.sum() == 101
    rows = chosen.sum(1).double()
    assert rows[:16].sum() < 90  # the first in order would all lie in the first four rows
    assert (binarise(maps, "top:9999").sum((1, 2)) == 48).all()


@pytest.mark.parametrize("rule", ["std:1", "threshold:0", "percentile:0", "top:5"])
@pytest.mark.parametrize("value", [0.0, -3.0, math.nan, math.inf, -math.inf])
def test_flat_maps_show_nothing(rule, value):
    maps = torch.full((2, 4, 4), value)
    assert not binarise(maps, rule).any()
    assert flat(maps).all()
    masks = box((0, 2), (0, 2), 4).expand(2, 4, 4)
    found = judge(maps, masks, Judging(Binarisation.of(rule)))
    assert found.flat.all()
    for name in ("iou", "ground-truth-coverage", "saliency-coverage"):
        assert (found.scores[name] == 0).all()
    assert (found.scores["pointing-game"] == 0.25).all()
    assert (found.scores["energy"] == 0.25).all()


def test_nothing_marked_is_left_out_or_a_miss():
    maps, none = torch.rand(2, 4, 4), torch.zeros(2, 4, 4, dtype=torch.bool)
    left = judge(maps, none)
    assert left.empty.all()
    assert all(
        values.isnan().all() for table in (left.scores, left.random, left.centre) for values in table.values()
    )
    missed = judge(maps, none, Judging(empty="miss"))
    assert all((values == 0).all() for values in missed.scores.values())


def test_levels_do_not_depend_on_scale_or_overflow():
    maps = torch.rand(4, 16, 16)
    plain = binarise(maps, "std:1")
    assert (binarise(maps * 1e37, "std:1") == plain).all()
    assert (binarise(maps * 2e-37, "std:1") == plain).all()
    wide = torch.tensor([[[-3e38, 3e38], [0.0, 3e38]]])
    assert binarise(wide, "threshold:0.5").flatten().tolist() == [False, True, True, True]


def test_a_threshold_of_one_keeps_the_maximum():
    maps = torch.rand(200, 5, 5) * 0.3 + 0.1
    assert (binarise(maps, "threshold:1").sum((1, 2)) == 1).all()


def test_counting_bytes_by_the_word_is_counting():
    for width in (8, 784, 4096, 2048 * 3, 8 * 257):
        marks = torch.rand(5, width) < 0.7
        marks[0] = True
        assert pixels.count(marks).tolist() == marks.sum(1).tolist()


@pytest.mark.parametrize(
    "text", ["st:1", "std:x", "threshold:2", "percentile:101", "top:0", "top:2.5", "top:-1", "std:nan", ""]
)
def test_impossible_rules_are_refused(text):
    with pytest.raises(InvalidParameter):
        Binarisation.of(text)


def test_wrong_shapes_and_masks_are_refused():
    with pytest.raises(InvalidInput, match="one shape"):
        shared_interest.iou(torch.ones(1, 4, 4), torch.ones(1, 4, 5))
    with pytest.raises(InvalidInput, match="0 and 1"):
        shared_interest.iou(torch.ones(1, 4, 4), torch.full((1, 4, 4), 2))
    with pytest.raises(InvalidInput):
        judge(torch.ones(4, 4), torch.ones(4, 4))
    with pytest.raises(InvalidParameter, match="positive"):
        shared_interest.energy(torch.ones(1, 4, 4), torch.ones(1, 4, 4), mass="negative")


def test_energy_of_signed_maps():
    maps = torch.tensor([[[3.0, -1.0], [1.0, -5.0]]])
    masks = torch.tensor([[[True, True], [False, False]]])
    assert float(shared_interest.energy(maps, masks)) == pytest.approx(3 / 4)
    assert float(shared_interest.energy(maps, masks, "magnitude")) == pytest.approx(4 / 10)
    assert float(shared_interest.energy(maps, masks, "scaled")) == pytest.approx(12 / 18)


# --- the pointing game ---------------------------------------------------------------------------------


def test_a_tolerance_is_a_disc_and_strict():
    values = torch.zeros(1, 41, 41)
    values[0, 20, 20] = 1
    for row, col in ((20, 34), (20, 35), (29, 32), (11, 8), (20, 20), (31, 30), (5, 20), (6, 20)):
        mask = torch.zeros(1, 41, 41, dtype=torch.bool)
        mask[0, row, col] = True
        near = (row - 20) ** 2 + (col - 20) ** 2 < 15**2
        assert float(pointing.pointing(values, mask, tolerance=15)) == near, (row, col)
    far = torch.zeros(1, 41, 41, dtype=torch.bool)
    assert math.isnan(float(pointing.pointing(values, far, tolerance=15)))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.floats(0, 9).map(lambda r: round(2 * r) / 2),
    st.integers(0, 99),
)
def test_dilation_is_a_search_over_all_pairs(height, width, radius, seed):
    marked = np.random.default_rng(seed).random((2, height, width)) < 0.08
    rows, cols = np.mgrid[:height, :width]
    wanted = marked.copy()
    for n, row, col in np.argwhere(marked):
        wanted[n] |= (rows - row) ** 2 + (cols - col) ** 2 < radius**2
    assert (pointing.dilated(torch.from_numpy(marked), radius).numpy() == wanted).all()


def test_ties_are_shared_or_the_first_counts():
    values = torch.zeros(1, 3, 4)
    values[0, 1, 2] = values[0, 2, 0] = values[0, 2, 3] = 7
    mask = torch.zeros(1, 3, 4, dtype=torch.bool)
    mask[0, 2] = True
    assert float(pointing.pointing(values, mask)) == pytest.approx(2 / 3)
    assert float(pointing.pointing(values, mask, ties="first")) == 0
    mask[0, 1, 2] = True
    assert float(pointing.pointing(values, mask, ties="first")) == 1
    constant = torch.ones(1, 3, 4)
    corner = torch.zeros(1, 3, 4, dtype=torch.bool)
    corner[0, 0, 0] = True
    assert float(pointing.pointing(constant, corner, ties="first")) == 1
    assert float(pointing.pointing(constant, corner)) == pytest.approx(1 / 12)
    found = judge(constant, corner, Judging(ties="first"))
    assert float(found.scores["pointing-game"]) == 1


def test_only_instances_of_the_class_count():
    instances = torch.zeros(2, 3, 4, 4, dtype=torch.bool)
    instances[:, 0, 0], instances[:, 1, 1], instances[:, 2, 2] = True, True, True
    kinds = torch.tensor([[5, 6, 5], [6, -1, -1]])
    union = pointing.of_class(instances, kinds, torch.tensor([5, 6]))
    assert union[0].any(1).tolist() == [True, False, True, False]
    assert union[1].any(1).tolist() == [True, False, False, False]
    with pytest.raises(InvalidInput):
        pointing.of_class(instances, kinds[:1], torch.tensor([5, 6]))


def test_classes_count_alike_however_many_images_they_have():
    means = pointing.class_means(
        torch.tensor([1.0, 1, 1, 0, math.nan, math.nan]), torch.tensor([3, 3, 3, 8, 8, 9])
    )
    assert means == {3: 1.0, 8: 0.0}


@pytest.mark.parametrize(("name", "value"), [("tolerance", -1), ("tolerance", True), ("ties", "last")])
def test_impossible_games_are_refused(name, value):
    with pytest.raises(InvalidParameter):
        pointing.pointing(torch.ones(1, 2, 2), torch.ones(1, 2, 2), **{name: value})
    with pytest.raises(InvalidParameter):
        Judging(**{name: value})


# --- chance --------------------------------------------------------------------------------------------


def plain_random_iou(shown, marked, total):
    ways = {
        both: math.comb(marked, both) * math.comb(total - marked, shown - both)
        for both in range(max(0, shown + marked - total), min(shown, marked) + 1)
    }
    return sum(n * both / (shown + marked - both) for both, n in ways.items()) / sum(ways.values())


def test_random_iou_is_the_exact_expectation():
    sizes = [(s, m, 64) for s in (0, 1, 5, 32, 63, 64) for m in (1, 2, 30, 64)]
    counts = shared_interest.Counts(
        torch.zeros(len(sizes)).long(),
        torch.tensor([m for _, m, _ in sizes]),
        torch.tensor([s for s, _, _ in sizes]),
        64,
    )
    for got, size in zip(chance.random_iou(counts), sizes, strict=True):
        assert float(got) == pytest.approx(plain_random_iou(*size), abs=1e-12), size


def test_chance_is_what_random_regions_score():
    torch.manual_seed(0)
    masks = box((2, 12), (3, 9), 20).expand(4000, 20, 20)
    maps = torch.rand(4000, 20, 20)
    found = judge(maps, masks, Judging(Binarisation("top", 70)))
    for name in SCORES:
        score, expected = found.scores[name], found.random[name]
        error = float(score.std()) / len(score) ** 0.5
        assert float(score.mean()) == pytest.approx(float(expected.mean()), abs=4 * error + 1e-9), name


def test_centre_scores_are_those_of_the_central_pixels():
    masks = torch.stack([box((6, 14), (6, 14), 20)[0], box((0, 4), (0, 20), 20)[0]])
    found = judge(torch.rand(2, 20, 20), masks, Judging(Binarisation("top", 64)))
    bump = chance.centre_bump(20, 20, torch.device("cpu"))
    own = judge(bump.expand(2, 20, 20), masks, Judging(Binarisation("top", 64)))
    assert found.centre["iou"][0] > 0.7
    assert found.centre["iou"][1] == 0
    assert found.centre["pointing-game"].tolist() == own.scores["pointing-game"].tolist() == [1, 0]
    assert found.centre["energy"].numpy() == pytest.approx(own.scores["energy"].numpy(), abs=1e-6)
    # equally far pixels are taken in another order, which moves at most the last ring
    assert found.centre["iou"].numpy() == pytest.approx(own.scores["iou"].numpy(), abs=0.1)


def test_a_tolerance_widens_chance_too():
    maps, masks = torch.rand(1, 30, 30), box((10, 12), (10, 12), 30)
    plain, wide = judge(maps, masks), judge(maps, masks, Judging(tolerance=6))
    assert float(plain.random["pointing-game"]) == pytest.approx(4 / 900)
    near = pointing.dilated(masks, 6)
    assert float(wide.random["pointing-game"]) == pytest.approx(int(near.sum()) / 900)
    assert wide.random["iou"] == plain.random["iou"]


# --- the eight cases -----------------------------------------------------------------------------------


def case_of(iou, truth, shown, right, ranges=None):
    scores = dict(zip(cases8.COLUMNS, (torch.tensor([value]) for value in (iou, truth, shown)), strict=True))
    found = cases8.members(scores, torch.tensor([right]), ranges)
    return [name for name, inside in found.items() if inside.all()]


@pytest.mark.parametrize(
    ("scores", "right", "wrong"),
    [
        ((0.9, 0.95, 0.95), "Human Aligned", "Confuser"),
        ((0.6451, 0.8, 0.8), "Human Aligned", "Confuser"),
        ((0.3, 0.2, 0.65), "Sufficient Subset", "Insufficient Subset"),
        ((0.2, 0.5, 0.5), "Sufficient Context", "Distractor"),
        ((0.204, 0.5, 0.5), "Sufficient Context", "Distractor"),
        ((0.3, 0.65, 0.2), "Context Dependant", "Context Confusion"),
    ],
)
def test_cases_have_the_published_ranges(scores, right, wrong):
    assert case_of(*scores, 1.0) == [right]
    assert case_of(*scores, 0.0) == [wrong]
    assert case_of(*scores, math.nan) == []


def test_cases_overlap_and_leave_some_out():
    assert case_of(0.1, 0.1, 0.9, 1.0) == ["Sufficient Subset", "Sufficient Context"]
    assert case_of(0.4, 0.6, 0.5, 1.0) == []
    assert case_of(0.644, 0.6, 0.5, 1.0) == []
    assert case_of(0.206, 0.4, 0.4, 0.0) == []
    assert case_of(math.nan, math.nan, math.nan, 1.0) == []


def test_presets_and_own_ranges():
    assert case_of(0.4, 0.6, 0.6, 1.0, "melanoma") == ["Human Aligned"]
    assert case_of(0.3, 0.4, 0.4, 0.0, "text") == ["Distractor"]
    own = {"high": (0.5, 1.0), "Confuser": {"iou": (0.1, 0.2), "saliency-coverage": (0.3, 0.4)}}
    assert case_of(0.55, 0.6, 0.6, 1.0, own) == ["Human Aligned"]
    assert case_of(0.15, 0.6, 0.35, 0.0, own) == ["Confuser", "Distractor"]
    assert case_of(0.15, 0.6, 0.6, 0.0, own) == ["Distractor"]
    for wrong in (
        {"low": (0.3, 0.1)},
        {"Confusor": {}},
        {"Confuser": {"io": (0, 1)}},
        {"high": 3},
        "imagenette",
    ):
        with pytest.raises(InvalidParameter):
            cases8.Ranges.of(wrong)


def test_the_registry_knows_all_scores():
    assert [name for name in METRICS if METRICS.get(name).protocol == "alignment"] == [
        f"align/{name}" for name in SCORES
    ]


def test_channels_are_summed_with_or_without_their_signs():
    maps = torch.tensor([[[[1.0]], [[-3.0]]]])
    assert float(collapse(maps)) == -2
    assert float(collapse(maps, "magnitude")) == 4
    with pytest.raises(InvalidParameter, match="magnitude"):
        collapse(maps, "magnitud")


# --- one look at many rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 7, 64, 97, 4099, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_look_tells_what_many_would(width, dtype, monkeypatch):
    monkeypatch.setattr(pixels, "_CHUNK", 3 * width)  # several parts
    values = torch.rand(11, width, dtype=dtype, generator=torch.Generator().manual_seed(width))
    values[1] = values[1, 0]  # all tied
    values[2, -1] = values[2].max()  # tied at the end
    values[3, 0] = 2.0
    for rows, plain in ((values, True), (values - 0.5, False)):
        found = pixels.measure(rows)
        high = rows.amax(1, keepdim=True)
        wanted = (rows == high).int()
        assert found.plain is plain
        assert torch.equal(found.place, wanted.argmax(1, keepdim=True))
        assert bool(found.tied[wanted.sum(1) > 1].all())  # none is left out
        for ours, theirs in ((found.total, rows), (found.squares, rows.square())):
            # equal numbers are all rounded the same way; how far that goes depends on the processor
            assert torch.allclose(ours[:, 0], theirs.double().sum(1), rtol=5e-6, atol=1e-6 * width**0.5)


def test_a_map_is_read_alike_whatever_is_beside_it():
    usual = torch.rand(1, 12, 12, generator=torch.Generator().manual_seed(0))
    others = torch.stack(
        [usual[0] + 1e4, usual[0] * 1e-25, usual[0] * 1e25, usual[0] - 0.5, torch.full((12, 12), torch.nan)]
    )
    mask = torch.zeros(6, 12, 12, dtype=torch.bool)
    mask[:, 2:7, 3:9] = True
    alone, among = score_all(usual, mask[:1]), score_all(torch.cat([usual, others]), mask)
    for name, score in alone.items():
        assert torch.allclose(score, among[name][:1], rtol=1e-6), name
    for row in (2, 3):  # other units
        for name, score in alone.items():
            assert torch.allclose(score[0], among[name][row], rtol=1e-5), (name, row)
    assert among["iou"][4] == alone["iou"][0]  # what is shown does not depend on an offset
    assert among["iou"][5] == 0


@pytest.mark.parametrize("total", [1, 5, 40])
def test_expected_iou_is_a_mean_over_all_choices(total):
    shown, marked = (grid.flatten() for grid in torch.meshgrid(*[torch.arange(total + 1)] * 2, indexing="ij"))
    found = chance.random_iou(shared_interest.Counts(shown, marked, shown, total))
    for own, size, value in zip(shown.tolist(), marked.tolist(), found.tolist(), strict=True):
        if not size:
            assert math.isnan(value)
            continue
        ways = [math.comb(size, both) * math.comb(total - size, own - both) for both in range(own + 1)]
        wanted = sum(way * both / (own + size - both) for both, way in enumerate(ways)) / sum(ways)
        assert value == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("height", "width"), [(13, 12), (1, 13), (28, 28), (49, 6), (224, 7)])
def test_the_centre_map_favours_no_side(height, width):
    bump = chance.centre_bump(height, width, torch.device("cpu"))
    assert torch.equal(bump, bump.flip(0))
    assert torch.equal(bump, bump.flip(1))
    assert int((bump == bump.max()).sum()) == (2 - height % 2) * (2 - width % 2)


@pytest.mark.parametrize("tolerance", [0, 1, 1.2, 1.5, 2, 2.5])
def test_all_scores_at_once_take_the_tolerance_of_the_game(tolerance):
    generator = torch.Generator().manual_seed(0)
    maps, masks = (
        torch.rand(200, 9, 9, generator=generator),
        torch.rand(200, 9, 9, generator=generator) < 0.05,
    )
    found = judge(maps, masks, Judging(tolerance=tolerance))
    alone = pointing.pointing(maps, masks, tolerance=tolerance)
    assert torch.equal(found.scores["pointing-game"].nan_to_num(9), alone.nan_to_num(9))
    constant = pointing.pointing(torch.zeros(200, 9, 9), masks, tolerance=tolerance)
    assert torch.allclose(found.random["pointing-game"], constant, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_map_far_from_zero_shows_what_it_shows_near_zero(dtype):
    """All numbers are exact, so that only the sums of squares could lose digits."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randint(0, 64, (20, 32, 32), generator=generator).to(dtype) / 64
    assert torch.equal(binarise(maps + 65536, "std:1"), binarise(maps, "std:1"))
    assert torch.equal(binarise(maps - 65536, "std:0.5"), binarise(maps, "std:0.5"))


def test_own_ranges_are_taken_as_they_are():
    """Scores are rounded to two decimals; the ends of ranges are not."""
    own = cases8.Ranges((0.0, 0.05), (0.125, 1.0))
    assert "Human Aligned" not in case_of(0.12, 0.5, 0.5, 1.0, own)
    assert "Human Aligned" in case_of(0.13, 0.5, 0.5, 1.0, own)
    for score in range(101):  # what two decimals mean is met exactly
        ends = cases8.Ranges((0.0, 0.0), (score / 100, score / 100))
        assert "Human Aligned" in case_of(
            float(f"0.{score:02d}") if score < 100 else 1.0, 0.5, 0.5, 1.0, ends
        )


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e38, 1e305])
@pytest.mark.parametrize("signed", [False, True])
def test_a_map_is_what_it_is_beside_any_other(kind, scale, signed):
    drawn = torch.rand(1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = ((drawn * 6 - 3 * signed).clamp(-3.3, 3.3) * scale).to(kind)
    beside = torch.cat([one, torch.full_like(one, torch.nan), -one])
    for rule in ("threshold:0.5", "std:1", "top:5", "percentile:90"):
        alone, among = binarise(one, rule), binarise(beside, rule)
        assert torch.equal(alone[0], among[0]), rule
    assert bool(binarise(one, "top:5").any()) == bool((one.double().abs() <= 1e300).all())
