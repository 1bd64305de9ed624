"""Measures of agreement against loops, enumeration and SciPy; degenerate maps; the exact protocol."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from scipy import stats

import verax
from verax.cases import Cases, Truth
from verax.errors import InvalidInput, InvalidParameter
from verax.metrics import METRICS, agreement, scoring

TIED = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0])
PAIRS = st.tuples(*(hnp.arrays(np.float64, (3, 6), elements=TIED) for _ in range(2)))


def both(pair):
    return torch.from_numpy(pair[0]), torch.from_numpy(pair[1])


def constant(row):
    return len(set(row)) == 1


def ranks_by_counting(row):
    return [sum(o < v for o in row) + (sum(o == v for o in row) + 1) / 2 for v in row]


def pearson_by_hand(a, b):
    if constant(b):
        return math.nan
    if constant(a):
        return 0.0
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    over = sum((x - ma) * (y - mb) for x, y in zip(a, b, strict=True))
    return over / math.sqrt(sum((x - ma) ** 2 for x in a) * sum((y - mb) ** 2 for y in b))


def top_sets(strength, k):
    """All equally likely sets of the k strongest."""
    level = sorted(strength, reverse=True)[k - 1]
    above = [i for i, v in enumerate(strength) if v > level]
    tied = [i for i, v in enumerate(strength) if v == level]
    return [{*above, *chosen} for chosen in itertools.combinations(tied, k - len(above))]


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_correlations_against_loops(pair):
    maps, truth = both(pair)
    for n, (a, b) in enumerate(zip(*pair, strict=True)):
        np.testing.assert_allclose(agreement.pearson(maps, truth)[n], pearson_by_hand(a, b), atol=1e-12)
        by_ranks = pearson_by_hand(ranks_by_counting(a), ranks_by_counting(b))
        np.testing.assert_allclose(agreement.spearman(maps, truth)[n], by_ranks, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_sign_total_against_loops(pair):
    maps, truth = both(pair)
    signs, gaps = agreement.sign_agreement(maps, truth), agreement.total_gap(maps, truth)
    for n, (a, b) in enumerate(zip(*pair, strict=True)):
        points = [0.5 if x == 0 else float((x > 0) == (y > 0)) for x, y in zip(a, b, strict=True) if y != 0]
        np.testing.assert_allclose(signs[n], np.mean(points) if points else math.nan)
        size = np.abs(b).sum()
        np.testing.assert_allclose(gaps[n], abs(a.sum() - b.sum()) / size if size else math.nan)


@settings(max_examples=60, deadline=None)
@given(PAIRS, st.sampled_from([0.1, 0.34, 0.5, 1.0]))
def test_top_overlap_and_mass_against_enumeration(pair, share):
    maps, truth = both(pair)
    k = agreement.top_size(6, share)
    assert k == max(1, math.ceil(round(share * 6, 9)))
    overlap, mass = agreement.top_overlap(maps, truth, share), agreement.mass(maps, truth, share)
    for n, (a, b) in enumerate(zip(np.abs(pair[0]), np.abs(pair[1]), strict=True)):
        if not b.any():
            assert overlap[n].isnan()
            assert mass[n].isnan()
            continue
        mine, right = top_sets(a, k), top_sets(b, k)
        expected = np.mean([len(s & t) / k for s, t in itertools.product(mine, right)])
        np.testing.assert_allclose(overlap[n], expected)
        held = a if a.any() else np.ones(6)
        np.testing.assert_allclose(mass[n], np.mean([held[list(t)].sum() / held.sum() for t in right]))


def test_correlations_against_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 8, 50))
    a[:, :20] = a[:, :20].round()
    for name, theirs in (("pearson", stats.pearsonr), ("spearman", stats.spearmanr)):
        ours = agreement.MEASURES[name](torch.from_numpy(a), torch.from_numpy(b))
        np.testing.assert_allclose(ours, [theirs(x, y).statistic for x, y in zip(a, b, strict=True)])


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1.0, 1e30, 1e200])
def test_correlation_survives_any_scale(scale):
    rng = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 4, 30, generator=rng, dtype=torch.float64)
    np.testing.assert_allclose(agreement.pearson(a * scale, b), agreement.pearson(a, b), rtol=1e-9)
    assert agreement.pearson(b * scale, b).allclose(torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_degenerate_maps_score_like_zeros(bad):
    truth = torch.randn(3, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    spoilt = truth.clone()
    spoilt[:, 7] = bad
    nothing = torch.zeros_like(truth)
    expected = {"pearson": 0.0, "spearman": 0.0, "sign-agreement": 0.5, "top-overlap": 0.1, "mass": 0.1}
    for name, measure in agreement.MEASURES.items():
        assert torch.equal(measure(spoilt, truth), measure(nothing, truth))
        if name in expected:
            np.testing.assert_allclose(measure(nothing, truth), expected[name])


def vector_cases(n=4, d=30, core=True):
    rng = torch.Generator().manual_seed(5)
    values = torch.randn(n, d, generator=rng)
    none = torch.zeros(n, 0, dtype=torch.int8)
    inside = torch.zeros(n, d, dtype=torch.bool)
    inside[:, 5:] = True
    truth = Truth(
        values != 0,
        torch.zeros(n, d, dtype=torch.bool),
        torch.zeros(n, 0, d, dtype=torch.bool),
        torch.zeros(n, 0, 4, dtype=torch.int64),
        none,
        (),
        values=values,
        core=inside if core else None,
    )
    inputs = torch.randn(n, d, generator=rng)
    zeros = torch.zeros(n, dtype=torch.int64)
    return Cases(inputs, zeros, truth, zeros, torch.arange(n))


def test_exact_scores_the_truth_itself_at_the_ceiling():
    cases = vector_cases()
    table = verax.score(cases.truth.values, cases, "exact")
    assert list(table.columns[4:]) == scoring.metric_names("exact")
    for name in ("pearson", "spearman", "sign-agreement", "top-overlap", "pearson/magnitude", "pearson/core"):
        np.testing.assert_allclose(table[name], 1.0)
    np.testing.assert_allclose(table["total-gap"], 0.0)
    assert not table["degenerate"].any()
    flipped = verax.score(-cases.truth.values, cases, "exact")
    np.testing.assert_allclose(flipped["pearson"], -1.0)
    np.testing.assert_allclose(flipped["pearson/magnitude"], 1.0)


def test_core_leaves_the_other_elements_out():
    cases = vector_cases()
    maps = cases.truth.values.clone()
    maps[:, :5] = 100.0  # wrong, but only outside of the core
    table = verax.score(maps, cases, "exact")
    np.testing.assert_allclose(table["pearson/core"], 1.0)
    assert (table["pearson"] < 0.9).all()
    without = verax.score(maps, vector_cases(core=False), "exact")
    assert without["pearson/core"].isna().all()
    cases.truth.core[:] = False  # such as a field that lies at a pole
    empty = verax.score(maps, cases, "exact")
    pd.testing.assert_frame_equal(empty, without)


def test_positive_part_reads_the_magnitude_of_one_signed_maps():
    cases = vector_cases()
    positive = cases.truth.values.clamp(min=0)
    for sign in (1, -1):
        table = verax.score(sign * positive, cases, "exact")
        np.testing.assert_allclose(table["pearson/positive"], 1.0)


def test_scores_do_not_depend_on_the_batch():
    cases = vector_cases(6)
    maps = torch.randn(6, 30, generator=torch.Generator().manual_seed(2))
    whole = verax.score(maps, cases, "exact")
    alone = [verax.score(maps[i : i + 1], cases[i : i + 1], "exact") for i in range(6)]
    for i, row in enumerate(alone):
        np.testing.assert_allclose(row.iloc[0].to_numpy(float), whole.iloc[i].to_numpy(float))


def test_exact_reads_pictures_with_values():
    cases = vector_cases(3, 36, core=False)
    picture = Cases(
        cases.inputs.reshape(3, 1, 6, 6),
        cases.targets,
        cases.truth.map(lambda t: t.reshape(*t.shape[:-1], 6, 6) if t.shape[-1] == 36 else t),
        cases.group,
        cases.ids,
    )
    maps = torch.randn(3, 36, generator=torch.Generator().manual_seed(3))
    flat, square = (
        verax.score(m, c, "exact")["pearson"] for m, c in ((maps, cases), (maps.reshape(3, 1, 6, 6), picture))
    )
    np.testing.assert_allclose(flat, square)
    wrong = verax.score(maps.reshape(3, 6, 6), picture, "exact", predictions=[0, 1, 0])
    assert wrong["pearson"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_membership_of_any_type_is_one_of_as_many_as_there_are(kind):
    strength = torch.tensor([[3.0, 1.0, 1.0, 0.0]], dtype=kind, requires_grad=True)
    assert agreement.membership(strength, 2).tolist() == [[1.0, 0.5, 0.5, 0.0]]
    for k in (0, 5):
        with pytest.raises(InvalidParameter, match=f"1 to 4 strongest elements, not {k}"):
            agreement.membership(strength, k)


def test_refusals_are_sentences():
    cases = vector_cases()
    with pytest.raises(InvalidInput, match="for pictures; vectors are scored by 'exact'"):
        verax.score(cases.truth.values, cases, "sound")
    with pytest.raises(InvalidInput, match=r"must have the shape \(4, 30\), not"):
        verax.score(torch.zeros(4, 29), cases, "exact")
    boxes = verax.task("textbox/simple-fr").cases(n=1)
    with pytest.raises(InvalidInput, match="needs a truth with values"):
        verax.score(boxes.inputs, boxes, "exact")
    with pytest.raises(InvalidInput, match="one shape"):
        agreement.pearson(torch.zeros(2, 3), torch.zeros(2, 4))


def test_every_measure_is_a_metric_with_its_bounds():
    cases = vector_cases(5)
    maps = torch.randn(5, 30, generator=torch.Generator().manual_seed(4)) * 50
    table = verax.score(maps, cases, "exact")
    assert {*agreement.MEASURES} <= {*scoring.metric_names("exact")}
    for name in scoring.metric_names("exact"):
        low, high = METRICS.get(name).bounds
        assert table[name].between(low, high).all()


def test_indexing_and_joining_keep_the_core():
    cases = vector_cases(4)
    again = Cases.concatenate([cases[:1], cases[1:]])
    assert torch.equal(again.truth.core, cases.truth.core)
    assert "value for every element" in repr(again.truth)


def test_the_words_below_the_spread_of_scores_are_not_cut():
    """They are wider than the axes, which long names of methods make narrow."""
    from verax.reports.agreement import spread

    names = ("a-method-with-a-rather-long-name", "oracle")
    rows = [(name, "exact", "pearson", value) for name in names for value in (0.1, 0.5, 0.9)]
    table = pd.DataFrame(rows, columns=["method", "protocol", "metric", "value"])
    figure = spread(table, list(names))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = [text for text in figure.findobj(Text) if "median" in text.get_text()]
    assert texts
    for text in texts:
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.width


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5])
def test_shares_that_cannot_be_are_refused(share):
    rows = torch.tensor([[4.0, 3.0, 2.0, 1.0]])
    for measure in (agreement.top_overlap, agreement.mass):
        with pytest.raises(InvalidParameter, match="between 0 and 1"):
            measure(rows, rows, share)
        assert measure(rows, rows, 1.0).item() == 1
