"""Tables 1, 2 and 3: settings, sizes, and accuracy in every bucket."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from verax.cases import Role
from verax.reproductions.smerf.evidence import View
from verax.reproductions.smerf.figures.successes import title
from verax.tasks import task as find_task
from verax.tasks.textbox import TextBox

PUBLISHED_SIZES = {
    "textbox/simple-fr": ("2000", 24_000, 500, 6000),
    "textbox/simple-nr": ("2000 (code: 5000)", 16_000, 500, 4000),
    "textbox/complex-fr": ("2000 (label 0), 6000 (label 1)", 36_000, 500, 6000),
    **{f"textbox/complex-cr{i}": ("15000", 150_000, 400, 4000) for i in (1, 2, 3, 4)},
}
"""Table 2 of the paper: training scenes of a bucket and in all, test scenes of a bucket and in all."""


def _kinds(view: View, role: Role) -> str:
    """Which objects have a role, with their buckets."""
    truth = view.cases.truth
    found: dict[str, list[int]] = {}
    for place, group in enumerate(view.cases.group.tolist()):
        names = [name for name, r in zip(truth.names, truth.roles[place].tolist(), strict=True) if r == role]
        found.setdefault("+".join(names) or "nothing", []).append(group)
    return "; ".join(f"{', '.join(map(str, groups))}: {names}" for names, groups in found.items())


def settings(views: Sequence[View]) -> pd.DataFrame:
    """Rules, labels, focus and avoid of every setting, all derived from the reasoning (Table 1)."""
    rows = []
    for view in views:
        targets, groups = view.cases.targets.tolist(), view.cases.group.tolist()
        by_label = {
            f"label {y}": ", ".join(str(g) for g, t in zip(groups, targets, strict=True) if t == y)
            for y in sorted(set(targets))
        }
        undefined = [str(g) for g in range(1, 13) if g not in groups]
        rows.append(
            {
                "setting": title(view.task),
                "reasoning": view.facts.get("reasoning", ""),
                **by_label,
                "no label": ", ".join(undefined) or "none",
                "primary": _kinds(view, Role.FOCUS),
                "secondary": _kinds(view, Role.AVOID),
            }
        )
    return pd.DataFrame(rows)


def sizes(views: Sequence[View], samples: int) -> pd.DataFrame:
    """Training and test scenes, the paper's beside ours (Table 2).

    Ours are drawn anew in every step, so that no picture is seen twice.

    Args:
        views: one for each setting.
        samples: evaluated pictures of a bucket.
    """
    rows = []
    for view in views:
        bucket, total, test, tests = PUBLISHED_SIZES.get(view.task, ("", 0, 0, 0))
        rows.append(
            {
                "setting": title(view.task),
                "paper: train a bucket": bucket,
                "paper: train": total,
                "paper: test a bucket": test,
                "paper: test": tests,
                "paper: explained a bucket": 20,
                "ours: trained with": view.facts.get("recipe", ""),
                "ours: scenes seen": view.facts.get("scenes", ""),
                "ours: test a bucket": int(view.accuracy["n"].max()),
                "ours: explained a bucket": samples,
            }
        )
    return pd.DataFrame(rows)


def accuracies(views: Sequence[View]) -> pd.DataFrame:
    """Accuracy in every bucket with its 95 % Wilson interval, and over all of them (Table 3)."""
    columns: dict[str, dict[str, str]] = {}
    for view in views:
        table = view.accuracy
        cells = {
            str(row.group): f"{row.accuracy:.4f} [{row.low:.3f}, {row.high:.3f}]"
            for row in table.itertuples(index=False)
        }
        cells["all"] = f"{table['right'].sum() / table['n'].sum():.4f}"
        columns[title(view.task)] = cells
    found = pd.DataFrame(columns).reindex([*map(str, range(1, 13)), "all"]).fillna("–")
    scenes = {str(g): scene(g) for g in range(1, 13)} | {"all": "all buckets"}
    found.insert(0, "scene", [scenes[name] for name in found.index])
    return found.rename_axis("bucket").reset_index()


def scene(group: int) -> str:
    """The objects of a bucket of the paper's world, in words."""
    world = find_task("textbox/simple-fr")
    assert isinstance(world, TextBox)
    return world.describe(group)


def markdown(table: pd.DataFrame) -> str:
    """A table as people write it in Markdown."""
    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [[str(cell).replace("|", "\\|") for cell in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
