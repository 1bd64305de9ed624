"""Claims about the data, the networks and the metrics themselves."""

from __future__ import annotations

import numpy as np

from verax.networks.certificates import wilson
from verax.reproductions.claims import FAILS, Finding, NotTestable, count, exact, threshold
from verax.reproductions.smerf import paper, toys
from verax.reproductions.smerf.claims.base import Chapter
from verax.reproductions.smerf.measurements import PLAIN, Measurements
from verax.tasks.textbox.reasoning import Reasoning
from verax.tasks.textbox.settings import SETTINGS

chapter = Chapter("Data, networks and metrics")
claim = chapter.claim
NEAR_PERFECT = 0.90
"""The lowest accuracy in Table 3."""


@claim("table1-labels", "Table 1", "The label of every bucket follows from the reasoning of its setting.")
def labels(measured: Measurements) -> Finding:
    wrong = []
    for task, printed in paper.table1().items():
        reasoning = Reasoning.parse(SETTINGS[task][1])
        for group, scene in enumerate(reasoning.world.scenes(), 1):
            expected = 0 if group in printed.label0 else 1 if group in printed.label1 else None
            if reasoning.label(scene) != expected:
                wrong.append(f"{task} {group}")
    text = "all 84 labels agree" if not wrong else f"other labels in {', '.join(wrong)}"
    note = "The published code has the box branch of the CR settings the other way round."
    return exact(
        not wrong, f"From the rules, {text}. {note}", "labels derived from the rules = Table 1", len(wrong)
    )


@claim("table1-objects", "Table 1", "It lists the objects to focus on and to avoid in every bucket.")
def objects(measured: Measurements) -> Finding:
    wrong = []
    for task, printed in paper.table1().items():
        reasoning = Reasoning.parse(SETTINGS[task][1])
        for group, scene in enumerate(reasoning.world.scenes(), 1):
            if reasoning.label(scene) is None:
                continue
            for role, listed, derived in (
                ("focus", printed.focus, reasoning.focus(scene)),
                ("avoid", printed.avoid, reasoning.avoid(scene)),
            ):
                names = next((key for key, groups in listed.items() if group in groups), "none")
                if {*names.split("+")} - {"none"} != set(derived):
                    wrong.append(f"{task} bucket {group} ({role}: {'+'.join(sorted(derived)) or 'none'})")
    text = "all entries agree" if not wrong else f"the table leaves out {', '.join(wrong)}"
    return exact(
        not wrong, f"Derived from the rules, {text}.", "objects derived from the rules = Table 1", len(wrong)
    )


@claim("no-overlap", "Appendix A.1", "Objects are placed so that they do not overlap one another.")
def no_overlap(measured: Measurements) -> Finding:
    shares = toys.overlaps()
    text = ", ".join(f"{a} and {b} {share:.1%}" for (a, b), share in shares.items())
    return exact(
        max(shares.values()) == 0,
        f"Placed as in the published code, rectangles overlap in these shares of scenes: {text}.",
        "no scene with overlapping rectangles",
        max(shares.values()),
    )


@claim("more-parameters", "Appendix A.2", "The network for complex settings has more parameters.")
def more_parameters(measured: Measurements) -> Finding:
    simple, complicated = toys.parameters()
    return exact(
        complicated > simple,
        f"{complicated:,} parameters against {simple:,}: it is deeper, and its last feature map is smaller.",
        "more parameters than the network for simple settings",
        complicated - simple,
    )


def certificates(
    measured: Measurements, tasks: tuple[str, ...], background: str | None = None
) -> list[dict[str, float]]:
    """Those of the plain network, of which every setting has one; on black where no background is named."""
    names = measured.networks.get(PLAIN, {})
    families = {task: family for family, members in paper.families().items() for task in members}
    found = []
    for row in measured.certificates:
        task = str(row["task"]).rpartition("/")[2]
        if (
            task in tasks
            and row["network"] == names.get(families[task])
            and row.get("background") == background
        ):
            found.append(dict(row))
    if {str(row["task"]).rpartition("/")[2] for row in found} != set(tasks):
        where = "" if background is None else f" on the {background} background"
        raise NotTestable(f"The run has no certificates of the plain network{where} for all settings.")
    return found


def _accuracy(measured: Measurements, tasks: tuple[str, ...], limit: float) -> Finding:
    rows = certificates(measured, tasks)
    worst = min(rows, key=lambda row: row["worst_accuracy"])
    task = str(worst["task"]).rpartition("/")[2]
    n = worst["samples"] / len(paper.table3()[task])
    value = float(worst["worst_accuracy"])
    words = f"Worst bucket of {len(rows)} networks: {value:.4f}"
    scenes = f"({task}, {n:.0f} fresh scenes a bucket)."
    if limit == 1:  # about the scenes that were drawn: no interval of a proportion ever lies at 1
        return exact(value >= 1, f"{words} {scenes}", "no error among the scenes that were drawn", value)
    low, high = map(float, wilson(worst["worst_accuracy"] * n, n))
    finding = exact(
        low >= limit,
        f"{words} [{low:.4f}, {high:.4f}] {scenes}",
        f"accuracy of the worst bucket at least {limit:g}, with its whole interval",
        value,
    )
    uncertain = finding.verdict == FAILS and high >= limit
    return Finding(finding.verdict, finding.measured, finding.rule, value, low, high, uncertain)


@claim("table3-near-perfect", "Table 3", "Every bucket is classified with an accuracy of 0.90 or more.")
def near_perfect(measured: Measurements) -> Finding:
    return _accuracy(measured, paper.settings(), NEAR_PERFECT)


@claim("table3-simple", "Table 3", "In the simple settings every bucket is classified without an error.")
def perfect(measured: Measurements) -> Finding:
    return _accuracy(measured, paper.families()["simple"], 1.0)


@claim(
    "buckets-verify-reasoning",
    "Section 3.2",
    "Accuracy in buckets that differ in one object shows that the network follows the intended reasoning.",
)
def verified(measured: Measurements) -> Finding:
    rows = certificates(measured, paper.settings())
    worst = min(rows, key=lambda row: row["worst_follow"])
    bad = [row for row in rows if row["worst_accuracy"] >= NEAR_PERFECT and row["worst_follow"] < 0.97]
    return exact(
        not bad,
        f"{len(rows) - len(bad)} of {len(rows)} networks also follow every intervention in the same scene "
        f"(an object removed, added, moved or swapped) at a rate of 0.97 or more; the lowest rate is "
        f"{worst['worst_follow']:.3f} ({str(worst['task']).rpartition('/')[2]}).",
        "no network that is right in every bucket but does not follow interventions",
        len(bad),
    )


@claim("sum-bounded", "Section 4", "PAFL and SAFL of a map add up to at most 1.")
def bounded(measured: Measurements) -> Finding:
    from verax.reproductions.smerf.measurements import BLACK

    rows = measured.scores[BLACK]
    keys = ["task", "network", "seed", "method", "group", "sample"]
    parts = [rows[rows["metric"] == name].set_index(keys)["value"] for name in ("pafl", "safl")]
    both = parts[0].add(parts[1]).dropna()
    if both.empty:
        raise NotTestable("The run has no map with both PAFL and SAFL.")
    over = both > 1 + 1e-6
    return exact(
        not over.any(),
        f"{over.sum()} of {len(both)} maps exceed 1; the largest sum is {both.max():.3f} (where rectangles "
        "overlap, pixels are counted twice).",
        "no map whose PAFL + SAFL exceeds 1",
        float(both.max()),
    )


@claim("success-implies-focus", "Section 4", "A bucket with PAFL above 0.5 has more PAFL than SAFL.")
def implied(measured: Measurements) -> Finding:
    names = paper.methods("fifteen")
    focus, avoid = (measured.draws(m, names, both=True) for m in ("pafl", "safl"))
    wrong = ((focus > 0.5) & (avoid >= focus)).any(1)
    return count(
        np.asarray(~wrong), names, "Methods without a bucket that is successful and a failure at once"
    )


@claim(
    "figure14", "Figure 14", "On the toy, AFL sees the second object (0.75 and 0.24), IOU does not (1 and 0)."
)
def figure14(measured: Measurements) -> Finding:
    ours, printed = toys.figure14(), paper.toys().figure14.model_dump()
    gaps = {name: abs(ours[name] - printed[name]) for name in ("pafl", "safl", "piou", "siou")}
    text = ", ".join(f"{name.upper()} {ours[name]:.4f}" for name in gaps)
    return exact(max(gaps.values()) < 5e-4, f"{text}.", "all four within 0.0005", max(gaps.values()))


@claim("figure15", "Figure 15", "IOU is sensitive to the number of pixels that are kept.")
def figure15(measured: Measurements) -> Finding:
    printed = paper.toys().figure15
    found = toys.figure15(printed.count)
    spans = found.max(1) - found.min(1)
    draws = np.random.default_rng(measured.seed).choice(spans, (measured.replicates, len(spans))).mean(1)
    means = ", ".join(f"{value:.2f}" for value in found.mean(0))
    span = max(printed.piou) - min(printed.piou)
    more = (
        f"Means for {printed.count[0]} to {printed.count[-1]} pixels: {means}; paper: a span of {span:.2f} "
    )
    more += f"on one image. {len(spans)} images of Complex-CR1 with B and Box1, shipped network."
    return threshold(
        np.append(spans.mean(), draws), "above", 0.1, "Largest minus smallest IOU of a map", more
    )


@claim("figure16-top", "Figure 16 (top)", "A stronger second object lowers PAFL and raises SAFL as plotted.")
def figure16_top(measured: Measurements) -> Finding:
    printed = paper.toys().figure16
    focus, avoid = toys.figure16(printed.strength)
    gap = max(np.abs(focus - printed.pafl).max(), np.abs(avoid - printed.safl).max())
    return exact(
        bool(gap < 5e-4), f"All 22 values within {gap:.4f}.", "all 22 values within 0.0005", float(gap)
    )


@claim(
    "figure16-bottom",
    "Figure 16 (bottom)",
    "With a strong background both PAFL and SAFL approach zero, because the background dominates.",
)
def figure16_bottom(measured: Measurements) -> Finding:
    # A background above both objects. After the rescaling of the code the weakest pixels are worth nothing.
    maps, truth = toys.painted([0.8], background=0.8)
    maps[:, toys.TEXT[0] : toys.TEXT[1], toys.TEXT[2] : toys.TEXT[3]] = 0.4
    maps[:, toys.BOX1[0] : toys.BOX1[1], toys.BOX1[2] : toys.BOX1[3]] = 0.2
    from verax.metrics import published

    found = {name: float(value) for name, value in published.scores(maps, truth).items()}
    return exact(
        max(found["pafl"], found["safl"]) < 0.1,
        f"Objects at 0.4 and 0.2 on a background of 0.8: PAFL {found['pafl']:.3f}, SAFL {found['safl']:.3f}.",
        "PAFL and SAFL below 0.1",
        max(found["pafl"], found["safl"]),
    )
