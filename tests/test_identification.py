"""Reading the reasoning off maps: known answers, ceilings and chance."""

import numpy as np
import pytest
import torch

import verax
from verax import seeding
from verax.errors import InvalidParameter
from verax.metrics import contrast
from verax.studies import identification
from verax.studies.identification import Lineup, identify, shared_groups
from verax.tasks.textbox.settings import SETTINGS

SEVEN = [f"textbox/{name}" for name in SETTINGS]


@pytest.fixture(scope="module")
def found():
    return identify(SEVEN, ["input", "input-x-gradient"], samples=2)


def test_the_buckets_are_those_in_which_all_seven_have_a_label():
    assert shared_groups([verax.task(name) for name in SEVEN]) == (2, 3, 5, 6, 8, 9, 11, 12)


def test_a_map_that_ignores_the_network_is_right_once_in_seven_times(found):
    row = found.accuracy.set_index("method").loc["input"]
    assert row["image"] == pytest.approx(1 / 7)
    assert row["panel"] == pytest.approx(1 / 7)
    assert row["chance"] == pytest.approx(1 / 7)


def test_the_oracle_is_the_ceiling_that_equal_focus_sets_leave(found):
    tasks = [verax.task(name) for name in SEVEN]
    scenes = dict(enumerate(tasks[0].world.scenes(), 1))
    wanted = []
    for group in shared_groups(tasks):
        sets = [task.reasoning.focus(scenes[group]) for task in tasks]
        wanted += [1 / sets.count(one) for one in sets]
    row = found.accuracy.set_index("method").loc["oracle"]
    assert row["image"] == pytest.approx(np.mean(wanted))
    assert row["panel"] == 1.0
    exact = found.accuracy.set_index("method").loc["input-x-gradient"]
    assert 1 / 7 < exact["image"] <= row["image"] + 1e-9
    assert (found.accuracy["image_low"] <= found.accuracy["image"] + 1e-9).all()
    assert (found.accuracy["image"] <= found.accuracy["image_high"] + 1e-9).all()


def test_confusions_are_probabilities(found):
    sums = found.confusion.groupby(["method", "true"])["share"].sum()
    assert len(found.confusion) == 3 * 49
    np.testing.assert_allclose(sums, 1)


def test_the_oracle_changes_where_and_only_where_reasonings_differ(found):
    pairs = found.contrast[found.contrast["method"] == "oracle"]
    assert len(pairs) == 21
    assert pairs["moved"].dropna().max() == 0
    flat = found.contrast[found.contrast["method"] == "input"]
    assert flat["where"].dropna().max() == 0  # it never changes, so it never changes where it should
    assert flat["moved"].dropna().max() == 0
    # between box1 and text, all of the oracle's change lies on the two of them
    pair = pairs.set_index(["first", "second"]).loc[("textbox/complex-cr1", "textbox/complex-cr3")]
    assert pair["where"] > 0.5


def test_pictures_without_a_focus_do_not_say_that_maps_move():
    """Two reasonings that both use nothing there agree on nothing that a map could show."""
    lineup = Lineup(tuple(verax.task(f"textbox/{name}") for name in ("simple-fr", "complex-cr3")), 2, 0)

    def explain(place, cases):
        maps = cases.truth.focus.double()
        maps[~cases.truth.focus.flatten(1).any(1), place, place] = 1.0  # a dot, elsewhere for each network
        return maps

    same = (lineup.focus[0] == lineup.focus[1]).all(1)
    assert (same & ~lineup.focus[0].any(1)).any()
    assert (same & lineup.focus[0].any(1)).any()
    assert lineup.read("dots", explain).accuracy["moved"][0] == 0


def test_intervals_of_few_pictures_are_widened():
    """Redrawing two pictures gives their mean or one of them; too narrow by the square root of two."""
    found = identification._resampled(np.array([0.4, 0.6]), np.zeros(2), 0)
    assert found == pytest.approx((0.5, 0.5 - 0.1 * 2**0.5, 0.5 + 0.1 * 2**0.5))
    one = identification._resampled(np.array([0.4]), np.zeros(1), 0)
    assert one[0] == 0.4
    assert np.isnan(one[1:]).all()


def test_misfit_knows_both_ways_to_show_a_set():
    focus = torch.tensor([[[True, True, False]], [[True, False, False]], [[False, False, False]]])
    areas = torch.tensor([[90, 10, 50]])
    shares = torch.tensor([[[0.5, 0.5, 0.0, 0.0]], [[0.9, 0.1, 0.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]]]).double()
    misfits = contrast.misfit(shares, focus, areas)[:, 0]
    np.testing.assert_allclose(misfits, [[0, 0.5, 1], [0, 0.1, 1], [1, 1, 0]], atol=1e-6)
    np.testing.assert_allclose(contrast.guesses(misfits), np.eye(3)[[0, 0, 2]])
    np.testing.assert_allclose(contrast.guesses(torch.tensor([[1.0, 1.0, 2.0]])), [[0.5, 0.5, 0]])


def test_change_is_what_moved():
    a, b = torch.zeros(2, 1, 4, 4).double()
    a[0, 0, 0], b[0, 1, 1] = 2.0, 5.0
    mask = torch.zeros(1, 4, 4, dtype=torch.bool)
    a, b = contrast.unit_mass(a), contrast.unit_mass(b)
    assert torch.isnan(contrast.change(a, b, mask)[1]).all()
    mask[0, 0, 0] = True
    assert [float(part) for part in contrast.change(a, b, mask)] == [1.0, 0.5]
    assert [float(part) for part in contrast.change(a, a, mask)] == [0.0, 0.0]


def test_pictures_are_redrawn_within_their_bucket_whatever_their_order():
    values, strata = np.random.default_rng(0).random(12), np.repeat([3.0, 1.0, 2.0], [2, 4, 6])
    values[5] = np.nan
    found = identification._resampled(values, strata, 0)
    generator = np.random.default_rng(seeding.key("identification", 0) & 0xFFFFFFFFFFFFFFFF)
    known = np.isfinite(values)
    total, count = np.zeros((2, 1000))
    for stratum in (1.0, 2.0, 3.0):
        here = strata == stratum
        weights = generator.multinomial(here.sum(), np.full(here.sum(), 1 / here.sum()), size=1000)
        total += weights @ np.where(known, values, 0)[here]
        count += weights @ known[here]
    mean = values[known].mean()
    drawn = mean + (total / count - mean) * np.sqrt(2)
    np.testing.assert_allclose(found, [mean, *np.quantile(drawn.clip(0, 1), [0.025, 0.975])])


def test_tasks_have_to_be_comparable():
    with pytest.raises(InvalidParameter, match="at least two"):
        identify(SEVEN[:1], ["gradient"])
