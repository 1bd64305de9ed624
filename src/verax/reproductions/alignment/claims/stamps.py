"""Claims about photographs with a stamp."""

from __future__ import annotations

from verax.reproductions.alignment.base import Chapter, More, apart, beyond_chance, same_verdict
from verax.reproductions.alignment.measuring import RIGHT, Evidence
from verax.reproductions.alignment.stamps import METHOD
from verax.reproductions.claims import Finding, Floats, threshold

chapter = Chapter("Photographs with a stamp")
claim = chapter.claim


def _draws(evidence: Evidence, score: str, network: str, test: str, part: str = "stamp") -> Floats:
    return evidence.draws(score, network=network, test=test, part=part, method=METHOD)


@claim(
    "stamps-accuracy", "As section 4.1", "The network that saw stamps is right only where there are stamps."
)
def accuracy(evidence: Evidence) -> Finding:
    there, away = (_draws(evidence, RIGHT, "stamped", test) for test in ("stamped", "plain"))
    return apart(there, away, "above", 0.1, "accuracy lost without stamps")


@claim("stamps-stamp", "As section 4.1", "It looks at the stamp.")
def stamp(evidence: Evidence) -> Finding:
    value, chance = (_draws(evidence, f"pointing-game{end}", "stamped", "stamped") for end in ("", "/random"))
    return threshold(value, "above", 0.5, "stamp PG", f"Chance {chance[0]:.3f}.")


@claim("stamps-plain", "As section 4.1", "The network that saw none does not: no more than by chance.")
def plain(evidence: Evidence) -> Finding:
    value, chance = (_draws(evidence, f"pointing-game{end}", "plain", "stamped") for end in ("", "/random"))
    return beyond_chance(value, chance, "below", 0.1, "stamp PG above chance")


@claim(
    "stamps-verdict",
    "Beyond the paper",
    "Whatever the method: the stamped network looks at the stamp more than at the animal.",
)
def verdict(evidence: Evidence) -> Finding:
    expected = [More("stamped", "stamp", "animal"), More("stamped", "stamp", "plain")]
    return same_verdict(evidence, "stamped", expected, "iou", "methods with this verdict")
