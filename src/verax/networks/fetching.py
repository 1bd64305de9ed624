"""Published weights that lie elsewhere: whether they are here, whether they can be fetched, where they go.

The libraries that fetch them try again for most of a minute before they give up, or wait for ever, and then
name no address. So that is asked first, for a few seconds.
"""

from __future__ import annotations

import logging
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from verax import progress, registry
from verax.errors import WeightsError

_PATIENCE = 4.0
"""Seconds within which a host has to answer."""
_NAMES = ("model.safetensors", "pytorch_model.bin")  # of weights on the hub, the first one first


@dataclass(frozen=True)
class Remote:
    """A file with weights that somebody else keeps.

    Attributes:
        url: where it lies.
        place: where the library looks for it on this machine; None where only the library knows.
        here: whether it is on this machine already.
    """

    url: str
    place: Path | None = None
    here: bool = False


def of_url(url: str) -> Remote:
    """The file of an address that PyTorch fetches."""
    place = Path(torch.hub.get_dir()) / "checkpoints" / Path(urllib.parse.urlparse(url).path).name
    return Remote(url, place, place.is_file())


def of_timm(config: Any) -> Remote | None:
    """The file of a configuration of timm; None where it names none that has to be fetched."""
    if config is None or getattr(config, "file", None) or getattr(config, "state_dict", None):
        return None
    if not getattr(config, "hf_hub_id", None):
        return of_url(config.url) if getattr(config, "url", None) else None
    repository, _, revision = str(config.hf_hub_id).partition("@")
    hub = {"revision": revision or None}
    names = [config.hf_hub_filename] if getattr(config, "hf_hub_filename", None) else _NAMES
    found = registry.load("huggingface_hub:try_to_load_from_cache")
    url = registry.load("huggingface_hub:hf_hub_url")(repository, names[0], **hub)
    return Remote(url, here=any(isinstance(found(repository, name, **hub), str) for name in names))


@contextmanager
def watched(name: str, remote: Remote | None) -> Iterator[None]:
    """While a library loads or fetches the weights of a network.

    Raises:
        WeightsError: they cannot be loaded, or nobody answers where they lie.
    """
    if remote is not None and not remote.here:
        _announce(name)
        if reason := unreachable(remote.url):
            raise WeightsError(_sentence(name, remote, reason))
    hub = logging.getLogger("huggingface_hub")
    before = hub.level
    hub.setLevel(logging.CRITICAL)  # what it says of its attempts is not asked for
    try:
        yield
    except (OSError, RuntimeError, ValueError, urllib.error.URLError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0][:120]
        raise WeightsError(_sentence(name, remote, reason or type(error).__name__)) from error
    finally:
        hub.setLevel(before)


def unreachable(url: str) -> str:
    """Why nobody answers at an address; empty where somebody does, or where that cannot be told from here."""
    if "all" in urllib.request.getproxies():  # the libraries can use such a proxy, urllib cannot
        return ""
    parts = urllib.parse.urlparse(url)
    asked = urllib.request.Request(f"{parts.scheme}://{parts.netloc}/", method="HEAD")
    answer = [f"{parts.netloc} does not answer"]

    def ask() -> None:
        try:
            with urllib.request.urlopen(asked, timeout=_PATIENCE):
                answer[0] = ""
        except urllib.error.HTTPError:  # an answer all the same
            answer[0] = ""
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            # certificates that Python does not have, the libraries bring along
            known = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            answer[0] = "" if isinstance(reason, ssl.SSLError) else f"{parts.netloc}: {known}"

    # a thread, because nothing limits how long the name of a host is looked up
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return answer[0]


def _announce(name: str) -> None:
    progress.errors.print(
        f"Fetching the pretrained weights of {name}.", style="dim", markup=False, soft_wrap=True
    )


def _sentence(name: str, remote: Remote | None, reason: str) -> str:
    """What is wrong, and what to do."""
    begin = f"The pretrained weights of {name!r} could not be loaded ({reason}); "
    if remote is None or remote.here:
        return begin + "give a file with --weights, or 'none'."
    where = f"put it at {str(remote.place)!r} or " if remote.place is not None else ""
    return (
        f"{begin}fetch {remote.url} elsewhere and {where}give it with --weights FILE (or use --weights none)."
    )
