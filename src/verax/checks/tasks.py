"""Checks of tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
from torch import Tensor

from verax.cases import Cases, Role
from verax.checks.base import Check, Named, Report, made
from verax.tasks import Task, task
from verax.tasks.base import is_regression

_MEMBERS = ("name", "family", "classes", "groups", "describe", "fingerprint", "cases")


def check_task(subject: str | Task, n: int = 4) -> Report:
    """Run all checks on a task: a name, or any object with the members of `verax.Task`.

    Args:
        subject: the task.
        n: cases of each bucket that are looked at; 4 or more.
    """
    found = task(subject)
    name = getattr(found, "name", type(found).__name__)
    return made(str(name), _tests(found, max(4, n)))


def _equal(a: Cases, b: Cases) -> str:
    """What differs between two sets of cases; empty where nothing does."""
    pairs = {
        "inputs": (a.inputs, b.inputs),
        "targets": (a.targets, b.targets),
        "focus masks": (a.truth.focus, b.truth.focus),
        "avoid masks": (a.truth.avoid, b.truth.avoid),
        "buckets": (a.group, b.group),
        "ids": (a.ids, b.ids),
    }
    return next((name for name, (x, y) in pairs.items() if x.shape != y.shape or not torch.equal(x, y)), "")


def _tests(subject: Task, n: int) -> Iterator[Named]:
    members = "has the members of a task"

    def complete() -> Check:
        missing = [name for name in _MEMBERS if not hasattr(subject, name)]
        return Check(members, not missing, f"it has no {missing[0]!r}" if missing else "")

    yield members, complete

    yield from _said(subject)
    sizes = "gives n cases of every bucket"

    def counted() -> Check:
        drawn = subject.cases(n=n)
        counts = [int((drawn.group == group).sum()) for group in subject.groups]
        odd = [group for group, count in zip(subject.groups, counts, strict=True) if count != n]
        words = f"bucket {odd[0]} has {counts[subject.groups.index(odd[0])]} of {n}" if odd else ""
        if not odd and len(drawn) != n * len(subject.groups):
            words = f"it gave {len(drawn)} cases for {len(subject.groups)} buckets of {n}"
        return Check(sizes, not words, words)

    yield sizes, counted
    chosen = "gives the bucket that was asked for"

    def asked() -> Check:
        group = subject.groups[-1]
        part, all_of_it = subject.cases(group, n=n), subject.cases(n=n)
        if not bool((part.group == group).all()):
            return Check(chosen, False, f"cases of bucket {group} are in others")
        differs = _equal(part, all_of_it[all_of_it.group == group])
        return Check(
            chosen, not differs, f"its {differs} are others when it is drawn alone" if differs else ""
        )

    yield chosen, asked
    yield from _drawn(subject, n)
    yield from _consistent(subject, n)


def _said(subject: Task) -> Iterator[Named]:
    words = "says what it is in plain values"

    def told() -> Check:
        faults = []
        if not (isinstance(subject.name, str) and subject.name.strip() == subject.name and subject.name):
            faults.append("its name is not a word")
        if not (isinstance(subject.classes, int) and subject.classes >= 1):
            faults.append(f"its number of classes is {subject.classes!r}")
        if not subject.groups or len(set(subject.groups)) != len(subject.groups):
            faults.append("its buckets are none, or some stand there twice")
        if not all(isinstance(subject.describe(group), str) for group in subject.groups):
            faults.append("a bucket is not described in words")
        prints = [json.dumps(subject.fingerprint(), sort_keys=True, default=repr) for _ in range(2)]
        if prints[0] != prints[1] or " object at 0x" in prints[0]:
            faults.append("its fingerprint is another one each time, so that no result could be reused")
        return Check(words, not faults, "; ".join(faults))

    yield words, told


def _drawn(subject: Task, n: int) -> Iterator[Named]:
    """Cases are a function of the seed and their number, and of nothing else."""
    twice = "gives the same cases twice"

    def repeated() -> Check:
        before = torch.get_rng_state()
        differs = _equal(subject.cases(n=n), subject.cases(n=n))
        if not torch.equal(before, torch.get_rng_state()):
            return Check(twice, False, "it draws from torch's global random numbers")
        return Check(twice, not differs, f"the {differs} are others the second time" if differs else "")

    yield twice, repeated
    start = "a case depends on its number alone"

    def later() -> Check:
        whole, rest = subject.cases(n=n), subject.cases(n=n - 2, start=2)
        kept = torch.cat([(whole.group == group).nonzero()[2:, 0] for group in subject.groups])
        differs = _equal(rest, whole[kept])
        return Check(start, not differs, f"start=2 gives other {differs}" if differs else "")

    yield start, later
    unique = "every case has an id of its own"

    def numbered() -> Check:
        ids = subject.cases(n=n).ids
        twice = len(ids) - len(torch.unique(ids))
        return Check(unique, not twice, f"{twice} ids stand there twice" if twice else "")

    yield unique, numbered
    seeds = "another seed gives other cases"

    def reseeded() -> Check:
        same = torch.equal(subject.cases(n=n).inputs, subject.cases(n=n, seed=1).inputs)
        return Check(seeds, not same, "seeds 0 and 1 have the same inputs" if same else "")

    yield seeds, reseeded


def _consistent(subject: Task, n: int) -> Iterator[Named]:
    """Inputs, labels and truth fit each other."""
    shapes = "inputs, targets and truth have the shapes and types of cases"

    def shaped() -> Check:
        cases = subject.cases(n=n)
        size, x = len(cases), cases.inputs
        want = (size, *x.shape[2:]) if x.ndim == 4 else tuple(x.shape)
        rules = {
            "inputs must be finite float32": x.dtype == torch.float32 and bool(x.isfinite().all()),
            "pictures must lie between 0 and 1": x.ndim != 4 or (float(x.min()) >= 0 and float(x.max()) <= 1),
            "targets must be int64, one for each case": _whole(cases.targets, size),
            "group must be int64, one for each case": _whole(cases.group, size),
            "ids must be int64, one for each case": _whole(cases.ids, size),
            f"focus must be bool of shape {want}": _mask(cases.truth.focus, want),
            f"avoid must be bool of shape {want}": _mask(cases.truth.avoid, want),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        return Check(shapes, not broken, "; ".join(broken))

    yield shapes, shaped
    labels = "targets are labels of their buckets"

    def labelled() -> Check:
        cases = subject.cases(n=n)
        outside = (cases.targets < 0) | (cases.targets >= subject.classes)
        if outside.any():
            worst = int(cases.targets[outside][0])
            return Check(labels, False, f"target {worst} is none of the classes 0 to {subject.classes - 1}")
        if is_regression(subject):
            return Check(labels, None, "the output is a number")
        known = getattr(subject, "labels", None)
        told = cases.targets if known is None else known(cases.group)
        for group in subject.groups:
            here = cases.targets[cases.group == group]
            if known is not None and not torch.equal(here, told[cases.group == group]):
                return Check(
                    labels, False, f"labels() says another thing about bucket {group} than its cases"
                )
        return Check(labels, True)

    yield labels, labelled
    truth = "focus and avoid do not overlap, and are those of the objects"

    def disjoint() -> Check:
        cases = subject.cases(n=n)
        told = cases.truth
        if (told.focus & told.avoid).any():
            return Check(truth, False, "some places are in focus and to be avoided")
        if told.objects.shape[1] and told.objects.ndim == 4 and told.kind == "rule":
            for word, mask, role in (("focus", told.focus, Role.FOCUS), ("avoid", told.avoid, Role.AVOID)):
                union = (told.objects & (told.roles == role)[:, :, None, None]).any(1)
                if not torch.equal(union, mask):
                    return Check(truth, False, f"the {word} mask is not that of the objects with that role")
        if not told.focus.any() and told.values is None:
            return Check(truth, False, "nothing is in focus in any case")
        return Check(truth, True)

    yield truth, disjoint


def _whole(values: Tensor, size: int) -> bool:
    return values.dtype == torch.int64 and values.shape == (size,)


def _mask(mask: Tensor, shape: tuple[int, ...]) -> bool:
    return mask.dtype == torch.bool and tuple(mask.shape) == shape
