"""Alignments: what `verax.align` leaves behind, one row for each image."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from numpy.typing import NDArray

from verax import registry, seeding
from verax.errors import InvalidParameter, MissingFile, suggestion
from verax.files import make_folder, write_atomically
from verax.metrics import cases8
from verax.metrics.alignment import SCORES
from verax.studies.listings import Listing
from verax.studies.statistics import REPLICATES, interval

TABLE, MANIFEST, PICTURES, REPORT, PARTS = (
    "scores.parquet",
    "manifest.json",
    "pictures.json",
    "report.html",
    "parts",
)
RANDOM, CENTRE = "/random", "/centre"
AVERAGES = ("images", "classes")
_CELLS = 1 << 22
_KINDS, _LARGEST = ("jpeg", "png"), 1 << 12  # of thumbnails
Floats = NDArray[np.float64]


class Alignment:
    """How far a network looks where people marked.

    Attributes:
        scores: one row for each image: index, id, label, prediction, right, target, confidence, area, shown,
            empty, flat, case, the scores, and each of them for as many pixels at random places
            (``NAME/random``) and around the centre (``NAME/centre``).
        facts: network, data, method and settings, and what was noticed.
        pictures: thumbnails of some of the images, for the report.
    """

    def __init__(
        self, scores: pd.DataFrame, facts: Mapping[str, Any], pictures: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self.scores, self.facts = scores, dict(facts)
        self.pictures: list[Mapping[str, Any]] = list(pictures)

    def __len__(self) -> int:
        return len(self.scores)

    def _repr_html_(self) -> str:
        # pictures are drawn by reports, which stand to the right: the name is resolved when it is needed
        return cast("str", registry.load("verax.reports.notebook:alignment")(self))

    def __repr__(self) -> str:
        means = ", ".join(f"{name} {self.scores[name].mean():.3f}" for name in self.metrics)
        return f"Alignment({self.facts.get('model')}, {len(self)} images: {means})"

    @property
    def metrics(self) -> list[str]:
        """The scores that there are."""
        return [name for name in SCORES if name in self.scores]

    @property
    def classes(self) -> dict[int, str]:
        """Names of the network's outputs, as far as they are known."""
        return {int(number): str(name) for number, name in (self.facts.get("classes") or {}).items()}

    @property
    def accuracy(self) -> float:
        """The share of right predictions among images whose label is known; NaN without any."""
        known = self.scores["right"].dropna()
        return float(known.mean()) if len(known) else float("nan")

    def table(
        self, average: str = "images", *, by: str | None = None, replicates: int = REPLICATES
    ) -> pd.DataFrame:
        """Explanation alignment: the mean of each score with its 95 % interval, beside chance.

        `random` and `centre` are what as many pixels score at random places and around the centre; `area` is
        the mean share of the picture that is marked; `lift` is the score divided by `random`, so that large
        regions are no merit; `skill` is 0 for `random` and 1 for a perfect score.

        Args:
            average: over "images", or first within the "classes" of the labels and then over these, as the
                pointing game does; images whose label is not known are left out then.
            by: a table for each value of a column of `scores`, such as label or right, or for each "case".
            replicates: bootstrap draws.
        """
        if average not in AVERAGES:
            raise InvalidParameter(
                f"The average is over {' or '.join(AVERAGES)}{suggestion(average, AVERAGES)}"
            )
        if by is None:
            return Listing(self._table(self.scores, average, replicates))
        if by not in self.scores and by != "case":
            raise InvalidParameter(f"There is no column {by!r}{suggestion(by, self.scores.columns)}")
        groups: list[tuple[object, pd.DataFrame]] = list(self.scores.groupby(by)) if by != "case" else []
        if by == "case":
            groups = [(name, self.scores[inside]) for name, inside in self.members().items()]
        parts = [
            self._table(rows, average, replicates).assign(**{by: key}) for key, rows in groups if len(rows)
        ]
        if not parts:
            return self._table(self.scores[:0], average, replicates).assign(**{by: []})
        table = pd.concat(parts, ignore_index=True)
        return table[[by, *[name for name in table if name != by]]]

    def _table(self, rows: pd.DataFrame, average: str, replicates: int) -> pd.DataFrame:
        columns = [f"{name}{end}" for name in self.metrics for end in ("", RANDOM, CENTRE)]
        left = len(rows)
        if average == "classes":  # not to know the class is none
            rows = rows[rows["label"] >= 0]
        values = rows[[*columns, "area"]].to_numpy(np.float64)
        groups = rows["label"].to_numpy() if average == "classes" else np.zeros(len(rows), np.int64)
        point, draws = _means(values, groups, replicates)
        found = []
        for place, name in enumerate(self.metrics):
            value, by_chance, centre = point[3 * place : 3 * place + 3]
            drawn = draws[:, 3 * place : 3 * place + 2]
            with np.errstate(invalid="ignore", divide="ignore"):
                lift, lifts = value / by_chance, drawn[:, 0] / drawn[:, 1]
                skill = (value - by_chance) / (1 - by_chance)
            low, high = interval(drawn[:, 0])
            lift_low, lift_high = interval(np.where(np.isfinite(lifts), lifts, np.nan))
            known = int(rows[name].notna().sum())
            found.append(
                {
                    "metric": name,
                    "value": value,
                    "low": max(float(low), 0.0),
                    "high": min(float(high), 1.0),
                    "random": by_chance,
                    "centre": centre,
                    "area": point[-1],
                    "lift": lift if np.isfinite(lift) else np.nan,
                    "lift_low": max(float(lift_low), 0.0),
                    "lift_high": float(lift_high),
                    "skill": skill if np.isfinite(skill) else np.nan,
                    "images": known,
                    "left_out": left - known,
                    "flat": int(rows["flat"].sum()),
                }
            )
        return pd.DataFrame(found)

    def members(self, ranges: str | cases8.Ranges | Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Which images belong to each of the eight cases: name -> bool array."""
        absent = [name for name in cases8.COLUMNS if name not in self.scores]
        if absent:
            raise InvalidParameter(f"The eight cases need the score {absent[0]!r}, which was not asked for.")
        given = self.facts.get("ranges") if ranges is None else ranges
        scores = {name: torch.tensor(self.scores[name].to_numpy(np.float64)) for name in cases8.COLUMNS}
        right = torch.tensor(self.scores["right"].to_numpy(np.float64, na_value=np.nan))
        found = cases8.members(scores, right, given)
        return {name: inside.numpy() for name, inside in found.items()}

    def sort_into_cases(self, ranges: str | cases8.Ranges | Mapping[str, Any] | None = None) -> None:
        """Write the column ``case``: the names of each image's cases, empty where it belongs to none."""
        codes = case_codes(self.members(ranges))
        kinds, where = np.unique(codes, return_inverse=True)
        words = [
            "; ".join(name for place, name in enumerate(cases8.CASES) if code >> place & 1)
            for code in kinds.tolist()
        ]
        self.scores["case"] = np.array(words, dtype=object)[where] if words else ""

    def cases(self, ranges: str | cases8.Ranges | Mapping[str, Any] | None = None) -> pd.DataFrame:
        """The eight cases: how many images each has, and what it means; cases overlap.

        Args:
            ranges: which scores are low and high; default: those that the alignment was made with.
        """
        known = int(self.scores["right"].notna().sum())
        rows = [
            {
                "case": name,
                "prediction": "right" if case.right else "wrong",
                "images": int(inside.sum()),
                "share": float(inside.sum()) / known if known else float("nan"),
                "regions": case.picture,
                "about": case.about,
            }
            for (name, case), inside in zip(cases8.CASES.items(), self.members(ranges).values(), strict=True)
        ]
        return Listing(rows)

    def without_case(self, ranges: str | cases8.Ranges | Mapping[str, Any] | None = None) -> int:
        """How many images whose prediction is known to be right or wrong belong to none of the eight."""
        inside = np.any(list(self.members(ranges).values()), axis=0)
        return int((self.scores["right"].notna().to_numpy() & ~inside).sum())

    def worst(self, n: int = 10, metric: str = "iou", *, right: bool | None = True) -> pd.DataFrame:
        """The images that look least where people marked; among equals the surest come first.

        Args:
            n: how many.
            metric: the score.
            right: among right predictions (for the wrong reasons), wrong ones, or all (None). Where no label
                is known, all.
        """
        if metric not in self.metrics:
            raise InvalidParameter(f"There is no score {metric!r}{suggestion(metric, self.metrics)}")
        rows = self.scores[self.scores[metric].notna()]
        if right is not None and rows["right"].notna().any():
            rows = rows[(rows["right"] == right).fillna(False).astype(bool)]
        return rows.sort_values([metric, "confidence"], ascending=[True, False], kind="stable")[:n]

    def save(self, folder: str | Path) -> Path:
        """Write everything into a folder, from which `load` reads it; the manifest comes last."""
        where = make_folder(Path(folder).expanduser())
        write_atomically(where / TABLE, table_bytes(self.scores))
        write_atomically(where / PICTURES, json.dumps(self.pictures).encode())
        write_atomically(where / MANIFEST, json.dumps({**self.facts, "finished": True}, indent=2).encode())
        return where

    @classmethod
    def load(cls, folder: str | Path) -> Alignment:
        """Read a folder that `save` or ``verax align`` wrote."""
        where = Path(folder).expanduser()
        facts = manifest(where)
        if facts is None:
            raise MissingFile(f"{str(where)!r} is no alignment: it has no {MANIFEST}.")
        if not facts.get("finished"):
            raise MissingFile(f"The alignment in {str(where)!r} is not finished; run it again to go on.")
        try:
            scores = pd.read_parquet(where / TABLE)
            pictures = json.loads((where / PICTURES).read_text())
            _check(scores, pictures)
            return cls(scores.astype({"right": "boolean"}), facts, pictures)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise MissingFile(f"The alignment in {str(where)!r} is damaged.") from error

    def report(self, path: str | Path) -> Path:
        """Write the page: table, eight cases, histograms, pictures, confusion matrix, filters."""
        write = registry.load("verax.reports.alignment:write")
        return cast("Path", write(self, Path(path).expanduser()))


def case_codes(members: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.int64]:
    """The cases of each image as bits of a number, the first case being the lowest."""
    codes: NDArray[np.int64] = sum(
        (inside.astype(np.int64) << place for place, inside in enumerate(members.values())),
        np.zeros(1, np.int64),
    )
    return codes


def manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a folder; None where there is none."""
    try:
        found = json.loads((folder / MANIFEST).read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise MissingFile(f"The manifest of {str(folder)!r} cannot be read.") from error
    if not isinstance(found, dict) or "key" not in found:
        raise MissingFile(f"The manifest of {str(folder)!r} is not one of an alignment.")
    return found


def _check(scores: pd.DataFrame, pictures: Any) -> None:
    """Refuse what is no table of an alignment, or has no pictures of it, whoever wrote it."""
    metrics = [f"{name}{end}" for name in SCORES if name in scores for end in ("", RANDOM, CENTRE)]
    counted = ("index", "label", "prediction", "target", "confidence", "area", "shown", "empty", "flat")
    for name in (*counted, *metrics):
        if scores[name].dtype.kind not in "iufb":
            raise ValueError(f"{name} is no number")
    if not metrics or "id" not in scores:
        raise ValueError("no scores")
    for entry in pictures:
        high, wide = entry["size"]
        if (
            type(high) is not int
            or type(wide) is not int
            or not (0 < high <= _LARGEST and 0 < wide <= _LARGEST)
        ):
            raise ValueError("a picture without a size")
        if type(entry["row"]) is not int or not 0 <= entry["row"] < len(scores):
            raise ValueError("a picture of no image")
        if entry["kind"] not in _KINDS or not base64.b64decode(entry["image"], validate=True):
            raise ValueError("a picture that is none")
        for name in ("marked", "shown"):
            if len(base64.b64decode(entry[name], validate=True)) * 8 < high * wide:
                raise ValueError("an outline that is too small")


def table_bytes(rows: pd.DataFrame) -> bytes:
    """A table as a Parquet file."""
    buffer = io.BytesIO()
    rows.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _means(values: Floats, groups: NDArray[Any], replicates: int) -> tuple[Floats, Floats]:
    """Means of columns over groups and then of groups, with bootstrap replicates ``(R, columns)``.

    Images are drawn with replacement; every column sees the same draws, so that ratios are paired. What is
    undefined is left out.
    """
    count = len(values)
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    _, where = np.unique(groups, return_inverse=True)
    sizes = int(where.max()) + 1 if count else 1
    order = np.argsort(where, kind="stable")
    starts = np.searchsorted(where[order], np.arange(sizes))
    filled, known = filled[order], known[order]

    def averaged(weights: Floats) -> Floats:
        if not count:
            return np.full((len(weights), values.shape[1]), np.nan)
        if sizes == 1:
            top, bottom = weights @ filled, weights @ known
        else:
            top, bottom = (
                np.add.reduceat(weights[:, :, None] * part, starts, axis=1) for part in (filled, known)
            )
        with np.errstate(invalid="ignore", divide="ignore"):
            means = top / bottom
        return means if sizes == 1 else _nanmean(means)

    point = averaged(np.ones((1, count)))[0]
    cells = max(1, count * (values.shape[1] if sizes > 1 else 1))
    generator = np.random.default_rng(seeding.key("alignment", count) & 0xFFFFFFFFFFFFFFFF)
    draws = np.full((replicates, values.shape[1]), np.nan)
    step = max(1, _CELLS // cells)
    for first in range(0, replicates if count > 1 else 0, step):
        some = min(step, replicates - first)
        weights = generator.multinomial(count, np.full(count, 1 / count), size=some).astype(np.float64)
        draws[first : first + some] = averaged(weights)
    # a bootstrap of n numbers is too narrow by sqrt((n - 1) / n); one number says nothing
    wide = np.sqrt(count / (count - 1)) if count > 1 else np.nan
    return point, point + (draws - point) * wide


def _nanmean(means: Floats) -> Floats:
    """Mean over the groups ``(R, groups, columns)``, without those that have nothing."""
    there = np.isfinite(means)
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Floats = np.where(there, means, 0.0).sum(1) / there.sum(1)
    return result
