"""Networks: the models under the microscope, their training, and the proof that they follow a reasoning."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from verax.registry import Registry

NETWORKS: Registry[Callable[..., nn.Module]] = Registry(
    "network",
    {
        "cnn3": "verax.networks.architectures:cnn3",
        "cnn4": "verax.networks.architectures:cnn4",
        "alexnet": "verax.networks.alexnet:alexnet",
        "vgg16": "verax.networks.vgg:vgg16",
        "resnet18": "verax.networks.resnet:resnet18",
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
)
"""Name -> function from the number of classes (and, of `VECTORS`, of the features) to a fresh network."""

VECTORS = ("mlp", "shallow", "linear", "linear-intercept", "ridge")
"""Networks whose inputs are vectors ``(N, D)``, for regression."""
