"""References for class activation maps and full gradients: their formulas, on layers called one by one."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kinds import Net
from references import Reference, rectified

Head = Callable[[Tensor], Tensor]
Weighted = Callable[[Tensor, Tensor], Tensor]
"""(activations, their gradients) -> activations with their weights, before the sum over channels."""


class Trace:
    """The networks of the league, operation by operation; `biases` says what was added to which value."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.biases: list[tuple[Tensor, Tensor]] = []

    def biased(self, value: Tensor, bias: Tensor) -> Tensor:
        """The value with a bias that is noted."""
        kept = value + bias
        self.biases.append((kept, bias.detach()))
        return kept

    def convolved(self, name: str, x: Tensor) -> Tensor:
        """A convolution of the network."""
        layer = self.model.get_submodule(name)
        plain = F.conv2d(x, layer.weight, None, layer.stride, layer.padding)
        return self.biased(plain, layer.bias[:, None, None])

    def first(self, x: Tensor) -> Tensor:
        """The first convolution."""
        return self.convolved("a" if isinstance(self.model, Net) else "patch", x)

    def block(self, z: Tensor) -> Tensor:
        """From the first convolution to what the pooling gives."""
        model = self.model
        if model.kind == "batch norm":
            norm = model.norm
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            shift = norm.bias - norm.running_mean * scale
            z = self.biased(z * scale[:, None, None], shift[:, None, None])
        return (F.max_pool2d if model.kind == "pooled" else F.avg_pool2d)(z.clamp(min=0), 2)

    def rest(self, y: Tensor, h: Tensor) -> Tensor:
        """Logits from the second convolution's output `y` and the first block's `h`."""
        model = self.model
        if model.kind == "residual":
            y = y + h
        if model.kind == "gated":
            u = self.convolved("gate", h)
            # curved functions have implicit biases, what they are beyond their tangents (section 3)
            t = self.biased(u.tanh(), torch.zeros(()))
            self.biases[-1] = (t, (t - (1 - t**2) * u).detach())
            y = y * t
            self.biases.append((y, -y.detach()))
        hidden = F.linear(y.clamp(min=0).flatten(1), model.c.weight, model.c.bias).clamp(min=0)
        return F.linear(hidden, model.d.weight, model.d.bias)

    def attended(self, patches: Tensor) -> Tensor:
        """Logits of the network with attention."""
        model = self.model
        t = patches.flatten(2).transpose(1, 2)
        n = F.layer_norm(t, (8,), model.norm.weight, model.norm.bias)
        q, k, v = (F.linear(n, layer.weight, layer.bias) for layer in (model.q, model.k, model.v))
        t = t + torch.softmax(q @ k.mT / 8**0.5, -1) @ v
        hidden = F.linear(t.mean(1), model.c.weight, model.c.bias).clamp(min=0)
        return F.linear(hidden, model.d.weight, model.d.bias)

    def split(self, x: Tensor, layer: str) -> tuple[Tensor, Head]:
        """The "first" or "last" convolution's output or the "pool"'s, and the rest as a function of it."""
        first = self.first(x)
        if not isinstance(self.model, Net):
            return first, self.attended
        if layer == "first":
            return first, lambda z: self.split_block(self.block(z))
        h = self.block(first)
        if layer == "pool":
            return h, self.split_block
        return self.convolved("b", h), lambda y: self.rest(y, h)

    def split_block(self, h: Tensor) -> Tensor:
        """Logits from what the pooling gives."""
        return self.rest(self.convolved("b", h), h)


def chosen(outputs: Tensor, targets: Tensor) -> Tensor:
    """The explained outputs."""
    return outputs.gather(1, targets[:, None])[:, 0]


def enlarged(maps: Tensor, x: Tensor, mode: str = "bilinear") -> Tensor:
    """Maps at the size of the inputs."""
    return F.interpolate(maps, x.shape[2:], mode=mode)


def cam(weighted: Weighted, relu: bool = True, mode: str = "bilinear") -> Reference:
    """A class activation map of the last convolution."""

    def reference(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        features, head = Trace(model).split(x, "last")
        features = features.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(chosen(head(features), targets).sum(), features)
        found = weighted(features.detach(), slopes).sum(1, keepdim=True)
        return enlarged(found.clamp(min=0) if relu else found, x, mode).expand_as(x)

    return reference


def mean_slopes(a: Tensor, g: Tensor) -> Tensor:
    """Grad-CAM (Selvaraju et al., ICCV 2017)."""
    return a * g.mean((2, 3), keepdim=True)


def weighted_slopes(a: Tensor, g: Tensor) -> Tensor:
    """Grad-CAM++ for the exponential of the output (Chattopadhay et al., WACV 2018, equation 19)."""
    below = 2 * g**2 + a.sum((2, 3), keepdim=True) * g**3
    alpha = torch.where(g == 0, 0.0, g**2 / torch.where(g == 0, 1.0, below))
    return a * (alpha * g.clamp(min=0)).sum((2, 3), keepdim=True)


def slopes(a: Tensor, g: Tensor) -> Tensor:
    """HiResCAM (Draelos and Carin, 2020)."""
    return a * g


def positive_slopes(a: Tensor, g: Tensor) -> Tensor:
    """LayerCAM (Jiang et al., 2021)."""
    return a * g.clamp(min=0)


def guided_cam(mode: str = "bilinear") -> Reference:
    """Guided backpropagation times Grad-CAM (Selvaraju et al., ICCV 2017)."""
    coarse, fine = cam(mean_slopes, mode=mode), rectified(True)
    return lambda model, x, targets: coarse(model, x, targets) * fine(model, x, targets)


def score_cam(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """Score-CAM of the first convolution, whose maps need not be enlarged (Wang et al., CVPRW 2020)."""
    features, _ = Trace(model).split(x, "first")
    features, scores = features.detach(), []
    for channel in enlarged(features, x).unbind(1):
        low, high = channel.amin((1, 2), keepdim=True), channel.amax((1, 2), keepdim=True)
        shown = x * ((channel - low) / (high - low))[:, None]
        scores.append(chosen(model(shown), targets).detach())
    weights = torch.stack(scores, 1).softmax(1)[:, :, None, None]
    return enlarged((weights * features).sum(1, keepdim=True).clamp(min=0), x).expand_as(x)


def ablation_cam(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
    """Ablation-CAM of what the pooling gives (Desai and Ramaswamy, WACV 2020)."""
    features, head = Trace(model).split(x, "pool")
    features = features.detach()
    whole = chosen(head(features), targets).detach()
    found = torch.zeros_like(features[:, :1])
    for number in range(features.shape[1]):
        without = features.clone()
        without[:, number] = 0
        weight = (whole - chosen(head(without), targets).detach()) / whole
        found += weight[:, None, None, None] * features[:, number : number + 1]
    return enlarged(found.clamp(min=0), x).expand_as(x)


def full_gradient(by_channel: bool) -> Reference:
    """FullGrad: magnitudes of what the input and all biases of maps bring (Srinivas and Fleuret, 2019).

    Args:
        by_channel: whether each channel is moved to [0, 1] by itself, as the paper's formula has it, or all
            channels of a layer together, as its authors' code does.
    """

    def magnitudes(part: Tensor, x: Tensor) -> Tensor:
        dims = (2, 3) if by_channel else (1, 2, 3)
        values = part.abs() - part.abs().amin(dims, keepdim=True)
        most = values.amax(dims, keepdim=True)  # a channel that brings nothing stays nothing
        return enlarged(values / torch.where(most == 0, 1.0, most), x).sum(1, keepdim=True)

    def reference(model: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        trace, leaf = Trace(model), x.detach().requires_grad_()
        features, head = trace.split(leaf, "first")
        out = chosen(head(features), targets).sum()
        values, biases = zip(*trace.biases, strict=True)
        own, *others = torch.autograd.grad(out, [leaf, *values])
        found = magnitudes(x * own, x)
        for bias, g in zip(biases, others, strict=True):
            found = found + magnitudes(bias * g, x)
        return found.expand_as(x).detach()

    return reference
