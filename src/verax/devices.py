"""Which device to compute on."""

from __future__ import annotations

import torch

from verax.errors import DeviceUnavailable, InvalidParameter, suggestion


def resolve(device: str | torch.device = "auto") -> torch.device:
    """Turn ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"mps"`` into a device that exists here."""
    if isinstance(device, torch.device):
        device = str(device)
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdigit()):
        known = ["auto", "cpu", "cuda", "mps"]
        hint = "; did you mean 'cuda'?" if kind == "gpu" else suggestion(kind, known)
        raise InvalidParameter(f"There is no device named {device!r}{hint}")
    available = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }[kind]
    if int(index or 0) >= available:
        have = "no such device" if available == 0 else f"only {available}"
        raise DeviceUnavailable(f"Device {device!r} was asked for, but this machine has {have}; try 'cpu'.")
    return torch.device(device)


def describe(device: torch.device) -> str:
    """The device in words, for manifests."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
