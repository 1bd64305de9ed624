"""The experiments, each with its question, its claims, its tables and its figures."""

from __future__ import annotations

from verax.reproductions.alignment import celeba, imagenet, mnist, regions, stamps, transfer
from verax.reproductions.alignment.base import Experiment
from verax.reproductions.alignment.claims import celeba as celeba_claims
from verax.reproductions.alignment.claims import imagenet as imagenet_claims
from verax.reproductions.alignment.claims import mnist as mnist_claims
from verax.reproductions.alignment.claims import regions as regions_claims
from verax.reproductions.alignment.claims import stamps as stamps_claims
from verax.reproductions.alignment.claims import transfer as transfer_claims
from verax.reproductions.alignment.questions import QUESTIONS

CATALOGUE: tuple[Experiment, ...] = (
    Experiment(
        "alignment-mnist",
        QUESTIONS["alignment-mnist"],
        "Two networks learn MNIST with a 5 x 5 colour box in the corner: for one the colour is random, for"
        " the other it is the label. Vanilla gradients, mean + 1 standard deviation, predicted class (section"
        " 4.1, Table 1, Figure 1).",
        mnist.gather,
        mnist_claims.chapter,
        mnist.tables,
        mnist.figures,
    ),
    Experiment(
        "alignment-stamps",
        QUESTIONS["alignment-stamps"],
        "The question of experiment 1 on photographs: a stamped word gives the label away. (Not in the"
        " paper.)",
        stamps.gather,
        stamps_claims.chapter,
        stamps.tables,
        stamps.figures,
    ),
    Experiment(
        "alignment-celeba",
        QUESTIONS["alignment-celeba"],
        "Networks learn to tell smiles from faces in which black hair goes with smiling 100 to 1, or from"
        " balanced ones. Grad-CAM, threshold 0.5, against the mouth (section 4.2, Table 2, Figure 2).",
        celeba.gather,
        celeba_claims.chapter,
        celeba.tables,
        celeba.figures,
    ),
    Experiment(
        "alignment-regions",
        QUESTIONS["alignment-regions"],
        "Three trainings of the unbiased network; Grad-CAM, threshold 0.5, against the regions of"
        " CelebAMask-HQ (section 4.3, Table 3, Figure 3). IoU favours large regions and PG those that hold"
        " others, so that lifts are reported as well.",
        regions.gather,
        regions_claims.chapter,
        regions.tables,
        regions.figures,
    ),
    Experiment(
        "alignment-transfer",
        QUESTIONS["alignment-transfer"],
        "195 networks of timm: alignment on ImageNet against accuracy on CIFAR-100 after one image for each"
        " class (section 4.4, Figure 4).",
        transfer.gather,
        transfer_claims.chapter,
        transfer.tables,
        transfer.figures,
    ),
    Experiment(
        "alignment-imagenet",
        QUESTIONS["alignment-imagenet"],
        "22 torchvision networks on ImageNet's validation images, Grad-CAM against the union of boxes (Figure"
        " A1).",
        imagenet.gather,
        imagenet_claims.chapter,
        imagenet.tables,
        imagenet.figures,
    ),
)
"""In the order of the paper."""
