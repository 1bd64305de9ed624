"""Stored networks: shipped with the package or trained by the user, always safetensors, always checked.

A stored network is a pair of files: ``NAME.safetensors`` with its weights (in half precision; in single for
regression, where weights shrink with the number of cells) and ``NAME.json``, its record: SHA-256 of the
weights, the command that made it, seed, versions and certificate, sealed by a SHA-256 of its own. The
certificate in the record is information, not proof: `verax certify` computes it anew. What a user trained and
what does not fit its checksums counts as not stored, so that it is trained again.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from verax.errors import InvalidParameter, MissingFile, OutputError, WeightsError
from verax.files import store_folder, write_atomically
from verax.networks import NETWORKS, VECTORS, names
from verax.networks.names import Name
from verax.networks.recipes import OWN
from verax.networks.records import SEAL, Damage, damage, record, seal
from verax.networks.regression import Fitted, check_network
from verax.networks.starts import bare, initialise
from verax.networks.trained import Start, Trained
from verax.networks.wired import WIRED, wire
from verax.tasks import is_builtin
from verax.tasks.base import Learnable, Trainable, is_regression
from verax.tasks.textbox.task import TextBox
from verax.version import __version__

SHIPPED = Path(__file__).parent / "shipped"


def stem(task: Learnable, name: Name, seed: int) -> str:
    """File name of a stored network; says all that its weights depend on (without a recipe: `fast`)."""
    # options behind a name say what is asked of a network, or are hashed below
    own = is_regression(task) or is_builtin(task.name)
    plain = task.name.partition("?")[0] if own else task.name
    safe = re.sub(r"[^A-Za-z0-9.-]+", "-", plain).strip("-.")
    parts = [safe, str(name.on(task)), f"seed{seed}"]
    if is_regression(task):
        text = json.dumps(task.curriculum(), sort_keys=True, default=repr)
        return "_".join([*parts, hashlib.sha256(text.encode()).hexdigest()[:12]])
    if task.renderer.name != "sound":
        parts.append(task.renderer.name)
    if task.background.fingerprint != "black":
        parts.append(hashlib.sha256(task.background.fingerprint.encode()).hexdigest()[:8])
    return "_".join(parts)


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over the names, shapes and values of all weights and buffers."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        value = tensor.detach().cpu().contiguous()
        digest.update(f"{name}:{value.dtype}:{tuple(value.shape)}".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest()


def command(trained: Trained | Fitted) -> str:
    """The command that trains such a network again, as far as the command line can say it."""
    words = _how(trained.task, str(trained.name), trained.seed, repr(trained.settings))
    if isinstance(trained, Fitted) or not words.startswith("verax train"):
        return words
    certified = bool(trained.tries) and trained.tries[-1].ended == "certified"
    words += "" if certified or trained.settings.repeat else " --no-early-stop"
    return words + _options(trained.task)


def _how(task: Learnable, name: str, seed: int, settings: str = "...") -> str:
    """How to train a network: by a command, or in Python where no command can name task or recipe."""
    words = getattr(task, "words", ())  # of tasks whose name does not say where their data are
    found = names.parse(name)
    if found.recipe == OWN:
        return f"verax.train(task, {found.architecture!r}, seed={seed}, recipe={settings}).save()"
    if words is None or not is_builtin(task.name):
        return f"verax.train(task, {name!r}, seed={seed}).save()"
    return f"verax train {shlex.join(words or (task.name,))} --network {name} --seed {seed}"


def _options(task: Learnable) -> str:
    """The options of a command that name the renderer and the background of a task."""
    if is_regression(task):
        return ""
    words = "" if task.renderer.name == "sound" else f" --renderer {task.renderer.name}"
    return words + ("" if task.background.spec == "black" else f" --background {task.background.spec}")


def _history(trained: Trained | Fitted) -> dict[str, Any]:
    """How a network came about, for its record."""
    if isinstance(trained, Fitted):
        settings = {} if trained.settings is None else asdict(trained.settings)
        return {
            "curriculum": dict(trained.task.curriculum()),
            "recipe": {"name": trained.recipe, **settings},
            "epochs": trained.epochs,
        }
    return {
        "renderer": trained.task.renderer.name,
        "recipe": {"name": trained.recipe, **asdict(trained.settings)},
        "start": trained.start,
        "epochs": trained.epochs,
        "tries": [asdict(attempt) for attempt in trained.tries],
        "robust_accuracy": trained.robust,
    }


class Packed(NamedTuple):
    """A trained network as it is stored, in memory: it can travel.

    Attributes:
        stem: names its two files.
        weights: a safetensors file.
        record: a JSON text.
    """

    stem: str
    weights: bytes
    record: bytes


def pack(trained: Trained | Fitted) -> Packed:
    """A trained network with its record as bytes."""
    task: Learnable = trained.task
    state = {name: tensor.detach().cpu() for name, tensor in trained.model.state_dict().items()}
    # counters of batch normalisation are whole numbers, and stay so
    if isinstance(trained, Trained):
        state = {name: t.half() if t.is_floating_point() else t for name, t in state.items()}
    data = save_tensors({name: tensor.contiguous() for name, tensor in state.items()})
    record: dict[str, Any] = {
        "task": task.name,
        "network": trained.network,
        "classes": task.classes,
        "seed": trained.seed,
        "reasoning": str(task.reasoning),
        **_history(trained),
        "command": command(trained),
        "versions": {"verax": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "sha256": hashlib.sha256(data).hexdigest(),
        "certificate": trained.certificate.summary() if trained.certificate else None,
    }
    text = json.dumps({**record, SEAL: seal(record)}, indent=2) + "\n"
    return Packed(stem(task, trained.name, trained.seed), data, text.encode())


def write(packed: Packed, folder: Path) -> Path:
    """Write a packed network to a folder; gives the path of the weights."""
    path = folder / f"{packed.stem}.safetensors"
    for place in (path, path.with_suffix(".json")):
        if place.is_dir():
            raise OutputError(f"There is a folder in the place of the file {str(place)!r}; remove it.")
    # without its record a network is not found: killed between the two, training starts again
    path.with_suffix(".json").unlink(missing_ok=True)
    write_atomically(path, packed.weights)
    write_atomically(path.with_suffix(".json"), packed.record)
    return path


def save(trained: Trained | Fitted, folder: Path | None = None) -> Path:
    """Store a trained network with its record; gives the path of the weights."""
    return write(pack(trained), folder if folder is not None else store_folder() / "networks")


def read_tensors(path: Path, expected: str | None = None) -> dict[str, Tensor]:
    """Read a safetensors file, checking its SHA-256 when one is expected."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MissingFile(f"The file {str(path)!r} cannot be read: {error.strerror}.") from error
    return _tensors(data, path.name, expected)


def _tensors(data: bytes, name: str, expected: str | None) -> dict[str, Tensor]:
    if expected is not None and hashlib.sha256(data).hexdigest() != expected:
        raise WeightsError(f"The file {name!r} is damaged or was replaced: its SHA-256 is not the known one.")
    try:
        return load_tensors(data)
    except SafetensorError as error:
        raise WeightsError(f"{name!r} is not a safetensors file.") from error


def load(path: Path, network: str, classes: int, *, check: bool = True) -> nn.Module:
    """Rebuild a stored network in float32 and eval mode; the SHA-256 in its record must fit.

    Args:
        path: of the weights.
        network: the architecture, with or without a recipe.
        classes: how many outputs it has.
        check: compare the SHA-256 with the record.
    """
    tensors = read_tensors(path, record(path)["sha256"] if check else None)
    return _rebuilt(tensors, path.name, network, classes)


def decode(data: bytes, network: str, classes: int, sha256: str) -> nn.Module:
    """The same from the content of a file of weights, which came from elsewhere."""
    return _rebuilt(_tensors(data, network, sha256), network, network, classes)


def _rebuilt(tensors: dict[str, Tensor], name: str, network: str, classes: int) -> nn.Module:
    architecture = names.parse(network).architecture
    features = None
    if architecture in VECTORS:
        first = tensors.get("0.weight")
        features = (
            first.shape[1] if first is not None and first.ndim == 2 else 1
        )  # 1: does not fit, and is refused
    ours = NETWORKS.builtin(architecture)  # others may compute things that are not stored
    if ours:
        model = bare(architecture, classes, features=features)
    else:
        model = initialise(architecture, classes, seed=0, features=features)
    kinds = {k: t.dtype for k, t in model.state_dict().items()}
    try:
        for key, tensor in tensors.items():
            if key in kinds and tensor.is_floating_point() != kinds[key].is_floating_point:
                raise RuntimeError(f"{key} has numbers of another kind")
        state = {k: t.to(kinds.get(k, t.dtype), copy=True) for k, t in tensors.items()}
        model.load_state_dict(state, assign=ours)
    except RuntimeError as error:
        raise WeightsError(f"The weights {name!r} do not fit the network {network!r}.") from error
    # convolutions run up to twice as fast on CPUs when their weights are laid out channels-last
    return model.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload, no-any-return]


def check_fit(task: Learnable, path: Path) -> None:
    """Refuse a network that was trained for another reasoning under the same name."""
    known = record(path)
    if known.get("reasoning", str(task.reasoning)) != str(task.reasoning):
        raise WeightsError(
            f"The network stored for {task.name} was trained for another reasoning "
            f"({known['reasoning']}); train a new one or give the task another name."
        )


def _stored(task: Learnable, network: str, seed: int, store: Path | None) -> Path:
    """Where a user's network is, or would be."""
    folder = (store or store_folder()) / "networks"
    return folder / f"{stem(task, names.parse(network), seed)}.safetensors"


def damaged(task: Learnable, network: str, seed: int, store: Path | None = None) -> Damage | None:
    """A user's network that cannot be used."""
    path = _stored(task, network, seed, store)
    reason = damage(path)
    return None if reason is None else Damage(path, reason)


def find(task: Learnable, network: str, seed: int, store: Path | None = None) -> Path | None:
    """Where the weights of a network are: trained by the user and not damaged, or shipped."""
    return _lies(task, network, seed, ((store or store_folder()) / "networks", SHIPPED))


def _lies(task: Learnable, network: str, seed: int, folders: Iterable[Path]) -> Path | None:
    name = stem(task, names.parse(network), seed)
    for folder in folders:
        path = folder / f"{name}.safetensors"
        there = path.is_file() and path.with_suffix(".json").is_file()
        if there and (folder == SHIPPED or damage(path) is None):
            return path
    return None


def first(
    task: Learnable, known: Sequence[str], seed: int, folder: Path | None = None
) -> tuple[str, Path] | None:
    """The first of some networks that is stored anywhere, and where its weights are.

    Args:
        task: what they were trained on.
        known: their names, best first.
        seed: the training seed.
        folder: of weights; looked into before the user's store and what is shipped.
    """
    folders = [*([] if folder is None else [folder]), store_folder() / "networks", SHIPPED]
    for name in known:
        path = _lies(task, name, seed, folders)
        if path is not None:
            return name, path
    return None


def start(task: Learnable, known: Sequence[str], seed: int, folder: Path | None = None) -> Start | None:
    """The same with its weights, for a training that starts from them."""
    found = first(task, known, seed, folder)
    if found is None:
        return None
    name, path = found
    check_fit(task, path)
    return Start(name, load(path, name, task.classes))


def require(task: Learnable, name: str, seed: int, store: Path | None = None) -> Path:
    """Where the weights of a network are, or one sentence that says how to get them."""
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InvalidParameter(f"A seed is a whole number from 0, not {seed!r}.")
    if is_regression(task):
        check_network(names.parse(name).architecture, task)
    path = find(task, name, seed, store)
    if path is None:
        kind = ""
        if isinstance(task, Trainable) and _options(task):
            kind = f" with renderer {task.renderer.name!r} and background {task.background.spec!r}"
            kind = f"{kind} (shipped networks know 'sound' and 'black' only)"
        how = _how(task, name, seed)
        how += _options(task) if how.startswith("verax train") else ""
        broken = damaged(task, name, seed, store)
        if broken is not None:
            raise WeightsError(
                f"The stored file {broken.path.name!r} is damaged ({broken.reason}); train: {how}"
            )
        ready = isinstance(task, TextBox) and task.background.fingerprint == "black"
        built = f"take {WIRED!r}, which needs no training, or " if ready else ""
        raise MissingFile(
            f"No network {name!r} with seed {seed} is stored for {task.name}{kind}; {built}train one: {how}"
        )
    check_fit(task, path)
    return path


def network(task: Learnable, name: str = "cnn4", seed: int = 0, store: Path | None = None) -> nn.Module:
    """The stored network of a task, or the wired one, in eval mode.

    Args:
        task: what it was trained on.
        name: an architecture or ``ARCHITECTURE@RECIPE``.
        seed: the training seed.
        store: where trained networks are kept.
    """
    found = names.parse(name).on(task)
    if found.architecture == WIRED:
        return wire(task)
    return load(require(task, str(found), seed, store), found.architecture, task.classes)


def sha256(task: Learnable, name: str, path: Path | None) -> str:
    """What names the weights of a network in hashes: of its file, or, where it has none, of the weights."""
    return weights_hash(wire(task)) if path is None else str(record(path)["sha256"])


def shipped() -> list[Path]:
    """All networks that travel with the package."""
    return sorted(SHIPPED.glob("*.safetensors"))
