"""Can the reasoning be read off a map? Accuracies, confusions and contrasts, drawn and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from verax.reports import INK, METHOD, MUTED, RULE, kind, number, short, style, task_labels
from verax.studies import tiers
from verax.studies.leaderboards import ORACLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from verax.reports.figures import Album
    from verax.studies.runs import Run

_COLUMNS = 6
_LOOKS: dict[str, dict[str, Any]] = {
    "image": {"marker": "o", "color": METHOD, "label": "one picture", "offset": -0.16},
    "panel": {"marker": "s", "color": INK, "label": "one picture of every bucket", "offset": 0.16},
}


def order(accuracy: pd.DataFrame) -> list[str]:
    """Methods by what one picture tells, best first, and the oracle, the ceiling, above all."""
    ranked = accuracy.sort_values("image", ascending=False, kind="stable")["method"].astype(str)
    names = list(dict.fromkeys(ranked))
    return [name for name in names if name == ORACLE] + [name for name in names if name != ORACLE]


def accuracies(accuracy: pd.DataFrame, networks: Sequence[str]) -> Figure:
    """How often maps point to the right reasoning, one column for each network, with intervals and chance.

    Args:
        accuracy: from `verax.studies.identification`, with the column network.
        networks: the columns; the first gives the order of the rows.
    """
    methods = order(accuracy[accuracy["network"] == networks[0]])
    with style():
        size = (2.2 + 2.9 * len(networks), 0.29 * len(methods) + 1.3)
        made = Figure(figsize=size, layout="constrained")
        made.get_layout_engine().set(wspace=0.06)  # type: ignore[union-attr, call-arg]
        columns = made.subplots(1, len(networks), sharey=True, squeeze=False)[0]
        for axes, network in zip(columns, networks, strict=True):
            table = accuracy[accuracy["network"] == network].set_index("method")
            for name, look in _LOOKS.items():
                for place, method in enumerate(methods):
                    if method in table.index:
                        _dot(axes, place + look["offset"], table.loc[method], name, look)
            axes.axvline(float(table["chance"].iloc[0]), color=MUTED, linestyle=":", linewidth=1.4)
            axes.set_xlim(-0.02, 1.02)
            axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "¼", "½", "¾", "1"])
            axes.set_title(network, fontsize=10, loc="left", color=INK)
            axes.grid(axis="x", color=RULE, linewidth=0.8)
            axes.set_axisbelow(True)
            axes.tick_params(axis="y", length=0)
            for side in ("top", "right", "left"):
                axes.spines[side].set_visible(False)
        columns[0].set_yticks(range(len(methods)), [short(name, 26) for name in methods])
        columns[0].set_ylim(len(methods) - 0.4, -0.6)
        for text, name in zip(columns[0].get_yticklabels(), methods, strict=True):
            if kind(name) != "method":
                text.set(style="italic", color=MUTED)
        handles = [
            Line2D(
                [], [], linestyle="none", markersize=5.5, **{k: v for k, v in look.items() if k != "offset"}
            )
            for look in _LOOKS.values()
        ]
        handles.append(Line2D([], [], color=MUTED, linestyle=":", linewidth=1.4, label="chance"))
        made.legend(
            handles=handles, loc="outside lower center", ncols=3, columnspacing=1.4,
            title="share of maps read as the right reasoning, with 95 % interval", title_fontsize=10,
        )  # fmt: skip
    return made


def _dot(axes: Axes, place: float, row: pd.Series[Any], name: str, look: dict[str, Any]) -> None:
    low, high = float(row[f"{name}_low"]), float(row[f"{name}_high"])
    if high > low:
        axes.plot([low, high], [place, place], color=look["color"], linewidth=1.6)
    marker = {"marker": look["marker"], "markersize": 4.6, "color": look["color"]}
    axes.plot([float(row[name])], [place], linestyle="none", **marker)


def confusions(confusion: pd.DataFrame, methods: Sequence[str], tasks: Sequence[str]) -> Figure:
    """One square for each method: rows are the networks, columns the reasonings that their maps are read as.

    Args:
        confusion: of one network.
        methods: the squares, in this order.
        tasks: rows and columns.
    """
    labels, count = task_labels(tasks), len(tasks)
    columns = min(_COLUMNS, len(methods))
    lines = math.ceil(len(methods) / columns)
    colour = to_rgb(METHOD)
    with style():
        made = Figure(figsize=(0.9 + 1.5 * columns, 1.55 + 1.6 * lines), layout="constrained")
        grid = made.subplots(lines, columns, squeeze=False)
        for place, axes in enumerate(grid.flat):
            column = place % columns
            if place >= len(methods):
                axes.set_visible(False)
                continue
            mine = confusion[confusion["method"] == methods[place]]
            table = mine.pivot(index="true", columns="guessed", values="share").loc[list(tasks), list(tasks)]
            for a in range(count):
                for b in range(count):
                    # opacity, not a mixed colour, so that the page may be light or dark
                    share = float(table.iloc[a, b])
                    axes.add_patch(Rectangle((b - 0.5, a - 0.5), 1, 1, facecolor=(*colour, share)))
                axes.add_patch(
                    Rectangle((a - 0.5, a - 0.5), 1, 1, fill=False, edgecolor=MUTED, linewidth=0.8)
                )
            right = sum(float(table.iloc[a, a]) for a in range(count)) / count
            axes.set_title(f"{short(methods[place], 17)} {right:.2f}", fontsize=8.5, loc="left", color=INK)
            axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5))
            last = place // columns == lines - 1
            axes.set_xticks(range(count), labels if last else [], rotation=90, fontsize=7.5)
            axes.set_yticks(range(count), labels if column == 0 else [], fontsize=7.5)
            axes.tick_params(length=0)
            for side in axes.spines.values():
                side.set(color=RULE, linewidth=0.8)
        handles = [
            Patch(facecolor=(*colour, value), edgecolor=RULE, label=label)
            for value, label in ((1 / count, f"{1 / count:.2f} (chance)"), (0.5, "0.5"), (1.0, "1"))
        ]
        handles.append(Patch(facecolor="none", edgecolor=MUTED, label="right"))
        made.legend(
            handles=handles, loc="outside lower center", ncols=4, columnspacing=1.4,
            title="share of the maps of a network (row) read as a reasoning (column)", title_fontsize=10,
        )  # fmt: skip
    return made


def sentence(accuracy: pd.DataFrame, network: str) -> str:
    """What one network's maps tell about its reasoning, in words."""
    table = accuracy[accuracy["network"] == network]
    ranked = table[table["method"] != ORACLE].sort_values("image", ascending=False, kind="stable")
    chance, count = float(table["chance"].iloc[0]), round(1 / float(table["chance"].iloc[0]))
    if ranked.empty:
        return f"No method could be read on {network}."
    best = ranked.iloc[0]
    value = number(best["image"], best["image_low"], best["image_high"], 2)
    text = (
        f"Of {count} reasonings, a single map of {network} is read as the right one most often with "
        f"{best['method']} (share of maps {value}; chance is {chance:.2f}"
    )
    ceiling = table.loc[table["method"] == ORACLE, "image"]
    text += f", the truth itself reaches {float(ceiling.iloc[0]):.2f})" if len(ceiling) else ")"
    unclear = ranked.loc[~(ranked["image_low"] > chance), "method"].astype(str)
    if len(unclear):
        text += f". Not clearly above chance: {', '.join(unclear)}"
    return text + "."


def rows(accuracy: pd.DataFrame, network: str) -> list[dict[str, str]]:
    """The numbers of one network as text: method, kind, image, panel, where, moved."""
    table = accuracy[accuracy["network"] == network]
    found = {str(row["method"]): row for row in table.to_dict("records")}
    result = []
    for method in order(table):
        row, texts = found[method], {"method": method, "kind": kind(method)}
        for name in ("image", "panel", "where", "moved"):
            texts[name] = number(row[name], row[f"{name}_low"], row[f"{name}_high"], 2)
        result.append(texts)
    return result


def part(run: Run, album: Album | None = None) -> dict[str, Any] | None:
    """What the page and the terminal show, or None where the study did not ask.

    Args:
        run: with the networks of all tiers.
        album: takes the figures.
    """
    found = run.identification()
    if found is None:
        return None
    accuracy, known = found.accuracy, run.tiers
    # as on the rest of the page, trained networks first
    networks = sorted(
        dict.fromkeys(accuracy["network"].astype(str)),
        key=lambda name: (known[name] == tiers.NONE, -known[name]),
    )
    tasks = list(dict.fromkeys(found.confusion["true"].astype(str)))
    entries = []
    for network in networks:
        picture = None
        if album is not None:
            methods = order(accuracy[accuracy["network"] == network])
            drawn = confusions(found.confusion[found.confusion["network"] == network], methods, tasks)
            alt = f"Which reasoning each method's maps of {network} are read as."
            picture = album.add(f"confusions-{network}", drawn, alt)
        entries.append(
            {
                "network": network,
                "tier": tiers.words(known[network]),
                "sentence": sentence(accuracy, network),
                "rows": rows(accuracy, network),
                "figure": picture,
            }
        )
    overview = None
    if album is not None:
        alt = " ".join(entry["sentence"] for entry in entries)
        overview = album.add("identification-accuracy", accuracies(accuracy, networks), alt)
    pictures = int(accuracy["pictures"].iloc[0])
    return {"networks": entries, "figure": overview, "pictures": pictures, "reasonings": len(tasks)}
