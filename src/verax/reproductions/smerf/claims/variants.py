"""Claims about other architectures, robust networks and other backgrounds (Sections 4.3 and 4.4)."""

from __future__ import annotations

import numpy as np

from verax.networks.certificates import wilson
from verax.reproductions.claims import FAILS, HOLDS, Finding, NotTestable, between, count, threshold
from verax.reproductions.smerf import paper
from verax.reproductions.smerf.claims.agreement import spearman
from verax.reproductions.smerf.claims.base import Chapter
from verax.reproductions.smerf.claims.complicated import drop
from verax.reproductions.smerf.claims.data import certificates
from verax.reproductions.smerf.measurements import Measurements
from verax.studies.leaderboards import SUCCESS

networks = Chapter("Architecture and robustness")
backgrounds = Chapter("Backgrounds")
TEN, FIFTEEN, ALL = paper.methods("ten"), paper.methods("fifteen"), paper.methods()
NINE = tuple(name for name in TEN if name != "DL-RC")
"""The methods of Figure 10: DeepLIFT did not support pooling."""


@networks.claim("vgg16-mean", "Section 4.3, Figure 10", "On VGG16 too, average IOU drops for all methods.")
def vgg16_mean(measured: Measurements) -> Finding:
    return drop(measured, "piou", "mean", NINE, "vgg16")


@networks.claim(
    "vgg16-worst", "Section 4.3, Figure 10", "On VGG16 too, the worst bucket drops for all methods."
)
def vgg16_worst(measured: Measurements) -> Finding:
    return drop(measured, "piou", "worst bucket", NINE, "vgg16")


@networks.claim(
    "alexnet-mean", "Section 4.3, Figure 10", "On AlexNet too, average IOU drops for all methods."
)
def alexnet_mean(measured: Measurements) -> Finding:
    return drop(measured, "piou", "mean", NINE, "alexnet")


@networks.claim(
    "alexnet-worst", "Section 4.3, Figure 10", "On AlexNet too, the worst bucket drops for all methods."
)
def alexnet_worst(measured: Measurements) -> Finding:
    return drop(measured, "piou", "worst bucket", NINE, "alexnet")


@networks.claim("vgg16-pafl", "Appendix B.6, Figure 27", "On VGG16 PAFL drops as well.")
def vgg16_pafl(measured: Measurements) -> Finding:
    return drop(measured, "pafl", "mean", NINE, "vgg16")


@networks.claim("alexnet-pafl", "Appendix B.6, Figure 27", "On AlexNet PAFL drops as well.")
def alexnet_pafl(measured: Measurements) -> Finding:
    return drop(measured, "pafl", "mean", NINE, "alexnet")


def _same_order(measured: Measurements, network: str) -> Finding:
    pair = [measured.draws("piou", NINE, family="complex", network=n).mean(1) for n in ("plain", network)]
    return threshold(spearman(*pair), "above", 0.5, f"Rank correlation of mean PIOU on the CNN and {network}")


@networks.claim("vgg16-trends", "Section 4.3", "VGG16 shows similar trends over methods as the CNN.")
def vgg16_trends(measured: Measurements) -> Finding:
    return _same_order(measured, "vgg16")


@networks.claim("alexnet-trends", "Section 4.3", "AlexNet shows similar trends over methods as the CNN.")
def alexnet_trends(measured: Measurements) -> Finding:
    return _same_order(measured, "alexnet")


@networks.claim(
    "d-shap-deep",
    "Figures 10 and 27",
    "On VGG16 and AlexNet D-SHAP is among the worst, at the level of Random.",
)
def d_shap(measured: Measurements) -> Finding:
    gaps = []
    for network in ("vgg16", "alexnet"):
        draws = measured.draws("pafl", ["D-SHAP", "Random"], family="simple", network=network).mean(1)
        gaps.append(draws[:, 0] - draws[:, 1])
    more = f"D-SHAP minus Random: VGG16 {between(gaps[0])}, AlexNet {between(gaps[1])}. "
    more += "The published numbers are the same for both networks and equal Random's."
    flags = np.stack(gaps, 1) < 0.02
    return count(flags, ("vgg16", "alexnet"), "PAFL at most 0.02 above Random in simple settings", more=more)


def _robust_gain(measured: Measurements, metric: str) -> Finding:
    names = ("G", "SG")
    plain, robust = (
        measured.draws(metric, names, family="simple", network=n).mean(1) for n in ("plain", "robust")
    )
    words = [f"{n} {between(plain[:, i])} to {between(robust[:, i])}" for i, n in enumerate(names)]
    more = ", ".join(words) + "."
    return count(robust > plain, names, f"Mean {metric.upper()} higher on robust networks", more=more)


@networks.claim(
    "robust-gain-iou", "Section 4.3, Figure 11", "In simple settings G and SG gain from robust training."
)
def robust_gain_iou(measured: Measurements) -> Finding:
    return _robust_gain(measured, "piou")


@networks.claim("robust-gain-pafl", "Appendix B.7, Figure 28", "They gain in PAFL too.")
def robust_gain_pafl(measured: Measurements) -> Finding:
    return _robust_gain(measured, "pafl")


@networks.claim(
    "robust-drop-iou", "Section 4.3, Figure 11", "On robust networks IOU still drops for all methods."
)
def robust_drop_iou(measured: Measurements) -> Finding:
    return drop(measured, "piou", "mean", TEN, "robust")


@networks.claim("robust-drop-pafl", "Appendix B.7, Figure 28", "On robust networks PAFL still drops sharply.")
def robust_drop_pafl(measured: Measurements) -> Finding:
    return drop(measured, "pafl", "mean", TEN, "robust")


# -- backgrounds -------------------------------------------------------------------------------------------


def _lower(measured: Measurements, background: str, families: tuple[str, ...]) -> Finding:
    flags, words = [], []
    for family in families:
        pair = [
            measured.draws("pafl", FIFTEEN, family=family, background=b).min(1) for b in ("black", background)
        ]
        middle = [between(np.median(draws, axis=1)) for draws in pair]
        words.append(f"{family} {middle[0]} on black, {middle[1]} on {background}")
        flags.append(pair[1] < pair[0])
    more = f"Median over methods: {'; '.join(words)}."
    lower = np.asarray(np.logical_and.reduce(flags))
    where = " in both families" if len(families) > 1 else ""
    return count(lower, FIFTEEN, f"Worst bucket lower on {background}{where}", more=more)


@backgrounds.claim(
    "real-lower", "Section 4.4, Figure 12", "In simple settings photographs lower the worst PAFL."
)
def real_lower(measured: Measurements) -> Finding:
    return _lower(measured, "real", ("simple",))


@backgrounds.claim(
    "real-lower-complex",
    "Section 4.4, Figure 12",
    "So they do in complex settings (the paper compares three settings on black with five on photographs).",
)
def real_lower_complex(measured: Measurements) -> Finding:
    return _lower(measured, "real", ("complex",))


@backgrounds.claim(
    "real-drop", "Section 4.4, Figure 12", "On photographs too, the worst PAFL drops to complex ones."
)
def real_drop(measured: Measurements) -> Finding:
    return drop(measured, "pafl", "worst bucket", FIFTEEN, background="real")


@backgrounds.claim(
    "real-far",
    "Section 4.4, Figure 12",
    "On photographs all methods are far from 0.5 even in simple settings.",
)
def real_far(measured: Measurements) -> Finding:
    least = measured.draws("pafl", FIFTEEN, family="simple", background="real").min(1)
    return count(least < SUCCESS - 0.1, FIFTEEN, "PAFL of the worst bucket below 0.4")


@backgrounds.claim("real-bound", "Section 5", "Scores on black are an upper bound for those on photographs.")
def upper_bound(measured: Measurements) -> Finding:
    flags = []
    for family in ("simple", "complex"):
        black, real = (
            measured.draws("pafl", FIFTEEN, family=family, background=b).mean(1) for b in ("black", "real")
        )
        flags.append(black > real)
    return count(flags[0] & flags[1], FIFTEEN, "Mean PAFL higher on black in both families")


@backgrounds.claim(
    "noise-lower",
    "Appendix B.8, Figure 30b",
    "Noise lowers the worst PAFL throughout, in simple settings and in complex ones.",
)
def noise_lower(measured: Measurements) -> Finding:
    return _lower(measured, "noise", ("simple", "complex"))


@backgrounds.claim("noise-drop", "Appendix B.8", "On noise PAFL drops from simple to complex settings.")
def noise_drop(measured: Measurements) -> Finding:
    return drop(measured, "pafl", "mean", FIFTEEN, background="noise")


@backgrounds.claim(
    "noise-safl", "Appendix B.8", "On noise SAFL is higher in complex settings for most methods."
)
def noise_safl(measured: Measurements) -> Finding:
    simple, complicated = (
        measured.draws("safl", FIFTEEN, family=f, background="noise").mean(1) for f in ("simple", "complex")
    )
    return count(complicated > simple, FIFTEEN, "Mean SAFL higher", least=8)


@backgrounds.claim("real-worse-than-noise", "Appendix B.9", "Photographs lower PAFL more than noise does.")
def worse_than_noise(measured: Measurements) -> Finding:
    means = [
        measured.draws("pafl", FIFTEEN, family="simple", background=b).min(1).mean(1)
        for b in ("noise", "real")
    ]
    more = f"Noise {between(means[0])}, photographs {between(means[1])} (worst bucket, mean over methods)."
    return threshold(means[0] - means[1], "above", 0.0, "Worst PAFL on noise minus that on photographs", more)


@backgrounds.claim(
    "real-accuracy", "Appendix B.9", "On photographs all settings reach an accuracy of 0.93 or more."
)
def real_accuracy(measured: Measurements) -> Finding:
    # the paper gives the accuracy over all buckets of a setting, not that of its worst bucket
    rows = certificates(measured, paper.settings(), "real")
    if any("mean_accuracy" not in row for row in rows):
        raise NotTestable("The certificates of this run do not say how accurate networks are on the whole.")
    worst = min(rows, key=lambda row: float(row["mean_accuracy"]))
    value, limit = float(worst["mean_accuracy"]), min(paper.accuracy("real").values())
    low, high = map(float, wilson(value * worst["samples"], worst["samples"]))
    task = str(worst["task"]).rpartition("/")[2]
    return Finding(
        HOLDS if low >= limit else FAILS,
        f"Lowest accuracy of a setting: {value:.3f} [{low:.3f}, {high:.3f}] ({task}).",
        f"accuracy over all buckets of a setting at least {limit:g}",
        value,
        low,
        high,
        low < limit <= high,
    )
