"""Networks: the models under the microscope, their training, and the proof that they follow a reasoning."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import nn

from verax.errors import InvalidParameter
from verax.registry import Registry

NETWORKS: Registry[Callable[..., nn.Module]] = Registry(
    "network",
    {
        "cnn3": "verax.networks.architectures:cnn3",
        "cnn4": "verax.networks.architectures:cnn4",
        "alexnet": "verax.networks.alexnet:alexnet",
        "vgg16": "verax.networks.vgg:vgg16",
        "resnet18": "verax.networks.resnet:resnet18",
        "resnet18-coarse": "verax.networks.resnet:coarse",
        "vit": "verax.networks.vit:vit",
        "shapes-cnn": "verax.networks.shapes:shapes_cnn",
        "wired": "verax.networks.wired:untrained",
        "mlp": "verax.networks.dense:mlp",
        "shallow": "verax.networks.dense:shallow",
        "linear": "verax.networks.linear:linear",
        "linear-intercept": "verax.networks.linear:linear_intercept",
        "ridge": "verax.networks.linear:ridge",
    },
    group="verax.networks",
    adopt=lambda name, thing: _adopted(name, thing),
)
"""Name -> function from the number of classes (and, of `VECTORS`, of the features) to a fresh network."""

F = TypeVar("F", bound=Callable[..., nn.Module])


def _adopted(name: str, thing: object) -> Callable[..., nn.Module]:
    """What a plugin brings as a network: a function or class, of which each call makes a fresh one."""
    if isinstance(thing, nn.Module) or not callable(thing):
        what = "one network" if isinstance(thing, nn.Module) else type(thing).__name__
        raise InvalidParameter(
            f"The network {name!r} must be a function of the number of classes that makes one, not {what}."
        )
    return thing


VERSIONS: dict[str, str] = {}
"""Own networks whose code is known to be the same as long as this is."""


def lasting(name: str) -> bool:
    """Whether results of an architecture may be kept: nobody knows whether an own one has changed."""
    return NETWORKS.builtin(name) or name in VERSIONS


def known_elsewhere(name: str) -> bool:
    """Whether another process finds an architecture by its name: a built-in one, or one of a plugin."""
    return NETWORKS.builtin(name) or bool(NETWORKS.origin(name))


def network(name: str, *, version: str | None = None) -> Callable[[F], F]:
    """Register an architecture of one's own: ``@verax.network("mine")``.

    The function takes the number of classes and makes a fresh network for pictures, whose output is a tensor
    ``(samples, classes)``. Registering the same name again replaces it; built-in names are refused.

    Args:
        name: how it is called in studies; a recipe may follow it there, as in ``mine@published``.
        version: with one, finished results are kept and reused until it changes; without, they are computed
            anew in every run. Weights that were trained are kept in both cases, under the name.
    """

    def register(function: F) -> F:
        if "@" in name:
            raise InvalidParameter(
                f"Behind the @ of a network stands its recipe; choose another name than {name!r}."
            )
        NETWORKS.own(name, _adopted(name, function))
        VERSIONS.pop(name, None)
        if version is not None:
            VERSIONS[name] = version
        return function

    return register


VECTORS = ("mlp", "shallow", "linear", "linear-intercept", "ridge")
"""Networks whose inputs are vectors ``(N, D)``, for regression."""
