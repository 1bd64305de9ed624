"""The methods of the paper: their order, their short names, and how a study writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

SHAP = "deep-shap"

SHORT = {
    "gradient@published": "G",
    "smoothgrad@published": "SG",
    "deconvnet": "DCN",
    "guided-backprop": "GBP",
    "deep-taylor@published": "DT",
    "input-x-gradient": "I*G",
    "integrated-gradients@published": "IG",
    "lrp-z": "LRP-z",
    "lrp-epsilon@published": "LRP-ε",
    "lrp-a@published": "LRP-A",
    "lrp-b@published": "LRP-B",
    "deeplift-reveal-cancel": "DL-RC",
    "deeplift-rescale": "DL-R",
    "grad-cam@published": "G-CAM",
    SHAP: "D-SHAP",
    "random": "Random",
    "edge@published": "Edge",
}
"""Label in tables -> short name in figures, in the order of the paper."""

SEVENTEEN = tuple(SHORT)
FIFTEEN = SEVENTEEN[:15]
TEN = tuple(SEVENTEEN[i] for i in (0, 1, 2, 3, 4, 6, 8, 11, 13, 14))
"""The methods of Figure 2."""

NINE = tuple(name for name in TEN if not name.startswith("deeplift"))
"""Those of Figure 10: the code behind the paper has no DeepLIFT for networks with max-pooling."""

SIMPLE = ("textbox/simple-fr", "textbox/simple-nr")
COMPLEX = ("textbox/complex-fr", *(f"textbox/complex-cr{i}" for i in (1, 2, 3, 4)))
TASKS = (*SIMPLE, *COMPLEX)
FAMILIES = {"simple": SIMPLE, "complex": COMPLEX}


def entries(references: int) -> list[str | dict[str, Any]]:
    """The seventeen as a study writes them, with so many training pictures behind Deep SHAP."""
    shap = {"name": "deep-shap@published", "label": SHAP, "references": f"task:{references}"}
    return [shap if label == SHAP else label for label in SEVENTEEN]


def sound_entries(references: int) -> list[str | dict[str, Any]]:
    """The same methods as they should be computed, for the sound protocol."""
    own: dict[str, dict[str, Any]] = {
        "lrp-epsilon": {"epsilon": 1.0},
        "lrp-a": {"epsilon": 1.0},
        "lrp-b": {"epsilon": 1.0},
        SHAP: {"references": f"task:{references}"},
    }
    names = [label.partition("@")[0] for label in FIFTEEN]
    return [{"name": name, "label": name, **own[name]} if name in own else name for name in names]


def short(label: str) -> str:
    """The paper's name of a method, with or without ``@published``; others keep their own."""
    return SHORT.get(label, SHORT.get(f"{label}@published", label))


def known(wanted: Iterable[str], present: Iterable[str]) -> tuple[str, ...]:
    """Those of the `wanted` methods that are there, in the order of the paper."""
    there = set(present)
    return tuple(label for label in wanted if label in there)
