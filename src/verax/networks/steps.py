"""One step of training, the same on every device; on a GPU it is recorded once and then replayed.

All trainable weights live in one flat tensor, so that Adam (Kingma and Ba, ICLR 2015) is a handful of
operations. These networks are so small that a GPU waits for the launch of kernels rather than for
arithmetic; a CUDA graph of forward, backward and update takes that wait away.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from verax.networks.attacks import pgd
from verax.networks.losses import find_loss
from verax.networks.recipes import Recipe

_BETA1, _BETA2 = 0.9, 0.999
_WARM_UP = 3  # steps before a recording, in which libraries choose their kernels


def schedule(recipe: Recipe, steps: int) -> tuple[Tensor, Tensor]:
    """The learning rate and the first momentum of every step, float64 of shape ``(steps,)``.

    With `cycle` both follow a one-cycle schedule: the rate rises from 1/25 of its peak during the first 30 %
    and falls to nothing along a cosine, the momentum goes from 0.95 to 0.85 and back.
    """
    count = torch.arange(steps, dtype=torch.float64)
    if not recipe.cycle:
        return torch.full_like(count, recipe.rate), torch.full_like(count, _BETA1)
    top, last = 0.3 * steps - 1, steps - 1
    rising = (count / top).clamp(0, 1) if top > 0 else torch.ones_like(count)
    falling = ((count - top) / (last - top)).clamp(0, 1)

    def along(start: float, peak: float, end: float) -> Tensor:
        up = peak + (start - peak) / 2 * (1 + torch.cos(math.pi * rising))
        down = end + (peak - end) / 2 * (1 + torch.cos(math.pi * falling))
        return torch.where(count <= top, up, down)

    low = recipe.rate / 25
    return along(low, recipe.rate, low / 1e4), along(0.95, 0.85, 0.95)


def _flatten(tensor: Tensor) -> Tensor:
    """All values in one row; convolutions channels-last, as they are laid out."""
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).reshape(-1)


def _unflatten(row: Tensor, like: Tensor) -> Tensor:
    if like.dim() != 4:
        return row.view(like.shape)
    out, wide, high, across = like.shape
    return row.view(out, high, across, wide).permute(0, 3, 1, 2)


class Stepper:
    """Trains a network, one batch at a call.

    Attributes:
        recorded: replay a CUDA graph on a GPU; the plain steps give the same network, more slowly.
    """

    recorded = True

    def __init__(self, model: nn.Module, recipe: Recipe, steps: int) -> None:
        """Prepare at most `steps` steps; the weights of `model` become parts of one flat tensor."""
        self.model, self.recipe = model, recipe
        self.loss = find_loss(recipe.loss)
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.weights = torch.cat([_flatten(p.detach()) for p in self.parameters])
        rows = torch.split(self.weights, [p.numel() for p in self.parameters])
        for parameter, row in zip(self.parameters, rows, strict=True):
            parameter.data = _unflatten(row, parameter)
        self.device = self.weights.device
        self.first, self.second = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        rate, beta1 = schedule(recipe, steps)
        number = torch.arange(1, steps + 1, dtype=torch.float64)
        plain = recipe.optimiser == "sgd"
        table = [beta1, rate if plain else rate / (1 - beta1**number), (1 - _BETA2**number).rsqrt()]
        self.table = torch.stack(table, 1).float().to(self.device)
        self.now = self.table[0].clone()
        self.done = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._report = torch.zeros(2, device=self.device)

    def __call__(self, *batch: Tensor) -> Tensor:
        """Learn from pictures, labels and, with an adversary, where it starts from.

        Gives the loss before the step and the largest gradient of the output that learns least (zero: an
        output from which nothing is learned); the next step overwrites it.
        """
        self.now.copy_(self.table[self.done])
        self.done += 1
        if self.device.type != "cuda" or not self.recorded:
            return self._step(*batch)
        if self._graph is None:
            self._record(batch)
        if batch[0].shape != self._inputs[0].shape:  # the rest of an epoch
            return self._step(*batch)
        assert self._graph is not None
        for mine, given in zip(self._inputs, batch, strict=True):
            mine.copy_(given)
        self._graph.replay()
        return self._report

    def _step(self, pictures: Tensor, labels: Tensor, start: Tensor | None = None) -> Tensor:
        fast = self.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16, enabled=fast, cache_enabled=False):
            if start is not None and self.recipe.adversary is not None:
                pictures = self._attacked(pictures, labels, start, self.recipe.adversary)
            outputs = self.model(pictures)
            loss = self.loss(outputs, labels)
        outer, *slopes = torch.autograd.grad(loss, [outputs, *self.parameters])
        slope = torch.cat([_flatten(part) for part in slopes])
        if self.recipe.clip is not None:
            slope = slope * (self.recipe.clip / (slope.norm() + 1e-6)).clamp(max=1)
        if self.recipe.optimiser == "sgd":
            self.weights.sub_(slope * self.now[1])
            return torch.stack([loss.detach(), outer.abs().amax(0).amin().to(loss.dtype)])
        beta1, rate, correction = self.now.unbind()
        self.first.mul_(beta1).add_(slope * (1 - beta1))
        self.second.mul_(_BETA2).addcmul_(slope, slope, value=1 - _BETA2)
        root = self.second.sqrt().mul_(correction).add_(self.recipe.epsilon)
        self.weights.sub_(self.first / root * rate)
        return torch.stack([loss.detach(), outer.abs().amax(0).amin().to(loss.dtype)])

    def _attacked(self, pictures: Tensor, labels: Tensor, start: Tensor, eps: float) -> Tensor:
        """What an adversary makes of the pictures; it knows the network as it is used, without dropout."""
        self.model.eval()
        worse = pgd(self.model, pictures, labels, start, eps, loss=find_loss(self.recipe.loss))
        self.model.train()
        return worse

    def _record(self, batch: tuple[Tensor, ...]) -> None:
        """Record one step; everything that the trial steps change is put back."""
        self._inputs = [tensor.clone() for tensor in batch]
        state = [self.weights, self.first, self.second, *self.model.buffers()]
        kept = [tensor.clone() for tensor in state]
        here = torch.cuda.current_stream(self.device)
        aside = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                self._step(*self._inputs)
        here.wait_stream(aside)
        for tensor, before in zip(state, kept, strict=True):
            tensor.copy_(before)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._report = self._step(*self._inputs)
