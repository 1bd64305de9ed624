"""What the commands of benchmarks are asked: names, devices and seconds, refused in one sentence."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable

import torch

from verax.errors import suggestion


def one_of(noun: str, known: Iterable[str]) -> Callable[[str], str]:
    """A name among known ones."""
    names = list(dict.fromkeys(known))

    def check(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"there is no {noun} {text!r}{suggestion(text, names)}")
        return text

    return check


def some_of(noun: str, known: Iterable[str]) -> Callable[[str], list[str]]:
    """Names with commas between them."""
    check = one_of(noun, known)
    return lambda text: [check(name.strip()) for name in text.split(",")]


def device(text: str) -> str:
    """A CPU, or a GPU where there is one."""
    if text not in ("cpu", "cuda"):
        raise argparse.ArgumentTypeError(f"a device is cpu or cuda, not {text!r}")
    if text == "cuda" and not torch.cuda.is_available():
        raise argparse.ArgumentTypeError("PyTorch finds no GPU here")
    return text


def seconds(text: str) -> float:
    """More than none."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return found


def count(text: str) -> int:
    """A whole number from 1."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)
