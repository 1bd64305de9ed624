"""Intervals that pages work out themselves."""

import numpy as np
import pandas as pd
import pytest

import verax
from verax.networks.wired import WIRED
from verax.reports import charts, evidence
from verax.reports.resampling import bootstrap, difference


def test_the_bootstrap_of_a_mean_is_as_wide_as_theory_says():
    values = np.random.default_rng(0).normal(3, 2, (400, 1))
    low, high = bootstrap(values)
    assert (low + high) / 2 == pytest.approx(values.mean(), abs=0.02)
    assert high - low == pytest.approx(2 * 1.96 * values.std(ddof=1) / 20, rel=0.1)
    assert np.isnan(bootstrap(values[:1])).all()


def test_a_difference_of_two_means_has_the_interval_of_both():
    rng = np.random.default_rng(1)
    one, two = rng.normal(0, 1, (500, 1)), rng.normal(0.5, 2, (300, 1))
    low, high = difference((one.mean(), *bootstrap(one)), (two.mean(), *bootstrap(two)))
    half = 1.96 * np.hypot(one.std() / 500**0.5, two.std() / 300**0.5)
    assert high - low == pytest.approx(2 * half, rel=0.1)
    assert low < two.mean() - one.mean() < high


def test_changes_between_families_have_intervals():
    first = pd.DataFrame({"method": ["a", "b"], "value": [0.2, 0.3], "low": [0.1, 0.3], "high": [0.3, 0.3]})
    second = pd.DataFrame({"method": ["a"], "value": [0.6], "low": [0.5], "high": [0.7]})
    (row,) = charts.slopes("s", "t", first, second, ("simple", "complex"), "mean").rows
    assert row["method"] == "a"
    assert [row[f"complex{end}"] for end in ("", ", from", ", to")] == [0.6, 0.5, 0.7]
    assert row["change"] == pytest.approx(0.4)
    assert [row["change, from"], row["change, to"]] == pytest.approx(
        [0.4 - 0.02**0.5, 0.4 + 0.02**0.5], abs=1e-4
    )


def test_certificates_say_how_many_scenes_and_how_sure():
    task = verax.task("textbox/simple-fr")
    summary = verax.certify(task.network(WIRED), task, n=10).summary()
    said = evidence.followed({**summary, "network": WIRED})
    assert said["n"] == {"accuracy": 10, "follow": 10}
    assert said["said"]["accuracy"] == "1.000 [0.722, 1.000]"  # Wilson, 10 of 10
    old = {name: value for name, value in summary.items() if not name.endswith("_of")}
    assert evidence.followed(old)["said"]["accuracy"] == "1.000"
    fit = evidence.fit({"r2": 0.9, "intervals": {"r2": [0.8, 0.95]}})
    assert fit["said"] == {"r2": "0.900 [0.800, 0.950]"}
