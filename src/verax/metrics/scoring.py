"""Scoring: raw attributions and cases in, one row for each sample out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from verax.cases import Cases, Truth
from verax.errors import InvalidInput
from verax.metrics import (
    BUILTIN,
    CORE,
    METRICS,
    NORMALISED,
    Metric,
    agreement,
    faithfulness,
    focus,
    overlap,
    pointing,
    published,
    ranks,
)
from verax.metrics.own import measure, own_metrics, reads
from verax.metrics.superpixels import patch_sums
from verax.networks.anatomy import device_of
from verax.protocols import PROTOCOLS, Prepared, exact, sound, truth_of
from verax.protocols import faithfulness as asking
from verax.protocols import published as pictures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from verax.methods import Method
    from verax.methods.base import Function

MOVES = 2
"""Moved inputs in max-sensitivity, each of which explains every sample again. Two are enough: a move has
thousands of components, so that one is much like another."""

STEPS, REMOVALS = 32, 64
"""Steps of deletion, insertion and flipping, and patches that infidelity removes."""

PATCH = 8
"""Side of what pixel flipping and infidelity remove; Samek et al. flip regions of 9 x 9."""


def metric_names(protocol: str, own: Sequence[Metric] = ()) -> list[str]:
    """The metrics of a protocol, in the order of their columns; `own` ones stand last."""
    name = PROTOCOLS.canonical(protocol)
    listed = (*(METRICS.get(metric) for metric in BUILTIN), *own)
    return [metric.name for metric in listed if reads(metric, name)]


def normalise(score: Tensor, chance: Tensor, oracle: Tensor) -> Tensor:
    """Move scores so that chance is 0 and the oracle is 1; NaN where the two are the same."""
    span = oracle - chance
    return torch.where(span == 0, torch.nan, (score - chance) / span)


def sound_scores(values: Tensor, truth: Truth) -> dict[str, Tensor]:
    """All metrics of the sound protocol for prepared maps ``(N, H, W)``: name -> ``(N,)``.

    Chance is the score of a constant map and the oracle that of the focus mask itself. What depends on the
    focus (or avoid) pixels is NaN in cases that have none.
    """
    truth = truth.map(lambda tensor: tensor.to(values.device))
    regions = focus.regions(truth)
    has = {name: regions[name].any(2).any(1) for name in ("focus", "avoid")}
    ties, flat = ranks.Ties.of(values, truth.focus), ranks.Ties.constant(truth.focus)
    areas, oracle = focus.areas(truth), focus.shares(truth.focus.to(torch.float64), truth)
    triples = {
        f"{name}-share": (share, areas[name], oracle[name])
        for name, share in focus.shares(values, truth).items()
    }
    best = torch.ones_like(areas["focus"])  # the focus mask gets all of its own pixels right
    triples["rank-accuracy"] = (overlap.expected_accuracy(ties), overlap.expected_accuracy(flat), best)
    triples["iou"] = (overlap.expected_iou(ties), overlap.expected_iou(flat), best)
    triples["pointing-game"] = (pointing.pointing(values, truth.focus), pointing.chance(truth.focus), best)

    if truth.weights is not None:
        flat_map = torch.ones_like(values)
        distance = focus.object_distance(values, truth)
        triples["object-distance"] = (
            distance,
            focus.object_distance(flat_map, truth),
            torch.zeros_like(distance),
        )

    defined = {"focus-share": has["focus"], "avoid-share": has["avoid"]}
    scores = {name: score for name, (score, _, _) in triples.items()}
    scores |= {name + NORMALISED: normalise(*triple) for name, triple in triples.items()}
    for name, where in defined.items():
        for column in (name, name + NORMALISED):
            scores[column] = torch.where(where, scores[column], torch.nan)
    return scores


def _shared(found: Tensor | None, device: torch.device, noun: str) -> Tensor | None:
    """What a truth says about elements, ``(D,)``; the same in every case."""
    if found is None or not len(found):
        return None
    rows = found.to(device).flatten(1)
    if not (rows == rows[:1]).all():
        raise InvalidInput(f"The {noun} of a truth must be the same elements in every case.")
    return rows[0]


def _agreements(values: Tensor, right: Tensor, patches: Tensor | None) -> dict[str, Tensor]:
    """All measures of agreement for maps and truths ``(N, D)``; sign-blind ones read magnitudes."""
    if patches is not None:
        numbers = torch.unique(patches, return_inverse=True)[1]
        values, right = patch_sums(values, numbers), patch_sums(right, numbers)
    scores = {name: measure(values, right) for name, measure in agreement.MEASURES.items()}
    size = values.abs()
    scores["pearson/magnitude"] = agreement.pearson(size, right.abs())
    scores["pearson/positive"] = agreement.pearson(size, right.clamp(min=0))
    return scores


def exact_scores(values: Tensor, truth: Truth) -> dict[str, Tensor]:
    """All metrics of the exact protocol for prepared maps ``(N, D)``: name -> ``(N,)``.

    Those of the core are NaN where the truth names none or nothing is left of it; it must be the same
    elements in every case. Where the truth has patches, they are compared instead of their elements, by their
    sums; those in the core are the patches that lie in it altogether.
    """
    if truth.values is None:
        raise InvalidInput(
            "The exact protocol needs a truth with values; this task knows only where it lies."
        )
    right = exact.prepare(truth.values.to(values.device)).values
    patches = _shared(truth.patches, values.device, "patches")
    scores = _agreements(values, right, patches)
    core = _shared(truth.core, values.device, "core")
    if patches is not None and core is not None:  # what a patch got cannot be taken apart again
        core = core & ~torch.isin(patches, patches[~core])
    if core is None or not core.any():
        none = torch.full((len(values),), torch.nan, dtype=torch.float64, device=values.device)
        return {**scores, **{name + CORE: none for name in scores}}
    inside = _agreements(values[:, core], right[:, core], None if patches is None else patches[core])
    return {**scores, **{name + CORE: score for name, score in inside.items()}}


def faithfulness_scores(
    maps: Tensor,
    cases: Cases,
    model: nn.Module,
    targets: Tensor,
    method: str | Method | Function | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """All metrics of the faithfulness protocol for raw maps ``(N, C or 1, H, W)``: name -> ``(N,)``.

    Deletion and insertion go through the pixels in 32 steps, flipping through patches of a grid; infidelity
    removes 64 random patches. Random numbers belong to the sample ids. Max-sensitivity has to explain again,
    and is NaN where `method` is not given.
    """
    x, low = cases.inputs, asking.BASELINE
    known = maps if maps.shape == x.shape else None  # the method's own map, not one with its channels summed
    maps = maps.expand_as(x) / (x.shape[1] // maps.shape[1])
    scores = {
        "deletion": faithfulness.deletion(model, x, targets, maps, STEPS, baseline=low),
        "insertion": faithfulness.insertion(model, x, targets, maps, STEPS, baseline=low),
        "pixel-flipping": faithfulness.perturbation_area(
            faithfulness.pixel_flipping(model, x, targets, maps, STEPS, baseline=low, region=PATCH)
        ),
        "infidelity": faithfulness.infidelity(
            model,
            x,
            targets,
            maps,
            REMOVALS,
            perturbation="square",
            square=PATCH,
            baseline=low,
            scaled=True,
            seed=seed,
            ids=cases.ids,
        ),
        "max-sensitivity": torch.full((len(x),), torch.nan),
    }
    if method is not None:
        scores["max-sensitivity"] = faithfulness.max_sensitivity(
            model,
            x,
            targets,
            method,
            samples=MOVES,
            bounded=True,
            attributions=known,
            seed=seed,
            ids=cases.ids,
            truth=cases.truth,
            settings=settings,
        )
    return scores


def score(
    maps: Tensor | NDArray[np.generic],
    cases: Cases,
    protocol: str = "sound",
    *,
    metrics: Sequence[str | Metric] = (),
    predictions: Tensor | NDArray[np.generic] | Sequence[int] | None = None,
    transfer: str = "heat",
    sign: str = "magnitude",
    model: nn.Module | None = None,
    method: str | Method | Function | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Score raw attributions against the truth, or, under "faithfulness", by asking the network.

    Args:
        maps: attributions with the shape of ``cases.inputs`` or, of pictures, ``(N, H, W)``. NaN and
            infinity are allowed: such a map is degenerate and gets its defined score.
        cases: the cases that were explained.
        protocol: "sound", "published", "faithfulness" or "exact"; "sound:counterfactual" and "sound:shapley"
            ask that the cases carry that truth, while "sound" takes the one that they have. "exact" is for
            tasks that know the right attribution of every element, and the only one for vectors.
        metrics: own ones (`verax.metric`) that are scored beside those of the protocol.
        predictions: ``(N,)`` labels that the network gave, which were explained (default: the targets of the
            cases). Where it is wrong it did not follow the reasoning, so nothing is known about the right
            explanation: under "sound" and "exact" its scores are NaN. Under "published" they are kept, as in
            the paper, and under "faithfulness", which needs no truth.
        transfer: how "published" turns a map into a picture. With "projection" each group of cases is one
            batch, as in the paper.
        sign: what "sound" keeps of a map: "magnitude", "positive" or "signed".
        model: the network that "faithfulness" asks.
        method: what made the maps; "faithfulness" explains again with it for max-sensitivity, which is NaN
            without.
        settings: the method's own parameters.
        seed: that the method had, and of the random numbers of "faithfulness".

    Returns:
        One row for each sample: sample, group, degenerate, wrong, and one column for each metric.
    """
    name = PROTOCOLS.canonical(protocol)
    own = own_metrics(metrics, [name])
    sound.check_sign(sign)
    pictures.check_transfer(transfer)
    raw = _read_maps(maps, cases)
    if raw.ndim == 2 and name != "exact":
        raise InvalidInput(f"The protocol {name!r} is for pictures; vectors are scored by 'exact'.")
    attributions = raw if name == "exact" else sound.as_maps(raw)
    wrong = _read_wrong(predictions, cases)
    scored = name.partition(":")[0] in ("sound", "exact")
    if ":" in name and cases.truth.kind != truth_of(name):
        raise InvalidInput(
            f"The protocol {name!r} needs cases with that truth: task.cases(..., truth={truth_of(name)!r})."
        )
    if name == "exact":
        prepared = exact.prepare(attributions)
        scores = exact_scores(prepared.values, cases.truth)
    elif scored:
        prepared = sound.prepare(attributions, sign)
        scores = sound_scores(prepared.values, cases.truth)
    elif name == "faithfulness":
        if not isinstance(model, nn.Module):
            raise InvalidInput("The faithfulness protocol asks the network: score(..., model=model).")
        prepared = asking.prepare(attributions)
        there = cases.to(device_of(model))
        targets = there.targets if predictions is None else torch.as_tensor(predictions).to(there.targets)
        scores = faithfulness_scores(attributions, there, model, targets, method, settings, seed)
    else:
        prepared = _pictures(attributions, cases.group.to(attributions.device), transfer)
        scores = published.scores(prepared.values, cases.truth)
    truth = cases.truth.map(lambda tensor: tensor.to(prepared.values.device)) if own else cases.truth
    scores |= {metric.name: measure(metric, prepared.values, truth) for metric in own}
    table = _arrays({column: scores[column] for column in metric_names(name, own)})
    if scored:
        table = {column: np.where(wrong, np.nan, values) for column, values in table.items()}
    return pd.DataFrame(
        {
            "sample": cases.ids.cpu().numpy(),
            "group": cases.group.cpu().numpy(),
            "degenerate": prepared.degenerate.cpu().numpy(),
            "wrong": wrong,
            **table,
        }
    )


def _arrays(scores: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Scores as arrays; those of one kind come from a GPU together, since it is waited for each time."""
    kinds: dict[tuple[object, ...], list[str]] = {}
    for name, values in scores.items():
        kinds.setdefault((values.dtype, values.device, values.shape), []).append(name)
    found: dict[str, NDArray[Any]] = {}
    for names in kinds.values():
        together = torch.stack([scores[name] for name in names]).cpu().numpy()
        found |= dict(zip(names, together, strict=True))
    return {name: found[name] for name in scores}


def _pictures(attributions: Tensor, group: Tensor, transfer: str) -> Prepared:
    if transfer != "projection":
        return pictures.prepare(attributions, transfer)
    # This transfer looks at a whole batch. The batches of the paper are its groups; taking them apart here
    # means that the score of a group does not depend on which other groups are scored with it.
    values = attributions.new_zeros(attributions[:, 0].shape)
    degenerate = torch.zeros(len(group), dtype=torch.bool, device=group.device)
    for number in torch.unique(group).tolist():
        members = group == number
        part = pictures.prepare(attributions[members], transfer)
        values[members], degenerate[members] = part.values, part.degenerate
    return Prepared(values, degenerate)


def _read_maps(maps: object, cases: Cases) -> Tensor:
    full = tuple(cases.inputs.shape)
    shapes = [full, (full[0], *full[-2:])] if len(full) == 4 else [full]
    if not isinstance(maps, Tensor | np.ndarray):
        raise InvalidInput(f"Maps must be a tensor or an array, not {type(maps).__name__}.")
    if tuple(maps.shape) not in shapes:
        words = " or ".join(map(str, shapes))
        raise InvalidInput(f"Maps must have the shape {words}, not {tuple(maps.shape)}.")
    if isinstance(maps, Tensor):
        return maps
    if maps.dtype.kind not in "biuf":
        raise InvalidInput(f"Maps must be real numbers, not {maps.dtype}.")
    return torch.from_numpy(np.array(maps, dtype=np.float64))


def _read_wrong(predictions: object, cases: Cases) -> NDArray[np.bool_]:
    if predictions is None:
        return np.zeros(len(cases), dtype=np.bool_)
    labels = (
        predictions.detach().cpu().numpy() if isinstance(predictions, Tensor) else np.asarray(predictions)
    )
    if labels.shape != (len(cases),) or labels.dtype.kind not in "biuf":
        raise InvalidInput(
            f"Predictions must be one label for each of the {len(cases)} cases, "
            f"not {labels.dtype} of shape {labels.shape}."
        )
    return np.asarray(labels != cases.targets.cpu().numpy(), dtype=np.bool_)
