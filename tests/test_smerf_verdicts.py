"""Every claim that is read off scores: it holds in a world like the paper's, and fails in some other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from made_up_smerf import GROUPS, REFERENCES, made_up
from verax.reproductions import claims as base
from verax.reproductions.smerf import claims, paper
from verax.reproductions.smerf.measurements import NETWORKS, Measurements, Table

METHODS = (*paper.methods(), *REFERENCES)
WEAK, BASELINES = paper.methods("weak"), paper.methods("baselines")
SIMPLE = paper.families()["simple"]
OBJECTS = dict(zip(range(1, 13), (0, 1, 1, 1, 2, 2, 1, 2, 2, 2, 3, 3), strict=True))
"""Bucket -> objects in sight."""
BOTH = {task: set(GROUPS[task]["p"]) & set(GROUPS[task]["s"]) for task in paper.settings()}
CR2 = {5: 0.6, 6: 0.6, 8: 0.2, 9: 0.1, 11: 0.2, 12: 0.2}
FIXED = {"table1-labels", "table1-objects", "no-overlap", "more-parameters", "sum-bounded"}
FIXED |= {"figure14", "figure15", "figure16-top", "figure16-bottom"}
"""Claims that do not depend on levels of scores."""
BY_SCORES = [claim for claim in claims.CLAIMS if claim.id not in FIXED]


def pafl(network, task, group, method):
    """What the paper says about PAFL, in numbers."""
    deep, simple = network in ("vgg16", "alexnet"), task in SIMPLE
    if method in BASELINES or (deep and method == "D-SHAP"):
        return (0.045 if simple else 0.03) - 0.015 * (method == "D-SHAP")
    if method == "oracle":
        return 0.95
    if method == "input":
        return 0.1 if simple else 0.33
    if simple:
        if method in WEAK:
            better = 0.1 if network == "robust" and method in ("G", "SG") else 0
            return 0.35 - 0.05 * OBJECTS[group] + better
        lost = task == "simple-nr" and OBJECTS[group] == 3 and method != "DL-R"
        return 0.45 if lost else 0.9 - 0.1 * OBJECTS[group]
    if method in WEAK:
        return 0.05 if (task, group) == ("complex-cr2", 9) else 0.1
    if (task, method) == ("complex-fr", "LRP-eps"):
        return 0.6
    found = 0.4 if group in BOTH[task] else 0.9
    if task == "complex-cr2":
        found = CR2.get(group, found)
    return found - 0.25 * found * (method in ("G-CAM", "D-SHAP"))


def like_the_paper(metric, network, background, task, group, method):
    """A level for each score, as the sentences of the paper have it."""
    simple = task in SIMPLE
    shift = 0.002 * METHODS.index(method) if method not in REFERENCES else 0
    if metric == "pafl":
        factor = {"black": 1.0, "noise": 0.8, "real": 0.6}[background]
        return factor * (pafl(network, task, group, method) + shift * (method not in BASELINES))
    if metric == "safl":
        return 0.1 + 0.05 * OBJECTS[group] if simple else 0.5
    if metric == "piou":
        if method == "oracle":
            return 0.95
        level = (0.3 if simple else 0.1) if method in WEAK else 0.4 if simple and group == 5 else 0.6
        better = 0.1 if simple and network == "robust" and method in ("G", "SG") else 0
        return level - (0.3 if not simple and method not in WEAK else 0) + shift + better
    if metric == "pmafl":
        return 0.5
    if metric == "smafl":
        reversed_ = task == "simple-nr" and group in (8, 9, 12)
        return 0.7 if not simple else 0.55 if reversed_ else 0.3
    return 0.05


def upside_down(*place):
    """The opposite of all that."""
    return 1 - like_the_paper(*place)


def even(metric, network, background, task, group, method):
    """The same high score everywhere."""
    return 0.9


def shuffled(metric, network, background, task, group, method):
    """Other methods are good at every network and metric."""
    if metric == "safl":
        return 0.0
    forward = (metric == "pafl") == (network == "plain")
    place = METHODS.index(method)
    return 0.1 + 0.04 * (place if forward else len(METHODS) - place)


class Levels(Measurements):
    """Measurements whose bucket means are given by a function."""

    def __init__(self, level, accuracy, named):
        certificates = [
            {
                "task": f"textbox/{task}",
                "network": "cnn@published",
                "worst_accuracy": accuracy,
                "mean_accuracy": accuracy,
                "worst_follow": accuracy if accuracy == 1 else 0.5,
                "samples": 500 * len(row),
                "background": background,
            }
            for task, row in paper.table3().items()
            for background in (None, "real")
        ]
        scores = made_up(samples=1, metrics=("pafl",), methods=("G",))
        super().__init__(
            scores,
            replicates=20,
            certificates=certificates,
            identifiability={"IG": (named, named - 0.02, named + 0.02, 1 / 7)},
        )
        self.level = level
        self.__dict__["networks"] = {
            role: dict.fromkeys(paper.families(), "cnn@published") for role in NETWORKS
        }

    def _check_learned(self, tasks, network, background):
        """The levels are those of networks that have learned, whatever certificates say."""

    def _table(self, metric, network, background, undefined):
        rows = [(task, group) for task in paper.settings() for group in GROUPS[task][metric[0]]]
        point = np.array(
            [[self.level(metric, network, background, *row, m) for m in METHODS] for row in rows]
        )
        noise = np.random.default_rng(0).normal(scale=2e-4, size=(20, *point.shape))
        index = pd.DataFrame(rows, columns=["task", "group"])
        draws = np.concatenate([point[None], point + noise])
        return Table(index, METHODS, draws, np.zeros(point.shape, dtype=bool))


@pytest.fixture(scope="module")
def worlds():
    others = {
        f: Levels(f, accuracy, 0.9) for f, accuracy in ((upside_down, 0.8), (even, 0.95), (shuffled, 0.8))
    }
    return {like_the_paper: Levels(like_the_paper, 1.0, 0.2), **others}


@pytest.mark.parametrize("claim", BY_SCORES, ids=lambda claim: claim.id)
def test_verdicts_follow_the_scores(claim, worlds):
    found = {function.__name__: claim.evaluate(world) for function, world in worlds.items()}
    true = found.pop("like_the_paper")
    assert true.verdict == base.HOLDS, true.measured
    assert base.FAILS in {finding.verdict for finding in found.values()}
