"""One step of training, the same on every device; on a GPU it is recorded once and then replayed.

All trainable weights live in one flat tensor, so that Adam (Kingma and Ba, ICLR 2015) is a handful of
operations, and so is their way to half precision and that of their gradients back. These networks are so
small that a GPU waits for the launch of kernels rather than for arithmetic; a CUDA graph of forward, backward
and update takes that wait away.
"""

from __future__ import annotations

import math
import threading
from contextlib import nullcontext
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call

from verax.networks.attacks import pgd
from verax.networks.fusion import fused
from verax.networks.losses import find_loss
from verax.networks.noise import drawn, layers
from verax.networks.recipes import Recipe

_BETA1, _BETA2 = 0.9, 0.999
_WARM_UP = 3  # steps before a recording, in which libraries choose their kernels
_RECORDING = threading.Lock()  # one at a time
_LITTLE = 0.4  # of a GPU's memory
_MINE = threading.local()


def aside(device: torch.device) -> torch.cuda.Stream:
    """The stream on which this thread records, or works beside others: one for all of its recordings.

    Torch has 32 streams, which it hands out in turn. Where every recording asked for another one, the one
    that a thread records on would soon be the one that another thread works on, whose work would be recorded
    instead of done.
    """
    streams: dict[torch.device, torch.cuda.Stream] = _MINE.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return streams[device]


def give_back(device: torch.device) -> None:
    """Give memory that no tensor has back to a GPU that has little left; it stands still meanwhile."""
    free, all_of_it = torch.cuda.mem_get_info(device)
    if free < _LITTLE * all_of_it:
        with _RECORDING:  # a recording forbids it
            torch.cuda.empty_cache()


def schedule(recipe: Recipe, steps: int) -> tuple[Tensor, Tensor]:
    """The learning rate and the first momentum of every step, float64 of shape ``(steps,)``.

    With `cycle` both follow a one-cycle schedule: the rate rises from 1/25 of its peak during the first 30 %
    and falls to nothing along a cosine, the momentum goes from 0.95 to 0.85 and back. With several cycles
    each has twice the steps of the one before.
    """
    if not recipe.cycle:
        count = torch.ones(steps, dtype=torch.float64)
        return recipe.rate * count, _BETA1 * count
    spans = pairwise((0, *ends(recipe, steps)))
    rates, momenta = zip(*(_cycle(recipe.rate, end - start) for start, end in spans), strict=True)
    return torch.cat(rates), torch.cat(momenta)


def ends(recipe: Recipe, steps: int) -> list[int]:
    """The steps after which the cycles are over: ends of epochs, where there are any."""
    parts = 2**recipe.cycles - 1
    each = 1 if steps % recipe.epochs else steps // recipe.epochs
    return [round(steps // each * (2**place - 1) / parts) * each for place in range(1, recipe.cycles + 1)]


def _cycle(rate: float, steps: int) -> tuple[Tensor, Tensor]:
    """One cycle of the learning rate and of the first momentum."""
    count = torch.arange(steps, dtype=torch.float64)
    top, last = 0.3 * steps - 1, steps - 1
    rising = (count / top).clamp(0, 1) if top > 0 else torch.ones_like(count)
    falling = ((count - top) / (last - top)).clamp(0, 1)

    def along(start: float, peak: float, end: float) -> Tensor:
        up = peak + (start - peak) / 2 * (1 + torch.cos(math.pi * rising))
        down = end + (peak - end) / 2 * (1 + torch.cos(math.pi * falling))
        return torch.where(count <= top, up, down)

    low = rate / 25
    return along(low, rate, low / 1e4), along(0.95, 0.85, 0.95)


def strengths(recipe: Recipe, steps: int) -> Tensor:
    """The eps of the adversary in every step, float64 of shape ``(steps,)``; zeros without one."""
    count = torch.arange(1, steps + 1, dtype=torch.float64)
    rising = max(1.0, recipe.ramp * steps)
    return (recipe.adversary or 0.0) * (count / rising).clamp(max=1)


def _flatten(tensor: Tensor) -> Tensor:
    """All values in one row; convolutions channels-last, as they are laid out."""
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).reshape(-1)


def _unflatten(row: Tensor, like: Tensor) -> Tensor:
    if like.dim() != 4:
        return row.view(like.shape)
    out, wide, high, across = like.shape
    return row.view(out, high, across, wide).permute(0, 3, 1, 2)


def _halved(model: nn.Module) -> frozenset[str]:
    """The parameters that autocast rounds to half precision: those of convolutions and linear layers.

    A network that is `tolerant` has all of its arithmetic in half precision instead, normalisation and the
    ways around its layers included, where most of the time of small transformers goes.
    """
    if _tolerant(model):
        return frozenset(name for name, parameter in model.named_parameters() if parameter.requires_grad)
    return frozenset(
        f"{place}.{name}" if place else name
        for place, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd)
        for name, parameter in module.named_parameters(recurse=False)
        if parameter.requires_grad
    )


def _tolerant(model: nn.Module) -> bool:
    return getattr(model, "tolerant", False) is True


class Stepper:
    """Trains a network, a batch or a block of them at a call.

    What it found out in each step stays on the device until somebody looks, so that a GPU never waits for
    that. Where the recipe has a stopping rule, the step that meets it is the last one that changes a weight.

    Attributes:
        patient: whether one may look after the step that met the stopping rule, since nothing changes then.
        recorded: replay a CUDA graph on a GPU; the plain steps give the same network, more slowly.
        history: the loss before each step and, where the recipe has a stopping rule, the largest gradient of
            the output that learns least (zero: an output from which nothing is learned), ``(steps, 2)``.
    """

    recorded = True

    def __init__(
        self,
        model: nn.Module,
        recipe: Recipe,
        steps: int,
        *,
        rough: bool = True,
        block: int = 1,
        noise: int = 0,
    ) -> None:
        """Prepare at most `steps` steps; the weights of `model` become parts of one flat tensor.

        Args:
            model: the network.
            recipe: how it is trained.
            steps: at most so many.
            rough: compute in half precision on a GPU, which classes do not mind and numbers do.
            block: steps in a recording. Several are worth it where a step is shorter than its launch;
                where it is longer, other threads on the same GPU only have to wait for them.
            noise: decides what dropout drops.
        """
        self.model, self.recipe, self.rough = model, recipe, rough
        self.loss = find_loss(recipe.loss)
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.weights = torch.cat([_flatten(p.detach()) for p in self.parameters.values()])
        for name, part in self._parts(self.weights).items():
            self.parameters[name].data = part
        self.device = self.weights.device
        rounded = rough and self.device.type == "cuda"
        self.whole = rounded and _tolerant(model)
        self.halved = _halved(model) & self.parameters.keys() if rounded else frozenset()
        self.first, self.second = torch.zeros_like(self.weights), torch.zeros_like(self.weights)
        rate, beta1 = schedule(recipe, steps)
        number = torch.arange(1, steps + 1, dtype=torch.float64)
        plain = recipe.optimiser == "sgd"
        rate = rate if plain else rate / (1 - beta1**number)
        table = [beta1, rate, (1 - _BETA2**number).rsqrt(), strengths(recipe, steps)]
        self.table = torch.stack(table, 1).float().to(self.device)
        self.history = torch.zeros(steps, 2, device=self.device)
        self.place = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.noise, self.drops = torch.full((1,), noise, device=self.device), bool(layers(model))
        self.open = torch.ones((), device=self.device)  # becomes zero when training has reached its end
        self.done = 0
        cuda = self.device.type == "cuda"
        # statistics of normalisation layers would go on changing after the last step
        self.patient = recipe.stop is None or (cuda and not list(model.buffers()))
        self.block = block
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}

    def restart(self, model: nn.Module, noise: int = 0) -> None:
        """Begin again with the weights of another network and other noise; what was recorded stays."""
        self.noise.fill_(noise)
        self.model.load_state_dict(model.state_dict())
        self.done = 0
        for tensor in (self.first, self.second, self.history, self.place):
            tensor.zero_()
        self.open.fill_(1)

    def __call__(self, *given: Tensor) -> int:
        """Learn from pictures, labels and, with an adversary, where it starts from; gives the steps taken.

        Every step takes as many pictures as the recipe says; those that are left over make one more.
        """
        size = self.recipe.batch
        full = len(given[0]) // size
        counts = [full] if full == self.block else [1] * full
        start = 0
        for count in counts:
            self._several([tensor[start : start + count * size] for tensor in given], count)
            start += count * size
        if start < len(given[0]):
            self._step(*(tensor[start:] for tensor in given))
        taken = full + (start < len(given[0]))
        self.done += taken
        return taken

    def _several(self, given: list[Tensor], count: int) -> None:
        """Take some full steps, as one recording where there is a GPU."""
        if self.device.type != "cuda" or not self.recorded:
            self._walk(given)
            return
        if count not in self._graphs:
            self._graphs[count] = self._record(given)
        graph, inputs = self._graphs[count]
        for mine, theirs in zip(inputs, given, strict=True):
            mine.copy_(theirs)
        graph.replay()

    def _walk(self, given: list[Tensor]) -> None:
        for batch in zip(*(torch.split(tensor, self.recipe.batch) for tensor in given), strict=True):
            self._step(*batch)

    def _step(self, pictures: Tensor, labels: Tensor, start: Tensor | None = None) -> None:
        fast = self.device.type == "cuda"
        if fast and pictures.ndim == 4:  # once, rather than in every layer and iteration that wants it so
            pictures = pictures.contiguous(memory_format=torch.channels_last)
            start = None if start is None else start.contiguous(memory_format=torch.channels_last)
        # from the device, not from Python: a recording would keep the numbers of its first step
        beta1, rate, correction, eps = self.table.index_select(0, self.place).view(-1).unbind()
        weights = self.weights.detach().requires_grad_()
        mixed = fast and self.rough and not self.whole
        with torch.autocast("cuda", torch.bfloat16, enabled=mixed, cache_enabled=False):
            given = self._given(weights)
            if start is not None and self.recipe.adversary is not None:
                pictures = self._attacked(pictures, labels, start, eps, given)
            outputs = self._outputs(given, pictures)
            loss = self.loss(outputs, labels)
        asked = [outputs, weights, *self.parameters.values()]
        outer, slope, *outside = torch.autograd.grad(loss, asked, allow_unused=True)
        if any(part is not None for part in outside):  # used elsewhere than in the module that holds them
            slope = slope + torch.cat(
                [
                    _flatten(torch.zeros_like(whole) if part is None else part)
                    for whole, part in zip(self.parameters.values(), outside, strict=True)
                ]
            )
        if self.recipe.clip is not None:
            slope = slope * (self.recipe.clip / (slope.norm() + 1e-6)).clamp(max=1)
        if self.recipe.stop is not None:
            rate = rate * self.open
            self.open.mul_(loss.detach() >= self.recipe.stop)
            report = torch.stack([loss.detach(), outer.abs().amax(0).amin().to(loss.dtype)])[None]
        else:
            report = loss.detach().expand(1, 2)
        if self.recipe.optimiser == "sgd":
            self.weights.sub_(slope * rate)
        else:
            self.first.mul_(beta1).add_(slope * (1 - beta1))
            self.second.mul_(_BETA2).addcmul_(slope, slope, value=1 - _BETA2)
            root = self.second.sqrt().mul_(correction).add_(self.recipe.epsilon)
            self.weights.sub_(self.first / root * rate)
        self.history.index_copy_(0, self.place, report.to(self.history.dtype))
        self.place.add_(1)

    def _parts(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters of the network in a row of all of them."""
        rows = torch.split(flat, [p.numel() for p in self.parameters.values()])
        named = zip(self.parameters.items(), rows, strict=True)
        return {name: _unflatten(row, parameter) for (name, parameter), row in named}

    def _given(self, weights: Tensor) -> dict[str, Tensor]:
        """The parameters for a pass, in half precision where autocast would round every one by itself."""
        parts = self._parts(weights) if len(self.halved) < len(self.parameters) else {}
        halves = self._parts(weights.bfloat16()) if self.halved else {}
        return parts | {name: half for name, half in halves.items() if name in self.halved}

    def _outputs(self, given: dict[str, Tensor], pictures: Tensor) -> Tensor:
        if self.whole:
            pictures = pictures.bfloat16()
        together = fused(self.model) if self.device.type == "cuda" else nullcontext()
        drops = drawn(self.model, self.noise + self.place) if self.drops else nullcontext()
        with together, drops:
            outputs: Tensor = functional_call(self.model, given, pictures)
        return outputs.float() if self.whole else outputs

    def _attacked(
        self, pictures: Tensor, labels: Tensor, start: Tensor, eps: Tensor, given: dict[str, Tensor]
    ) -> Tensor:
        """The pictures, all but the first few changed by an adversary.

        It knows the network as it is used, without dropout.
        """
        kept = round(self.recipe.clean * len(pictures))
        fixed = {name: part.detach() for name, part in given.items()}
        self.model.eval()
        worse = pgd(
            lambda x: self._outputs(fixed, x),
            pictures[kept:],
            labels[kept:],
            start[kept:],
            eps,
            iterations=self.recipe.iterations,
            loss=self.loss,
        )
        self.model.train()
        return torch.cat([pictures[:kept], worse])

    def _record(self, given: list[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor]]:
        """Record some steps; everything that the trial steps change is put back."""
        inputs = [tensor.clone() for tensor in given]
        first = [tensor[: self.recipe.batch] for tensor in inputs]
        state = [self.weights, self.first, self.second, self.history, self.place, self.open]
        state += self.model.buffers()
        kept = [tensor.clone() for tensor in state]
        here = torch.cuda.current_stream(self.device)
        beside = aside(self.device)
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UP):
                self.place.zero_()  # there may be fewer steps in all
                self._step(*first)
        here.wait_stream(beside)
        for tensor, before in zip(state, kept, strict=True):
            tensor.copy_(before)
        graph = torch.cuda.CUDAGraph()
        beside.wait_stream(here)
        # not with `torch.cuda.graph`, which first waits for the GPU, collects garbage and gives memory back:
        # other threads, which train meanwhile, would stand still
        with _RECORDING, torch.cuda.stream(beside):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._walk(inputs)
            finally:
                graph.capture_end()
        here.wait_stream(beside)
        return graph, inputs
