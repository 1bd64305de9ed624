"""Manifests that were damaged, edited or made to deceive: one sentence, whatever reads them."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import verax
from made_up_reports import Made, build
from verax.errors import MissingFile, VeraxError
from verax.reports import html
from verax.studies import differences, standings
from verax.studies.runs import Run

HOSTILE = (
    None,
    "</script><img src=x onerror=alert(1)>\x1b[31m",
    -1,
    1e308,
    float("nan"),
    [],
    {},
    ["x"],
    True,
)
SMALL = Made(tasks={"mine": "own"}, groups=(1, 2), samples=3, maps=False)


def places(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a manifest, of lists the first."""
    inside = values.items() if isinstance(values, dict) else list(enumerate(values))[:1]
    deeper = [
        place
        for key, value in inside
        if isinstance(value, dict | list)
        for place in places(value, (*path, key))
    ]
    return [*((*path, key) for key, _ in inside), *deeper]


def changed(manifest: dict[str, Any], path: tuple[Any, ...], *value: Any) -> dict[str, Any]:
    """A manifest with another value, or none, at a place."""
    made = copy.deepcopy(manifest)
    inner: Any = made
    for key in path[:-1]:
        inner = inner[key]
    if value:
        inner[path[-1]] = value[0]
    else:
        del inner[path[-1]]
    return made


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("manifests") / "run", SMALL).folder


@pytest.fixture(scope="module")
def other(tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("manifests") / "other", SMALL).folder


def read(folder: Path, other: Path) -> None:
    """Everything that reads manifests, without drawing."""
    for act in (
        lambda: repr(Run(folder)),
        lambda: Run(folder).leaderboard("sound"),
        lambda: Run(folder).buckets("sound"),
        lambda: differences.compare(folder, other),
        lambda: standings.standings([folder, other]),
    ):
        try:
            act()
        except VeraxError as error:
            assert "\x1b" not in str(error)


@pytest.mark.parametrize("shift", [0, pytest.param(4, marks=pytest.mark.slow)])
def test_whatever_stands_in_a_manifest_is_read_or_refused(run, other, shift):
    path = run / "manifest.json"
    whole = json.loads(path.read_text())
    for number, place in enumerate(places(whole)):
        path.write_text(json.dumps(changed(whole, place, HOSTILE[(number + shift) % len(HOSTILE)])))
        read(run, other)
    path.write_text(json.dumps(whole))


def test_whatever_a_manifest_lacks_is_missed_or_not_needed(run, other):
    path = run / "manifest.json"
    whole = json.loads(path.read_text())
    for place in places(whole):
        path.write_text(json.dumps(changed(whole, place)))
        read(run, other)
    path.write_text(json.dumps(whole))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("units",), None),
        (("hardware",), []),
        (("seconds",), "soon"),
        (("methods", 0, "parameters"), "none"),
        (("certificates", 0, "worst_accuracy"), "high"),
        (("certificates", 0, "thresholds"), {}),
        (("study", "methods", 0), "gradient"),
        (("networks", 0, "task"), "another"),
    ],
)
def test_a_report_says_what_does_not_fit(run, place, value):
    path = run / "manifest.json"
    whole = path.read_text()
    path.write_text(json.dumps(changed(json.loads(whole), place, value)))
    with pytest.raises(MissingFile, match="damaged or of another version"):
        html.write(Run(run))
    path.write_text(whole)


DAMAGE = {
    "a column is missing": lambda t: t.drop(columns="task"),
    "a number is missing": lambda t: t.drop(columns="sample"),
    "words are numbers": lambda t: t.assign(method=range(len(t))),
    "words are bytes": lambda t: t.assign(task=[b"\xff"] * len(t)),
    "numbers are words": lambda t: t.assign(group="<b>"),
    "scores are words": lambda t: t.assign(value="<b>"),
    "a word has gaps": lambda t: t.assign(network=[None, *t["network"][1:]]),
    "everything twice": lambda t: pd.concat([t, t]),
    "every picture in a bucket of its own": lambda t: t.assign(group=range(len(t))),
    "a network that no manifest tells of": lambda t: t.assign(network="elsewhere"),
    "nothing": lambda t: t[:0],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_scores_that_are_none_are_one_sentence(run, other, tmp_path, damage):
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run" / "scores.parquet"
    DAMAGE[damage](pd.read_parquet(path)).to_parquet(path)
    read(tmp_path / "run", other)
    read(other, tmp_path / "run")


@pytest.fixture(scope="module")
def alignment(tmp_path_factory) -> Path:
    from test_align import Halves, Squares

    return verax.align(Halves(), Squares(6), method="gradient").save(tmp_path_factory.mktemp("align"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("row", value) for value in (None, -1, 6, "0", True, [])),
        *(("size", value) for value in (None, [], [8], [8, -1], [8, 1e9], ["8", 8], {"a": 1})),
        *(("marked", value) for value in (None, "", "<b>", 3)),
        *(("image", value) for value in (None, "", "é", "<b>", [])),
        *(("kind", value) for value in (None, "svg+xml", "png;base64,x", [])),
    ],
)
def test_pictures_of_an_alignment_that_are_none_are_one_sentence(alignment, tmp_path, key, value):
    shutil.copytree(alignment, tmp_path / "it")
    path = tmp_path / "it" / "pictures.json"
    pictures = json.loads(path.read_text())
    path.write_text(json.dumps([{**pictures[0], key: value}, *pictures[1:]]))
    with pytest.raises(MissingFile, match="is damaged"):
        verax.Alignment.load(tmp_path / "it")


@pytest.mark.parametrize("column", ["id", "iou", "iou/random", "area", "flat", "label", "right"])
def test_scores_of_an_alignment_that_are_none_are_one_sentence(alignment, tmp_path, column):
    table = pd.read_parquet(alignment / "scores.parquet")
    damaged = [table.drop(columns=column)] if column != "iou" else []  # without a score, it was not asked for
    damaged += [table.assign(**{column: "<b>"})] if column != "id" else []
    for number, wrong in enumerate(damaged):
        shutil.copytree(alignment, tmp_path / str(number))
        wrong.to_parquet(tmp_path / str(number) / "scores.parquet")
        with pytest.raises(MissingFile, match="is damaged"):
            verax.Alignment.load(tmp_path / str(number))
