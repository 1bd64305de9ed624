"""Claims of the SMERF paper: verdicts follow from numbers, toys are the paper's, the page shows it all."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
import typer

from made_up_smerf import made_up
from verax.cli import reproductions as cli
from verax.errors import InvalidInput, InvalidParameter
from verax.reproductions import claims as base
from verax.reproductions.outputs import between
from verax.reproductions.smerf import claims, page, paper, toys
from verax.reproductions.smerf.measurements import Measurements
from verax.reproductions.workers import Crew

DRAWS = 20
CERTIFICATES = [
    {
        "task": f"textbox/{task}",
        "network": "cnn@published",
        "worst_accuracy": 1.0,
        "mean_accuracy": 1.0,
        "worst_follow": 0.99,
        "samples": 500 * len(row),
    }
    for task, row in paper.table3().items()
]


def on_photographs(**values):
    return [{**row, **values, "background": "real"} for row in CERTIFICATES]


def measured(scores=None, **options):
    return Measurements(made_up(samples=3) if scores is None else scores, replicates=DRAWS, **options)


def decide(name, measurements):
    return next(claim for claim in claims.CLAIMS if claim.id == name).evaluate(measurements)


@pytest.fixture(scope="module")
def plain():
    return measured(certificates=CERTIFICATES)


@pytest.fixture(scope="module")
def full():
    """A run with every network and background."""
    black = made_up(samples=3)
    others = [black.assign(network=name) for name in ("cnn@robust", "vgg16", "alexnet")]
    darker = black.assign(value=black["value"] * 0.8)
    return measured(
        pd.concat([black, *others], ignore_index=True),
        backgrounds={"noise": darker, "real": darker.assign(value=darker["value"] * 0.8)},
        certificates=[*CERTIFICATES, *on_photographs()],
        identifiability={"IG": (0.2, 0.17, 0.23, 1 / 7)},
    )


# --- deciding ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "side", "verdict", "uncertain"),
    [
        ((0.6, 0.55, 0.65), "above", base.HOLDS, False),
        ((0.6, 0.45, 0.65), "above", base.FAILS, True),
        ((0.4, 0.35, 0.45), "above", base.FAILS, False),
        ((0.4, 0.35, 0.45), "below", base.HOLDS, False),
        ((0.4, 0.35, 0.65), "below", base.FAILS, True),
        ((0.6, 0.55, 0.65), "below", base.FAILS, False),
    ],
)
def test_a_threshold_needs_the_whole_interval(values, side, verdict, uncertain):
    point, low, high = values
    draws = np.concatenate([[point], np.linspace(low, high, 200)])
    finding = base.threshold(draws, side, 0.5, "It")
    assert (finding.verdict, finding.uncertain) == (verdict, uncertain)
    assert finding.low <= finding.value <= finding.high


def test_what_is_undefined_is_not_decided():
    with pytest.raises(base.NotTestable, match="not defined"):
        base.threshold(np.array([np.nan, 1.0, 1.0]), "above", 0.5, "It")


@pytest.mark.parametrize(
    ("share", "least", "verdict", "uncertain"),
    [
        (1.0, None, base.HOLDS, False),
        (0.5, None, base.FAILS, True),
        (0.0, None, base.FAILS, False),
        (0.0, 2, base.HOLDS, False),
    ],
)
def test_a_count_needs_the_whole_interval(share, least, verdict, uncertain):
    flags = np.ones((101, 3), dtype=bool)
    flags[1:, 2] = np.arange(100) < 100 * share
    flags[0, 2] = share == 1
    finding = base.count(flags, ("a", "b", "c"), "So", least=least)
    assert (finding.verdict, finding.uncertain) == (verdict, uncertain)
    assert ("not c" in finding.measured) == (share < 1)


def test_flags_and_names_must_fit():
    with pytest.raises(InvalidParameter):
        base.count(np.ones((2, 3), dtype=bool), ("a",), "So")


# --- claims ------------------------------------------------------------------------------------------------


def test_claims_are_many_and_complete():
    assert len(claims.CLAIMS) >= 35
    names = [claim.id for claim in claims.CLAIMS]
    assert len(set(names)) == len(names)
    for claim in claims.CLAIMS:
        assert claim.says.endswith(".")
        assert claim.where
        assert claim.id in claim.code


def test_every_claim_is_decided_when_everything_is_there(full):
    for claim, finding in claims.evaluate(full):
        assert finding.verdict in base.VERDICTS
        assert finding.verdict != base.UNTESTABLE, (claim.id, finding.measured)
        assert finding.measured
        assert finding.rule


def test_networks_and_backgrounds_that_are_missing_make_claims_untestable(plain):
    found = {claim.id: finding for claim, finding in claims.evaluate(plain)}
    assert found["vgg16-mean"].verdict == base.UNTESTABLE
    assert "vgg16" in found["vgg16-mean"].measured
    assert found["noise-lower"].verdict == base.UNTESTABLE
    assert found["identifiability-measured"].verdict == base.UNTESTABLE
    assert found["drop-pafl"].verdict != base.UNTESTABLE
    assert found["table3-near-perfect"].verdict == base.HOLDS


def test_the_plain_network_can_be_given():
    scores = made_up(samples=2, network="mine", metrics=("pafl", "safl"))
    found = {c.id: f for c, f in claims.evaluate(scores, plain="mine", replicates=5)}
    assert found["simple-dl-r"].verdict != base.UNTESTABLE


def with_levels(levels, metrics=("pafl", "safl")):
    """Scores with given levels: (method, metric, family or task) -> mean; the rest at 0.3."""

    def level(task, group, method, metric):
        for place in (task, task.partition("-")[0]):
            for key in ((method, metric, place), ("*", metric, place)):
                if key in levels:
                    found = levels[key]
                    return found(group) if callable(found) else found
        return 0.3

    return measured(made_up(samples=3, spread=0.005, level=level, metrics=metrics))


@pytest.mark.parametrize(("value", "verdict"), [(0.7, base.HOLDS), (0.45, base.FAILS)])
def test_success_of_dl_r(value, verdict):
    run = with_levels({("DL-R", "pafl", "simple"): value})
    assert decide("simple-dl-r", run).verdict == verdict
    assert decide("simple-only-dl-r", run).verdict == base.HOLDS


@pytest.mark.parametrize(("worst", "verdict"), [(9, base.HOLDS), (12, base.FAILS)])
def test_worst_bucket_of_cr2(worst, verdict):
    run = with_levels({("*", "pafl", "complex-cr2"): lambda group: 0.1 if group == worst else 0.4})
    assert decide("cr2-worst-bucket", run).verdict == verdict


@pytest.mark.parametrize(("complicated", "verdict"), [(0.2, base.HOLDS), (0.4, base.FAILS)])
def test_the_drop(complicated, verdict):
    run = with_levels({("*", "pafl", "simple"): 0.3, ("*", "pafl", "complex"): complicated})
    assert decide("drop-pafl", run).verdict == verdict


def test_saturation():
    falling = {("*", "pafl", "simple"): lambda g: 0.9 - 0.05 * g, ("*", "safl", "simple"): lambda g: 0.05 * g}
    assert decide("saturation-pafl", with_levels(falling)).verdict == base.HOLDS
    flat = {("*", "pafl", "simple"): 0.5, ("*", "safl", "simple"): 0.2}
    assert decide("saturation-pafl", with_levels(flat)).verdict == base.FAILS


def test_a_ceiling_settles_a_claim_only_where_it_is_low():
    low = {("oracle", "pafl", "complex"): lambda group: 0.33 if group in (4, 5, 6) else 0.7}
    finding = decide("cr1-cr4-no-success", with_levels(low))
    assert finding.verdict == base.CANNOT
    assert finding.value == pytest.approx(0.33, abs=0.02)
    high = {("oracle", "pafl", "complex"): 0.7}
    assert decide("cr1-cr4-no-success", with_levels(high)).verdict == base.HOLDS
    beaten = {**low, ("IG", "pafl", "complex"): 0.8}  # a method above the "ceiling" shows that it is none
    assert decide("cr1-cr4-no-success", with_levels(beaten)).verdict == base.FAILS


def test_identifiability_is_held_against_chance(full):
    assert decide("identifiability-measured", full).verdict == base.HOLDS
    sharp = measured(identifiability={"IG": (0.9, 0.8, 0.95, 1 / 7)})
    assert decide("identifiability-measured", sharp).verdict == base.FAILS


def test_accuracy_needs_enough_scenes():
    few = [{**row, "samples": 2 * row["samples"] // 500} for row in CERTIFICATES]
    finding = decide("table3-near-perfect", measured(certificates=few))
    assert finding.verdict == base.FAILS
    assert finding.uncertain


@pytest.mark.parametrize(
    ("mean", "verdict", "uncertain"),
    [(0.97, base.HOLDS, False), (0.929, base.FAILS, True), (0.8, base.FAILS, False)],
)
def test_accuracy_on_photographs_is_that_of_whole_settings(mean, verdict, uncertain):
    """The paper prints one number for each setting; a bad bucket alone is no contradiction."""
    rows = on_photographs(worst_accuracy=0.7, mean_accuracy=mean)
    finding = decide("real-accuracy", measured(certificates=rows))
    assert (finding.verdict, finding.uncertain) == (verdict, uncertain)
    assert finding.low < finding.value < finding.high


def test_accuracy_on_photographs_needs_all_settings_of_the_plain_network():
    for rows in (on_photographs()[1:], on_photographs(network="vit"), CERTIFICATES):
        assert decide("real-accuracy", measured(certificates=rows)).verdict == base.UNTESTABLE


def test_claims_about_settings_that_were_never_learned_are_not_testable():
    """What a dead network is said to look at is no evidence about methods."""
    dark = made_up(samples=3)
    dark = dark.assign(value=dark["value"] * 0.5)
    rows = on_photographs(mean_accuracy=0.99)
    rows = [{**row, "mean_accuracy": 0.62} if "cr2" in row["task"] else row for row in rows]
    found = measured(backgrounds={"noise": dark, "real": dark}, certificates=rows)
    with pytest.raises(base.NotTestable, match=r"did not learn complex-cr2 on the real background.*62%"):
        found.draws("pafl", ["IG"], family="complex", background="real")
    assert found.draws("pafl", ["IG"], family="simple", background="real").size
    assert found.draws("pafl", ["IG"], family="complex", background="noise").size


@pytest.mark.parametrize(("complicated", "verdict"), [(0.8, base.HOLDS), (1.2, base.FAILS)])
def test_noise_has_to_lower_both_families(complicated, verdict):
    black = made_up(samples=3, spread=0.001, metrics=("pafl",), level=lambda *_: 0.3)
    factor = np.where(black["task"].str.contains("complex"), complicated, 0.8)
    run = measured(black, backgrounds={"noise": black.assign(value=black["value"] * factor)})
    assert decide("noise-lower", run).verdict == verdict


def test_one_image_a_bucket_settles_nothing():
    """There are no replicates then, and comparing NaN would look like a clear answer."""
    run = measured(made_up(samples=1, spread=0, level=lambda *_: 0.7))
    for name in ("simple-dl-r", "success-implies-focus", "simple-failures-rare", "iou-agrees-simple"):
        finding = decide(name, run)
        assert finding.verdict == base.UNTESTABLE, name
        assert "One image" in finding.measured


# --- toys --------------------------------------------------------------------------------------------------


def test_figure_14_and_16():
    printed, ours = paper.toys().figure14, toys.figure14()
    for name in ("pafl", "safl", "piou", "siou"):
        assert ours[name] == pytest.approx(getattr(printed, name), abs=5e-5)
    focus, avoid = toys.figure16(paper.toys().figure16.strength)
    assert focus == pytest.approx(paper.toys().figure16.pafl, abs=5e-4)
    assert avoid == pytest.approx(paper.toys().figure16.safl, abs=5e-4)
    assert (focus + avoid)[:4] == pytest.approx(1, abs=0.02)


def test_figure_15_depends_on_the_count():
    found = toys.figure15(paper.toys().figure15.count, images=4)
    assert found.shape == (4, 8)
    assert ((found >= 0) & (found <= 1)).all()
    assert (found.max(1) - found.min(1)).mean() > 0.05


def test_facts_about_the_data():
    shares = toys.overlaps(500)
    assert shares["box1", "box2"] == 0
    assert 0.05 < shares["box1", "text"] < 0.16
    assert toys.parameters() == (684_122, 674_338)
    assert toys.area_fraction("simple") == pytest.approx(0.045, abs=0.001)


# --- page --------------------------------------------------------------------------------------------------


def test_the_page_has_every_claim_and_needs_nothing_else(plain, tmp_path):
    files = page.write(tmp_path / "out", plain)
    assert {path.name for path in (tmp_path / "out").iterdir()} == set(files)
    text = files[page.HTML].read_text()
    for claim in claims.CLAIMS:
        assert f'id="{claim.id}"' in text
    assert not re.search(r'(src|href)="(?!#)', text)
    assert "<script" not in text
    found = json.loads(files[page.JSON].read_text())
    assert sum(found["verdicts"].values()) == len(found["claims"]) == len(claims.CLAIMS)
    assert found["headline"]["numbers"] == 40
    table = pd.read_csv(files[page.CSV])
    assert len(table) == len(paper.references())
    markdown = files[page.MARKDOWN].read_text()
    for line in markdown.splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (5, 6), line


def test_claims_fill_a_document(plain, tmp_path):
    page.write(tmp_path, plain)
    document = tmp_path / "doc.md"
    document.write_text(f"before\n{page.BEGIN}\nstale\n{page.END}\nafter\n")
    for _ in range(2):  # filling again changes nothing
        between(document, page.BEGIN, page.END, (tmp_path / page.MARKDOWN).read_text())
        text = document.read_text()
        assert text.startswith("before\n")
        assert text.endswith(f"{page.END}\nafter\n")
        assert "stale" not in text
        assert text.count("### The forty numbers") == 1
    document.write_text("no markers")
    with pytest.raises(InvalidInput, match="markers"):
        between(document, page.BEGIN, page.END, "")


def test_an_interrupted_reproduction_says_that_nothing_is_lost(capsys):
    def stopped(crew):
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as left:
        cli._finish(stopped, False, "json")
    assert left.value.exit_code == 130
    assert "Interrupted: what was computed is kept. Run the same command" in capsys.readouterr().err


@pytest.mark.parametrize(("workers", "threads"), [(1, 2), (2, 1)])
def test_beside_a_crew_there_is_one_thread(workers, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with Crew(workers).beside():
            assert torch.get_num_threads() == threads
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
