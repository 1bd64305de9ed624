"""Claims about smiles and hair colour."""

from __future__ import annotations

from verax.reproductions.alignment.base import Chapter, More, apart, beyond_chance, same_verdict
from verax.reproductions.alignment.celeba import METHOD
from verax.reproductions.alignment.measuring import RIGHT, Evidence
from verax.reproductions.claims import Finding, Floats, NotTestable, between, exact, threshold
from verax.tasks.alignment.bias import GROUPS

chapter = Chapter("Smile or hair colour")
claim = chapter.claim


def _draws(evidence: Evidence, score: str, network: str, part: str, test: str = "unbiased") -> Floats:
    return evidence.draws(score, network=network, test=test, part=part, method=METHOD)


@claim(
    "celeba-hidden",
    "Table 2",
    "On the biased test both networks look alike: the biased one is at least as accurate.",
)
def hidden(evidence: Evidence) -> Finding:
    ours, other = (_draws(evidence, RIGHT, name, "mouth", "biased") for name in ("biased", "unbiased"))
    what = "accuracy of the biased minus the unbiased network"
    return apart(ours, other, "above", -0.05, what, "the paper has 0.936 and 0.918.")


@claim("celeba-groups", "Table 2", "In groups that the bias contradicts the biased network fails.")
def groups(evidence: Evidence) -> Finding:
    parts = {
        g: evidence.draws(RIGHT, network="biased", test="unbiased", part="mouth", method=METHOD, group=g)
        for g in GROUPS
    }
    usual = (parts["black-smile"] + parts["blond-plain"]) / 2
    contrary = (parts["black-plain"] + parts["blond-smile"]) / 2
    words = ", ".join(f"{name} {values[0]:.3f}" for name, values in parts.items())
    return threshold(
        usual - contrary,
        "above",
        0.2,
        "accuracy lost in the contrary groups",
        f"{words}. The paper: 0.997, 0.150, 0.470, 0.998.",
    )


@claim("celeba-mouth", "Table 2", "The unbiased network looks at the mouth more than the biased one.")
def mouth(evidence: Evidence) -> Finding:
    ours, other = (_draws(evidence, "iou", name, "mouth", "biased") for name in ("unbiased", "biased"))
    what = "mouth IoU, unbiased minus biased"
    return apart(ours, other, "above", 0.0, what, "the paper has 0.175 and 0.005.")


@claim(
    "celeba-mouth-chance",
    "Table 2 and chance",
    "The unbiased network meets the mouth more often than by chance.",
)
def mouth_chance(evidence: Evidence) -> Finding:
    value, chance = (_draws(evidence, f"pointing-game{end}", "unbiased", "mouth") for end in ("", "/random"))
    return beyond_chance(value, chance, "above", 0.0, "mouth PG above chance")


@claim("celeba-hair", "Section 4.2", "The biased network looks at the hair.")
def hair(evidence: Evidence) -> Finding:
    value, chance = (_draws(evidence, f"pointing-game{end}", "biased", "hair") for end in ("", "/random"))
    iou = between(_draws(evidence, "iou", "biased", "hair"), 3)
    return beyond_chance(value, chance, "above", 0.0, "hair PG above chance", f"IoU {iou}.")


@claim("celeba-hair-more", "Section 4.2", "It looks at the hair more than the unbiased one.")
def hair_more(evidence: Evidence) -> Finding:
    ours, other = (_draws(evidence, "pointing-game", name, "hair") for name in ("biased", "unbiased"))
    return apart(ours, other, "above", 0.0, "hair PG, biased minus unbiased")


@claim(
    "celeba-retraining",
    "Table 2",
    "Mouth IoU is a property of the design: networks trained again agree within 0.05.",
)
def retraining(evidence: Evidence) -> Finding:
    """The authors' own runs have 0.11 to 0.48 at equal accuracy."""
    rows = evidence.where(network="unbiased", test="unbiased", part="mouth", method=METHOD)
    means = rows.groupby("seed")["iou"].mean().to_numpy()
    values = ", ".join(f"{value:.3f}" for value in means)
    if len(means) < 2:
        raise NotTestable("Only one network was trained.")
    width = float(means.max() - means.min())
    return exact(
        width < 0.05,
        f"Mouth IoU of {len(means)} unbiased networks: {values}. The authors' runs: 0.11 to 0.48.",
        "the range is below 0.05",
        width,
    )


@claim(
    "celeba-verdict",
    "Beyond the paper",
    "Whatever the method: the biased network looks at the hair, the unbiased one at the mouth.",
)
def verdict(evidence: Evidence) -> Finding:
    expected = [More("biased", "hair", "mouth"), More("unbiased", "mouth", "hair")]
    return same_verdict(evidence, "unbiased", expected, "iou", "methods with this verdict")


@claim(
    "celeba-between",
    "Beyond the paper",
    "Whatever the method: the biased network looks more at the hair than the other, less at the mouth.",
)
def between_networks(evidence: Evidence) -> Finding:
    expected = [More("biased", "hair", "unbiased"), More("unbiased", "mouth", "biased")]
    return same_verdict(evidence, "unbiased", expected, "iou", "methods with this verdict")
