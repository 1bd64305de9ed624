"""Networks from elsewhere: ``timm:NAME``, ``torchvision:NAME`` or one's own, with their own preprocessing.

A network judged on inputs that it was not made for says little, so size, crop, interpolation and
normalisation come with it, from timm's configuration or torchvision's weights, unless they are given.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from verax import registry
from verax.errors import InvalidInput, InvalidParameter, MissingExtra, UnknownName, WeightsError, suggestion
from verax.networks import fetching
from verax.tasks.alignment.geometry import FILTERS, Geometry

SOURCES = ("timm", "torchvision")
PRETRAINED, NONE = "pretrained", "none"
_ALL_RANDOM = (
    "The network has random weights (--weights none): it has learned nothing, so that where it looks says "
    "nothing about a network that was trained."
)
_LAST_RANDOM = (
    "The last layer of the network has random weights, because it has other outputs than it was published "
    "with; its predictions are those of chance until it is trained (--weights FILE)."
)
_NUMBERED = re.compile(r"n?\d+")
_NAME_THEM = "name the outputs (--classes a,b, or classes=['a', 'b'] in Python)."

_LIBRARY: Any = registry.load("torch.library:Library")("torchvision", "FRAGMENT")  # PyTorch leaves it untyped


def let_torchvision_import() -> None:
    """Declare two operators that torchvision's wheel wants to find, beside a CPU-only PyTorch."""
    if hasattr(torch.ops.torchvision, "nms") or torch.version.cuda is not None:
        return
    for name in ("nms", "qnms"):
        _LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@dataclass(frozen=True)
class Preprocessing:
    """What happens to a picture before a network sees it.

    Attributes:
        mean: subtracted from each channel of a picture in [0, 1].
        std: what the rest is divided by.
        geometry: size and crop; None takes pictures as they are.
    """

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    geometry: Geometry | None = None

    def __post_init__(self) -> None:
        for noun, values in (("mean", self.mean), ("std", self.std)):
            good = len(values) == 3 and all(math.isfinite(value) for value in values)
            if not good or (noun == "std" and min(values) <= 0):
                words = "above 0" if noun == "std" else "for red, green and blue"
                raise InvalidParameter(f"The {noun} must be three finite numbers {words}, not {values!r}.")

    def __call__(self, images: Tensor) -> Tensor:
        """Normalised pictures ``(N, 3, H, W)``."""
        mean, std = (images.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (images - mean) / std

    def with_(
        self, mean: object = None, std: object = None, geometry: Geometry | None = None
    ) -> Preprocessing:
        """The same with what is given."""
        return Preprocessing(
            self.mean if mean is None else _three(mean, "mean"),
            self.std if std is None else _three(std, "std"),
            self.geometry if geometry is None else geometry,
        )


def _three(values: object, noun: str) -> tuple[float, ...]:
    try:
        return tuple(float(value) for value in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"The {noun} must be three numbers, not {values!r}.") from error


@dataclass(frozen=True, eq=False)
class Subject:
    """A network that is judged.

    Attributes:
        name: for tables.
        model: the network.
        preprocessing: its own.
        outputs: names of its outputs, each with other spellings of it; None where nobody knows.
        weights: where they come from: "own" (of a module that was handed over), "none", or "pretrained" or
            "file" with a name.
        random: a sentence where weights were drawn and never learned.
    """

    name: str
    model: nn.Module
    preprocessing: Preprocessing
    outputs: tuple[tuple[str, ...], ...] | None = None
    weights: str = "own"
    random: str = ""


def subject(model: str | nn.Module, weights: str | Path = PRETRAINED, outputs: int | None = None) -> Subject:
    """A network by its name, or one's own.

    Args:
        model: ``timm:NAME``, ``torchvision:NAME``, ``efficientnet-lite0`` to ``2``, or any module that gives
            ``(samples, outputs)``.
        weights: of a named network: "pretrained", "none" (as they are drawn) or a file (safetensors, or a
            state dictionary that PyTorch reads without running anything).
        outputs: how many a named network has, where that is not what it was published with.
    """
    if isinstance(model, nn.Module):
        config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
        own = from_timm(config) if isinstance(config, Mapping) else Preprocessing()
        return Subject(type(model).__name__, model, own)
    if str(model).startswith("efficientnet-lite"):
        return _lite(str(model), str(weights), outputs)
    source, colon, name = str(model).partition(":")
    if not colon or source not in SOURCES or not name:
        raise UnknownName(
            f"A network is called timm:NAME, torchvision:NAME or efficientnet-lite0, not {str(model)!r}; "
            "your own is handed to verax.align as a module."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # weights that are drawn are drawn alike every time
        made = (_timm if source == "timm" else _torchvision)(name, str(weights) == PRETRAINED, outputs)
    if str(weights) == NONE:
        made = replace(made, weights=NONE, random=_ALL_RANDOM)
    elif str(weights) != PRETRAINED:
        load_weights(made.model, Path(weights))
        made = replace(made, weights=f"file {weights}", random="")
    return replace(made, name=str(model))


def _lite(name: str, weights: str, outputs: int | None) -> Subject:
    if outputs is not None or weights == NONE:
        raise InvalidParameter(f"{name!r} has its own weights or those of a file, and 1000 outputs.")
    made = cast("Subject", registry.load("verax.networks.lites:lite")(name))
    if weights == PRETRAINED:
        return replace(made, weights=PRETRAINED)
    load_weights(made.model, Path(weights))
    return replace(made, weights=f"file {weights}")


def _package(name: str) -> Any:
    try:
        if importlib.util.find_spec("torchvision") is not None:
            let_torchvision_import()
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(f"{name!r} is not installed; install it with: pip install {name}") from error


def _timm(name: str, pretrained: bool, outputs: int | None) -> Subject:
    timm = _package("timm")
    if not timm.is_model(name):
        raise UnknownName(f"timm has no network {name!r}{suggestion(name, timm.list_models())}")
    size = {} if outputs is None else {"num_classes": outputs}
    remote = fetching.of_timm(timm.models.get_pretrained_cfg(name)) if pretrained else None
    with fetching.watched(f"timm:{name}", remote):
        model = timm.create_model(name, pretrained=pretrained, **size)
    names = None
    if outputs is None and getattr(model, "num_classes", 0) == 1000:
        info = timm.data.ImageNetInfo()
        names = tuple((synset, info.label_name_to_description(synset)) for synset in info.label_names())
    tag = model.pretrained_cfg.get("tag") or ""
    new = outputs is not None and outputs != model.pretrained_cfg.get("num_classes")
    return Subject(
        name,
        model,
        from_timm(model.pretrained_cfg),
        names,
        f"{PRETRAINED} {tag}".strip(),
        _LAST_RANDOM if new else "",
    )


def from_timm(config: Mapping[str, Any]) -> Preprocessing:
    """Preprocessing from timm's configuration of a network."""
    try:
        height, width = (int(side) for side in config["input_size"][1:])
        crop = float(config.get("crop_pct") or 0.875)
        filter_ = str(config.get("interpolation", "bilinear"))
        mean, std = tuple(config["mean"]), tuple(config["std"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput("The network's own configuration is not one of timm's.") from error
    filter_ = filter_ if filter_ in FILTERS else "bilinear"
    if height != width or (config.get("crop_mode") == "squash" and crop == 1):
        return Preprocessing(mean, std, Geometry.stretch(height, width, filter_))
    return Preprocessing(mean, std, Geometry.crop(math.floor(height / crop), height, filter_))


def _torchvision(name: str, pretrained: bool, outputs: int | None) -> Subject:
    _package("torchvision")
    models = importlib.import_module("torchvision.models")
    name, _, version = name.partition("@")
    if name not in models.list_models(module=models):
        known = models.list_models(module=models)
        raise UnknownName(f"torchvision has no network {name!r}{suggestion(name, known)}")
    kinds = models.get_model_weights(name)
    if version and version not in kinds.__members__:
        raise UnknownName(f"{name!r} has no weights {version!r}{suggestion(version, kinds.__members__)}")
    weights = kinds[version] if version else kinds.DEFAULT
    size = {} if outputs is None else {"num_classes": outputs}
    remote = fetching.of_url(weights.url) if pretrained else None
    with fetching.watched(f"torchvision:{name}", remote):
        model = models.get_model(name, weights=weights if pretrained else None, **size)
    own = weights.transforms()
    filter_ = getattr(own.interpolation, "value", "bilinear")
    geometry = Geometry.crop(
        own.resize_size[0], own.crop_size[0], filter_ if filter_ in FILTERS else "bilinear"
    )
    names = tuple((str(word),) for word in weights.meta["categories"]) if outputs is None else None
    prepared = Preprocessing(tuple(own.mean), tuple(own.std), geometry)
    return Subject(name, model, prepared, names, f"{PRETRAINED} {weights.name}")


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill a network from a file; nothing in the file is run."""
    path = path.expanduser()
    if not path.is_file():
        raise WeightsError(f"There is no file {str(path)!r} with weights.")
    try:
        if path.suffix == ".safetensors":
            state: Any = registry.load("safetensors.torch:load_file")(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, SafetensorError, KeyError) as error:
        raise WeightsError(f"The file {str(path)!r} holds no weights that can be read.") from error
    except Exception as error:  # PyTorch raises whatever a foreign pickle made it raise
        raise WeightsError(f"The file {str(path)!r} is no plain state dictionary.") from error
    state = state.get("state_dict", state) if isinstance(state, Mapping) else state
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise WeightsError(f"The file {str(path)!r} is no plain state dictionary.")
    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n")[1:2]).strip() or str(error).partition("\n")[0]
        raise WeightsError(f"The weights in {str(path)!r} do not fit: {reason[:200]}") from error


def _folded(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _places(classes: Sequence[str], outputs: Sequence[Sequence[str]]) -> list[int]:
    """The output with each name, the closest spelling first; -1 where none has it, or several have.

    ImageNet has two cranes, and Cardigan is a dog, while a cardigan is worn.
    """
    levels: list[dict[str, set[int]]] = [{}, {}, {}, {}]
    for number, words in enumerate(outputs):
        for whole in words:
            for place, word in ((0, whole), *((1, part) for part in whole.split(", "))):
                levels[place].setdefault(word, set()).add(number)
                levels[2 + place].setdefault(_folded(word), set()).add(number)
    found = []
    for name in classes:
        asked = (name, name, _folded(name), _folded(name))
        hits = [table[word] for table, word in zip(levels, asked, strict=True) if word in table]
        found.append(next(iter(hits[0])) if hits and len(hits[0]) == 1 else -1)
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")


def numbering(
    classes: Sequence[str] | None,
    outputs: Sequence[Sequence[str]] | None,
    count: int,
    *,
    given: bool = False,
) -> tuple[list[int] | None, str]:
    """Which output each class of a data set is, and a sentence where that is not as one would expect.

    Args:
        classes: of the data set, in the order of its labels.
        outputs: names of the network's outputs.
        count: how many outputs the network has; one output is read as two classes.
        given: whether somebody named the outputs for this data set, so that names without a match are a
            mistake.

    Returns:
        The output of each class (-1: none), or None where labels are numbers of outputs as they are.
    """
    if classes is None:
        return None, ""
    unknown = "so that nobody knows which predictions are right"
    if outputs is not None:
        found = _places(classes, outputs)
        missing = [name for name, number in zip(classes, found, strict=True) if number < 0]
        called = _some([words[-1] for words in outputs])
        if not missing:
            return found, ""
        if len(missing) < len(classes):
            return found, (
                f"{len(missing)} of {len(classes)} classes of the data set are not one output of the "
                f"network, such as {missing[0]!r} (outputs: {called}); nobody knows if it is right there."
            )
        if given:
            raise InvalidParameter(
                f"No class of the data set ({_some(classes)}) is among the names that were given to the "
                f"network's outputs ({called})."
            )
        # ImageNet's classes are numbered in the order of the outputs, whatever these are called
        if not all(_NUMBERED.fullmatch(name) for name in classes):
            return [-1] * len(classes), (
                f"No class of the data set ({_some(classes)}) is an output of the network ({called}), "
                f"{unknown}; {_NAME_THEM}"
            )
    if len(classes) == max(count, 2):
        silent = outputs is not None or all(_NUMBERED.fullmatch(name) for name in classes)
        return None, "" if silent else (
            f"The network's outputs have no names; they are taken in the order {_some(classes)}."
        )
    return [-1] * len(classes), (
        f"The data set has {len(classes)} classes and the network {count} outputs, {unknown}; {_NAME_THEM}"
    )
