"""Sound metrics against enumeration, exact fractions and loops."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from verax.cases import Cases, Role, Truth
from verax.errors import InvalidInput, InvalidParameter, UnknownName
from verax.metrics import METRICS, focus, overlap, pixels, pointing, ranks, scoring

TIED = st.sampled_from([-1.0, 0.0, 0.1, 0.3, 2.0])
REAL = st.floats(-10, 10, allow_subnormal=False)
TINY = (2, 3)
NAMES = [
    "focus-share",
    "avoid-share",
    "other-share",
    "background-share",
    "rank-accuracy",
    "iou",
    "pointing-game",
]
FOCUS_BASED = ["focus-share", "rank-accuracy", "iou", "pointing-game"]


def maps_and_masks(elements, shape=TINY):
    return st.tuples(hnp.arrays(np.float64, shape, elements=elements), hnp.arrays(np.bool_, shape))


def truth_of(objects, roles):
    objects = torch.as_tensor(objects)
    boxes = torch.zeros(*objects.shape[:2], 4, dtype=torch.int64)
    names = [f"o{k}" for k in range(objects.shape[1])]
    return Truth.from_objects(objects, boxes, torch.as_tensor(roles, dtype=torch.int8), names)


def cases_of(truth, targets=None, channels=3):
    n, height, width = truth.focus.shape
    targets = torch.zeros(n, dtype=torch.int64) if targets is None else torch.as_tensor(targets)
    inputs = torch.zeros(n, channels, height, width)
    return Cases(inputs, targets, truth, torch.arange(n) % 2, torch.arange(n) + 100)


def scenes(seed=0, n=6, size=16):
    """Three overlapping rectangles each; roles focus, avoid and other."""
    rng = np.random.default_rng(seed)
    objects = np.zeros((n, 3, size, size), dtype=bool)
    for i, k in itertools.product(range(n), range(3)):
        row, column = rng.integers(0, size - 5, 2)
        objects[i, k, row : row + 3 + k, column : column + 4] = True
    return truth_of(objects, [[Role.FOCUS, Role.AVOID, Role.OTHER]] * n)


# --- ties: every order in which equal pixels can be ranked -------------------------------------------------


def over_all_orders(values, mask):
    """Exact rank accuracy, IoU and pointing game: all orders of the pixels, then a stable sort."""
    values, mask = values.ravel().tolist(), mask.ravel().tolist()
    size = sum(mask)
    totals, orders = [Fraction(0)] * 3, 0
    for order in itertools.permutations(range(len(values))):
        ranking = sorted(order, key=lambda i: -values[i])
        top, truth = set(ranking[:size]), {i for i, inside in enumerate(mask) if inside}
        totals[0] += Fraction(len(top & truth), size)
        totals[1] += Fraction(len(top & truth), len(top | truth))
        totals[2] += ranking[0] in truth
        orders += 1
    return [float(total / orders) for total in totals]


@settings(max_examples=60, deadline=None)
@given(maps_and_masks(TIED) | maps_and_masks(REAL) | maps_and_masks(st.sampled_from([0.0, 1.0])))
def test_ties_are_expectations_over_all_orders(pair):
    values, mask = pair
    got = [
        metric(torch.from_numpy(values)[None], torch.from_numpy(mask)[None]).item()
        for metric in (overlap.rank_accuracy, overlap.iou, pointing.pointing)
    ]
    if not mask.any():
        assert all(math.isnan(score) for score in got)
    else:
        assert got == pytest.approx(over_all_orders(values, mask), abs=1e-13)


def exact_iou(size, above, above_in, tied, tied_in):
    """The expectation in whole numbers, to 40 digits."""
    drawn = size - above
    first, last = max(0, drawn - (tied - tied_in)), min(drawn, tied_in)
    ways = math.comb(tied_in, first) * math.comb(tied - tied_in, drawn - first)
    total, everything = 0, 0
    for hits in range(first, last + 1):
        everything += ways
        total += ways * (10**40 * (above_in + hits) // (2 * size - above_in - hits))
        ways = ways * (tied_in - hits) * (drawn - hits)
        ways //= (hits + 1) * (tied - tied_in - drawn + hits + 1)
    assert everything == math.comb(tied, drawn)
    return float(Fraction(total // everything, 10**40))


BIG = [
    (347, 0, 0, 4096, 347),
    (16, 0, 0, 4096, 16),
    (363, 200, 150, 3800, 200),
    (2000, 1999, 1000, 2097, 1000),
    (4000, 10, 10, 4086, 3990),
    (100, 40, 40, 60, 60),
    (5, 4, 0, 1, 1),
    (25000, 100, 60, 50076, 24940),
]


def test_iou_is_exact_for_huge_ties():
    columns = [torch.tensor(column) for column in zip(*BIG, strict=True)]
    got = overlap.expected_iou(ranks.Ties(*columns))
    assert got.tolist() == pytest.approx([exact_iou(*row) for row in BIG], rel=1e-10)


def test_iou_does_not_depend_on_its_neighbours():
    rng = np.random.default_rng(0)
    tied = rng.integers(2, 4000, 80)
    tied_in, drawn = rng.integers(1, tied), rng.integers(1, tied)
    size = drawn + tied_in
    columns = [torch.from_numpy(column) for column in (size, size - drawn, size - drawn, tied, tied_in)]
    together = overlap.expected_iou(ranks.Ties(*columns))
    alone = [overlap.expected_iou(ranks.Ties(*(column[i : i + 1] for column in columns))) for i in range(80)]
    assert torch.equal(together, torch.cat(alone))


def test_iou_in_pieces_is_the_same(monkeypatch):
    columns = [torch.tensor(column) for column in zip(*BIG, strict=True)]
    whole = overlap.expected_iou(ranks.Ties(*columns))
    monkeypatch.setattr(overlap, "_CELLS", 1)
    assert torch.equal(whole, overlap.expected_iou(ranks.Ties(*columns)))


@settings(max_examples=60, deadline=None)
@given(maps_and_masks(TIED, (5, 7)) | maps_and_masks(REAL, (5, 7)))
def test_tie_counts_match_a_sort(pair):
    values, mask = pair
    ties = ranks.Ties.of(torch.from_numpy(values)[None], torch.from_numpy(mask)[None])
    size = int(mask.sum())
    assert ties.size.item() == size
    if size:
        level = np.sort(values.ravel())[::-1][size - 1]
        counts = [(values > level).sum(), ((values > level) & mask).sum()]
        counts += [(values == level).sum(), ((values == level) & mask).sum()]
        assert [ties.above, ties.above_in, ties.tied, ties.tied_in] == counts


def test_one_batch_may_hold_masks_of_all_sizes():
    rng = np.random.default_rng(5)
    values = torch.from_numpy(rng.integers(0, 4, (12, *TINY)).astype(float))
    mask = torch.zeros(12, 6, dtype=torch.bool)
    for n in range(12):
        mask[n, : n % 7] = True
    mask = mask.reshape(12, *TINY)
    for metric in (overlap.rank_accuracy, overlap.iou, pointing.pointing):
        together = metric(values, mask)
        alone = torch.cat([metric(values[n : n + 1], mask[n : n + 1]) for n in range(12)])
        assert torch.equal(together.nan_to_num(-1), alone.nan_to_num(-1))
        assert together.isnan().tolist() == [n % 7 == 0 for n in range(12)]


# --- shares ----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(np.float64, (2, 4, 5), elements=st.one_of(TIED, REAL)),
    hnp.arrays(np.bool_, (2, 3, 4, 5)),
    hnp.arrays(np.int8, (2, 3), elements=st.sampled_from([0, 1, 2])),
)
def test_shares_match_a_loop_over_pixels(values, objects, roles):
    truth = truth_of(objects, roles)
    got = focus.shares(torch.from_numpy(values), truth)
    for n in range(2):
        sums = dict.fromkeys(got, 0.0)
        areas = dict.fromkeys(got, 0)
        for row, column in itertools.product(range(4), range(5)):
            held = {int(roles[n, k]) for k in range(3) if objects[n, k, row, column]}
            name = "background"
            for role, label in ((0, "other"), (2, "avoid"), (1, "focus")):
                name = label if role in held else name
            sums[name] += max(values[n, row, column], 0.0)
            areas[name] += 1
        total = sum(sums.values())
        for name in got:
            expected = sums[name] / total if total > 0 else areas[name] / 20
            assert got[name][n].item() == pytest.approx(expected, abs=1e-12)
            assert focus.areas(truth)[name][n].item() == areas[name] / 20
    torch.testing.assert_close(torch.stack(list(got.values())).sum(0), torch.ones(2, dtype=torch.float64))


def test_shares_of_extreme_values_stay_finite():
    truth = scenes()
    for value in (1.7e308, 5e-324):
        values = truth.focus.to(torch.float64) * value
        assert (focus.shares(values, truth)["focus"] == 1).all()


# --- chance and oracle -----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e-30, 1e30])
def test_the_oracle_is_perfect_in_every_metric(scale):
    truth = scenes()
    table = scoring.score(truth.focus * scale, cases_of(truth))
    for name in NAMES:
        best = 1.0 if name in FOCUS_BASED else 0.0
        assert (table[name] == best).all(), name
        assert (table[f"{name}/normalised"] == 1).all(), name
    assert not table["degenerate"].any()


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -0.3, np.nan, np.inf, -np.inf, 1e-300])
@pytest.mark.parametrize("sign", ["magnitude", "positive", "signed"])
def test_a_constant_or_broken_map_scores_exactly_chance(value, sign):
    truth = scenes()
    table = scoring.score(torch.full((6, 16, 16), value, dtype=torch.float64), cases_of(truth), sign=sign)
    size = truth.focus.sum((1, 2)).numpy()
    assert table["degenerate"].all()
    for name in ("focus-share", "pointing-game"):
        assert (table[name] == size / 256).all()
    assert table["rank-accuracy"].to_numpy() == pytest.approx(size / 256, rel=1e-15)
    assert table["iou"].tolist() == pytest.approx(
        [exact_iou(k, 0, 0, 256, k) for k in size.tolist()], rel=1e-11
    )
    for name in NAMES:
        assert (table[f"{name}/normalised"] == 0).all(), name


def test_broken_maps_score_chance_in_the_bare_functions_too():
    truth = scenes(n=2)
    values = torch.rand(2, 16, 16, dtype=torch.float64)
    values[0, 0, 0] = torch.nan
    flat = torch.zeros_like(values)
    for metric in (overlap.rank_accuracy, overlap.iou, pointing.pointing):
        assert metric(values, truth.focus)[0] == metric(flat, truth.focus)[0]
        assert metric(values, truth.focus)[1] != metric(flat, truth.focus)[1]
    assert focus.shares(values, truth)["focus"][0] == focus.areas(truth)["focus"][0]


def test_normalisation_follows_the_formula():
    truth = scenes(3)
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 16, 16)))
    table = scoring.score(values, cases_of(truth))
    area = truth.focus.sum((1, 2)).numpy() / 256
    for name in ("focus-share", "rank-accuracy", "pointing-game"):
        expected = (table[name] - area) / (1 - area)
        assert table[f"{name}/normalised"].to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-12)
    avoid = (truth.avoid & ~truth.focus).sum((1, 2)).numpy() / 256
    expected = 1 - table["avoid-share"] / avoid
    assert table["avoid-share/normalised"].to_numpy() == pytest.approx(expected.to_numpy(), rel=1e-12)


def test_undefined_scores_are_nan_and_only_those():
    objects = np.zeros((4, 2, 8, 8), dtype=bool)
    objects[:, 0, :2], objects[:, 1, 5:] = True, True
    roles = [[Role.FOCUS, Role.OTHER], [Role.AVOID, Role.OTHER], [Role.FOCUS, Role.AVOID], [Role.FOCUS] * 2]
    objects[3] = True
    truth = truth_of(objects, roles)
    table = scoring.score(torch.rand(4, 8, 8), cases_of(truth))
    assert table["other-share"].notna().all()
    assert table["background-share"].notna().all()
    for name in FOCUS_BASED:
        assert table[name].isna().tolist() == [False, True, False, False]
        # In the last case the focus is the whole image: chance is already perfect.
        assert table[f"{name}/normalised"].isna().tolist() == [False, True, False, True]
    assert table["avoid-share"].isna().tolist() == [True, False, False, True]
    assert table["avoid-share/normalised"].isna().tolist() == [True, True, False, True]
    assert table["other-share/normalised"].isna().tolist() == [False, True, True, True]


# --- scoring ---------------------------------------------------------------------------------------------


def test_columns_and_rows():
    truth = scenes()
    cases = cases_of(truth)
    table = scoring.score(torch.rand(6, 3, 16, 16), cases)
    names = scoring.metric_names("sound")
    assert names == [*NAMES, *(f"{name}/normalised" for name in NAMES)]
    assert list(table.columns) == ["sample", "group", "degenerate", "wrong", *names]
    assert table["sample"].tolist() == cases.ids.tolist()
    assert table["group"].tolist() == cases.group.tolist()
    assert table["degenerate"].dtype == table["wrong"].dtype == bool
    assert all(table[name].dtype == np.float64 for name in names)


def test_samples_do_not_see_each_other():
    truth = scenes(n=20)
    cases = cases_of(truth)
    maps = torch.from_numpy(np.random.default_rng(1).integers(-3, 4, (20, 3, 16, 16)).astype(np.float32))
    maps[3] = 0
    maps[4, 0, 0, 0] = torch.nan
    whole = scoring.score(maps, cases)
    for n in range(20):
        alone = scoring.score(maps[n : n + 1], cases[n : n + 1])
        assert alone.iloc[0].equals(whole.iloc[n]), n


def test_wrong_predictions_have_no_truth():
    truth = scenes(n=4)
    cases = cases_of(truth, targets=[0, 1, 0, 1])
    maps = torch.rand(4, 16, 16)
    table = scoring.score(maps, cases, predictions=torch.tensor([0, 0, 0, 1]))
    assert table["wrong"].tolist() == [False, True, False, False]
    names = scoring.metric_names("sound")
    assert table[names].isna().all(axis=1).tolist() == [False, True, False, False]
    right = scoring.score(maps, cases)
    assert not right["wrong"].any()
    assert table.drop(1)[names].equals(right.drop(1)[names])
    for labels in ([0, 0, 0, 1], np.array([0, 0, 0, 1])):
        assert scoring.score(maps, cases, predictions=labels).equals(table)


def test_arrays_tensors_and_dtypes_give_the_same_scores():
    cases = cases_of(scenes())
    maps = np.random.default_rng(2).normal(size=(6, 3, 16, 16)).astype(np.float32)
    maps.setflags(write=False)
    expected = scoring.score(torch.from_numpy(maps.copy()), cases)
    assert scoring.score(maps, cases).equals(expected)
    assert scoring.score(maps[:, :, ::-1][:, :, ::-1], cases).equals(expected)
    assert scoring.score(torch.tensor(maps, requires_grad=True), cases).equals(expected)


def test_sign_decides_what_counts():
    truth = scenes(n=1)
    maps = torch.where(truth.focus, -1.0, 0.5)
    shares = {
        sign: scoring.score(maps, cases_of(truth), sign=sign)["focus-share"][0]
        for sign in ("magnitude", "positive", "signed")
    }
    assert shares["magnitude"] > shares["positive"] == shares["signed"] == 0


def test_bad_input_gets_one_sentence():
    cases = cases_of(scenes())
    good = torch.zeros(6, 3, 16, 16)
    for bad in (good[:5], good[:, :1], good[0], torch.zeros(6, 16, 15), torch.zeros(6)):
        with pytest.raises(InvalidInput, match="Maps must have the shape"):
            scoring.score(bad, cases)
    with pytest.raises(InvalidInput, match="tensor or an array, not list"):
        scoring.score(good.tolist(), cases)
    with pytest.raises(InvalidInput, match="real numbers"):
        scoring.score(good.to(torch.complex64), cases)
    with pytest.raises(InvalidInput, match="real numbers"):
        scoring.score(good.numpy().astype(object), cases)
    with pytest.raises(InvalidInput, match="one label for each of the 6 cases"):
        scoring.score(good, cases, predictions=[0, 1])
    with pytest.raises(InvalidInput, match="one label for each"):
        scoring.score(good, cases, predictions=["a"] * 6)
    with pytest.raises(UnknownName, match="did you mean 'sound'"):
        scoring.score(good, cases, "sond")
    with pytest.raises(UnknownName):
        scoring.metric_names("nonsense")
    with pytest.raises(InvalidParameter, match="did you mean 'magnitude'"):
        scoring.score(good, cases, sign="magnitud")
    with pytest.raises(InvalidParameter, match="did you mean 'heat'"):
        scoring.score(good, cases, transfer="heet")
    with pytest.raises(InvalidInput, match="one shape"):
        overlap.iou(good[:, 0], cases.truth.focus[:2])
    with pytest.raises(InvalidInput, match=r"\(N, H, W\)"):
        ranks.comparable(good)


def test_no_cases_no_rows():
    table = scoring.score(torch.zeros(0, 3, 16, 16), cases_of(scenes())[:0])
    assert len(table) == 0
    assert "iou/normalised" in table


# --- metadata --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in METRICS if METRICS.get(n).protocol != "alignment"])
def test_metadata_is_complete_and_true(name):
    metric = METRICS.get(name)
    assert metric.name == name
    assert metric.paper
    assert metric.description.endswith(".")
    truth = scenes(7)
    if metric.protocol == "sound:shapley":
        weights = (truth.roles == 1).double()
        truth = replace(truth, weights=weights, kind="shapley")
    if metric.protocol == "exact":
        core = torch.zeros(6, 16, 16, dtype=torch.bool)
        core[:, :9] = True
        truth = replace(truth, values=truth.focus.float() - truth.avoid.float(), core=core)
    cases = cases_of(truth)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(cases.inputs[0].numel(), 2))
    maps = torch.rand(6, 16, 16)
    table = scoring.score(maps, cases, metric.protocol, model=model, method="input")
    values = table[name].dropna()
    assert len(values) or metric.protocol not in ("faithfulness", "exact")
    assert values.between(*metric.bounds).all()
    if metric.protocol == "sound":
        best = scoring.score(truth.focus.double(), cases_of(truth))[name].dropna()
        worst = scoring.score((~truth.focus & truth.avoid).double(), cases_of(truth))[name].dropna()
        if name.startswith(("focus", "avoid", "rank", "iou", "pointing")):
            assert (best.mean() > worst.mean()) == metric.higher_is_better


# --- the ROC area ----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(maps_and_masks(TIED) | maps_and_masks(REAL))
def test_the_roc_area_is_a_share_of_pairs(pair):
    values, mask = pair
    got = overlap.roc_area(torch.from_numpy(values)[None], torch.from_numpy(mask)[None]).item()
    inside, outside = values[mask], values[~mask]
    if not len(inside) or not len(outside):
        assert math.isnan(got)
        return
    won = (inside[:, None] > outside).sum() + 0.5 * (inside[:, None] == outside).sum()
    assert got == pytest.approx(won / (len(inside) * len(outside)), abs=1e-12)


def test_the_roc_area_of_a_map_that_says_nothing_is_a_half():
    mask = torch.tensor([[[True, False], [False, True]]]).expand(3, 2, 2)
    values = torch.stack([torch.full((2, 2), 7.0), torch.full((2, 2), math.nan), torch.eye(2)])
    assert overlap.roc_area(values, mask).tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 2, 97, 5000])
def test_order_within_rows_is_that_of_a_sort(width, dtype, monkeypatch):
    monkeypatch.setattr(pixels, "_CHUNK", 2 * width)  # several parts
    rows = torch.randn(7, width, dtype=dtype, generator=torch.Generator().manual_seed(width))
    rows[1] = rows[1].round()  # many ties
    rows[2] = 0.0
    rows[3, 0] = -torch.inf
    kept, ordered = rows.clone(), rows.sort(1).values
    for count in {1, (width + 1) // 2, width}:
        assert torch.equal(pixels.largest(rows, count), ordered.flip(1)[:, :count])
        level = ordered[:, -count][:, None]
        assert torch.equal(pixels.exceeds(rows, level), rows > level)
        places = [width - count, min(width - count + 1, width - 1)]
        assert torch.equal(pixels.placed(rows, places), ordered[:, places])
    assert torch.equal(rows, kept)  # nobody's map is put in order
