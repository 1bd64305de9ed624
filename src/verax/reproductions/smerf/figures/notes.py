"""What is seen in our figures: one sentence each, computed from the numbers that are drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from verax.reproductions.smerf.evidence import Evidence, Series
from verax.reproductions.smerf.figures import toys
from verax.reproductions.smerf.figures.settings import OBJECTS, SIMPLE_LINES
from verax.reproductions.smerf.figures.summaries import (
    both_roles,
    bucket_rows,
    ceiling,
    everywhere,
    successes,
    summary,
    worst_buckets,
)
from verax.reproductions.smerf.paper_methods import COMPLEX, FIFTEEN, SIMPLE, TEN, short
from verax.tasks import task as find_task

Note = Callable[[Evidence], str]


def _plain(evidence: Evidence) -> Series:
    found = evidence.find("plain")
    assert found is not None
    return found


def drop(metric: str) -> Note:
    """How many methods fall from simple to complex, and how far the ceiling itself falls."""

    def note(evidence: Evidence) -> str:
        series = _plain(evidence)
        means = [summary(series, metric, TEN, everywhere(tasks))["mean"] for tasks in (SIMPLE, COMPLEX)]
        fall = means[0] - means[1]
        count = f"{int((fall > 0).sum())} of {len(fall)}"
        text = f"{count} methods fall from simple to complex, by {fall.mean():.2f} on average"
        tops = [ceiling(series, metric, everywhere(tasks)) for tasks in (SIMPLE, COMPLEX)]
        if tops[0] is not None and tops[1] is not None:
            text += f"; the truth itself falls from {tops[0]:.2f} to {tops[1]:.2f}"
        return text + "."

    return note


def sound(evidence: Evidence) -> str:
    """The best methods where scores are not pictures of maps."""
    assert evidence.sound is not None
    names = [name.partition("@")[0] for name in FIFTEEN]
    words = []
    for family, tasks in (("simple", SIMPLE), ("complex", COMPLEX)):
        table = summary(evidence.sound, "focus-share", [*names, "input"], everywhere(tasks), "sound")
        best = table["mean"].drop("input").idxmax()
        values = table["mean"]
        words.append(f"{family}: {short(best)} {values[best]:.2f}, every object {values['input']:.2f}")
    return f"Best method and best control, {'; '.join(words)}."


def accuracy(evidence: Evidence) -> str:
    """The worst bucket of Complex-FR."""
    view = next(view for view in _plain(evidence).views if view.task == COMPLEX[0])
    row = view.accuracy.loc[view.accuracy["accuracy"].idxmin()]
    return f"Worst bucket {row['group']}: {100 * row['accuracy']:.1f} % of {row['n']} scenes are right."


def distraction(evidence: Evidence) -> str:
    """How much focus is lost when there is something to ignore."""
    series = _plain(evidence)
    means = [summary(series, "pafl", FIFTEEN, where)["mean"] for where in SIMPLE_LINES.values()]
    lower = [int((means[i] < means[i + 1]).sum()) for i in (0, 2)]
    return (
        f"PAFL is lower with the object to ignore than without it for {lower[0]} (Simple-FR) and "
        f"{lower[1]} (Simple-NR) of {len(means[0])} methods."
    )


def objects(evidence: Evidence) -> str:
    """How many methods fall with every object that is added."""
    series, words = _plain(evidence), []
    for setting, parts in OBJECTS.items():
        one, two, three = (summary(series, "pafl", FIFTEEN, where)["mean"] for where in parts)
        words.append(f"{int(((one > two) & (two > three)).sum())} of {len(one)} in {setting}")
    return f"PAFL falls with the second and again with the third object for {' and '.join(words)}."


def success(evidence: Evidence) -> str:
    """Who succeeds everywhere."""
    table = successes(_plain(evidence)).astype({"task": str, "method": str})
    table = table[table["method"].isin(FIFTEEN)]
    words = []
    for family, tasks in (("simple", SIMPLE), ("complex", COMPLEX)):
        whole = table[table["task"].isin(tasks)].groupby("method", sort=False)["success"].min() == 1
        names = ", ".join(short(name) for name in whole.index[whole]) or "none"
        words.append(f"{family}: {names}")
    return f"Methods that succeed in all buckets with both kinds of objects: {'; '.join(words)}."


def variation(evidence: Evidence) -> str:
    """How much buckets differ."""
    spread = summary(_plain(evidence), "pafl", FIFTEEN, everywhere(COMPLEX))["std"]
    return f"Buckets differ by up to {spread.max():.2f} (one deviation, {short(str(spread.idxmax()))})."


def worst(metric: str) -> Note:
    """The best worst case, and what a choice of settings hides."""

    def note(evidence: Evidence) -> str:
        series = _plain(evidence)
        some, whole = (
            summary(series, metric, FIFTEEN, everywhere(tasks))["least"] for tasks in (COMPLEX[2:4], COMPLEX)
        )
        gap = (some - whole).idxmax()
        return (
            f"The best worst case of all complex settings is {whole.max():.2f} "
            f"({short(str(whole.idxmax()))}); "
            f"CR2 and CR3 alone would say {some[gap]:.2f} for {short(str(gap))} instead of {whole[gap]:.2f}."
        )

    return note


def robust(metric: str) -> Note:
    """Who gains from adversarial training."""

    def note(evidence: Evidence) -> str:
        both = evidence.all_of(("plain", "robust"))
        if len(both) < 2:
            return "Only the robust network was run."
        words = []
        for family, tasks in (("simple", SIMPLE), ("complex", COMPLEX)):
            before, after = (summary(series, metric, TEN, everywhere(tasks))["mean"] for series in both)
            gain = after - before
            words.append(
                f"{family}: {int((gain > 0).sum())} of {len(gain)} gain, most {short(str(gain.idxmax()))} "
                f"({gain.max():+.2f})"
            )
        return f"Mean {metric.upper()}, {'; '.join(words)}."

    return note


def toy(evidence: Evidence) -> str:
    """The four numbers, exactly."""
    table = toys.levels([0.8])
    return f"PAFL {table['pafl'][0]:.4f}, SAFL {table['safl'][0]:.4f}: exact, as in the paper."


def curve(evidence: Evidence) -> str:
    """Where the curve starts and ends."""
    found = _plain(evidence).curve
    assert found is not None
    means = found.groupby("threshold")["value"].mean()
    start = f"On average {means.iloc[0]:.2f} at {means.index[0]} pixels"
    return f"{start}, and {means.max():.2f} at the best threshold, {means.idxmax()}."


def sweep(evidence: Evidence) -> str:
    """The ends of the upper sweep."""
    level = toys.levels()["pafl"]
    return f"PAFL falls from {level.iloc[0]:.3f} to {level.iloc[-1]:.3f}: exact, as in the paper."


def common_worst(task: str) -> Note:
    """The bucket in which most methods are worst."""

    def note(evidence: Evidence) -> str:
        found = Counter(worst_buckets(_plain(evidence), "pafl", task, FIFTEEN).values())
        group, count = found.most_common(1)[0]
        scene = find_task(task).describe(group)
        return f"{count} of {found.total()} methods are worst in bucket {group} ({scene})."

    return note


def reversals(tasks: Sequence[str]) -> Note:
    """How often a secondary pixel gets more than a primary one."""

    def note(evidence: Evidence) -> str:
        series, turned, total = _plain(evidence), 0, 0
        for task in tasks:
            for group in both_roles(series, task):
                first, second = (
                    bucket_rows(series, m, FIFTEEN, task, group)["mean"] for m in ("pmafl", "smafl")
                )
                turned, total = turned + int((second > first).sum()), total + len(first)
        return f"A secondary pixel gets more than a primary one in {turned} of {total} bucket-method pairs."

    return note
