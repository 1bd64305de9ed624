"""The published protocol: maps become pictures first, as in the code behind SMERF.

Kim, Plumb and Talwalkar, "Sanity Simulations for Saliency Methods", ICML 2022. Their metrics never see an
attribution. They see the colour picture of it, reduced to one number for each pixel and blurred. Which
picture depends on the method and decides much of its score:

| transfer | published for | zero becomes |
|---|---|---|
| `gray` | gradient, SmoothGrad | 0 |
| `heat` | DeepTaylor, input x gradient, integrated gradients, LRP, DeepLIFT | almost 0 |
| `projection` | DeconvNet, guided backpropagation | 0.5 |
| `plain` | Grad-CAM | 0 |
| `shap` | DeepSHAP | anything |
| `inverse` | random and edge controls | 1 |
"""

from __future__ import annotations

from functools import cache, reduce
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from verax.errors import InvalidParameter, suggestion
from verax.protocols import Prepared, Protocol
from verax.protocols.sound import as_maps, constant, finite

if TYPE_CHECKING:
    from collections.abc import Callable

WINDOW = 7
"""Side of the box blur, in pixels."""

_SEISMIC = ((0.0, 0.0, 0.3), (0.0, 0.0, 1.0), (1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.5, 0.0, 0.0))


@cache
def seismic() -> Tensor:
    """The 256 colours of the `seismic` colour map (dark blue, blue, white, red, dark red): ``(256, 3)``."""
    anchors = torch.tensor(_SEISMIC, dtype=torch.float64)
    position = torch.arange(256, dtype=torch.float64) / 255 * (len(anchors) - 1)
    left = position.long().clamp(max=len(anchors) - 2)
    return torch.lerp(anchors[left], anchors[left + 1], (position - left)[:, None])


def _divide(maps: Tensor, scale: Tensor) -> Tensor:
    """Divide each map by its `scale` ``(N,)``; maps whose scale is 0 stay as they are."""
    scale = torch.where(scale > 0, scale, 1.0)
    return maps / scale.reshape(-1, *[1] * (maps.ndim - 1))


def _peak(maps: Tensor) -> Tensor:
    return maps.abs().flatten(1).amax(1)


def gray(maps: Tensor) -> Tensor:
    """Absolute values summed over channels, divided by the map's maximum, in 256 steps."""
    values = maps.abs().sum(1)
    return (_divide(values, _peak(values)) * 255).long().to(torch.float64) / 255


def heat(maps: Tensor) -> Tensor:
    """Channel sum divided by its largest magnitude, coloured with `seismic`, then 1 - mean(RGB).

    The sign is lost and large values saturate.
    """
    values = maps.sum(1)
    darkness = 1 - seismic().mean(1).to(maps.device)
    return darkness[(127.5 * (_divide(values, _peak(values)) + 1)).long()]


def projection(maps: Tensor, batch_quantiles: tuple[float, float] = (0.01, 0.99)) -> Tensor:
    """Clip to two quantiles of the whole batch, divide by the map's largest magnitude, move to [0, 1].

    Two quirks are kept: the map of one image depends on the other images in its batch, and zero becomes 0.5,
    so that the empty background carries mass as soon as a map has a negative region.
    """
    if maps.numel():
        lowest, highest = (_quantile(maps, level) for level in batch_quantiles)
        maps = torch.minimum(torch.maximum(maps, lowest), highest)
    return ((_divide(maps, _peak(maps)) + 1) / 2).amax(1)


def plain(maps: Tensor) -> Tensor:
    """The largest channel, as it is."""
    return maps.amax(1)


def shap(maps: Tensor) -> Tensor:
    """All channels of a map moved to [0, 1] together, then the largest one."""
    lowest = maps.flatten(1).amin(1)[:, None, None, None]
    return _divide(maps - lowest, _peak(maps - lowest)).amax(1)


def inverse(maps: Tensor) -> Tensor:
    """1 - mean of the channels: controls that were read as if they had been coloured."""
    return 1 - maps.mean(1)


TRANSFERS: dict[str, Callable[[Tensor], Tensor]] = {
    "gray": gray,
    "heat": heat,
    "projection": projection,
    "plain": plain,
    "shap": shap,
    "inverse": inverse,
}


def _quantile(values: Tensor, level: float) -> Tensor:
    """The quantile with linear interpolation.

    `torch.quantile` refuses more than 16 million values, and `kthvalue` is not deterministic on a GPU.
    """
    flat = values.flatten()
    position = level * (len(flat) - 1)
    below = int(position)
    above = min(below + 1, len(flat) - 1)
    if level < 0.5:
        ends = flat.topk(above + 1, largest=False).values[[below, above]]
    else:
        ends = flat.topk(len(flat) - below).values[[len(flat) - 1 - below, len(flat) - 1 - above]]
    return torch.lerp(ends[0], ends[1], position - below)


def _mirrored(size: int, device: torch.device) -> Tensor:
    """Indices of an axis with half a window more at both ends, reflected without repeating the border."""
    reach = WINDOW // 2
    period = max(2 * (size - 1), 1)
    index = torch.arange(-reach, size + reach, device=device) % period
    return torch.minimum(index, period - index) if size > 1 else torch.zeros_like(index)


def blur(values: Tensor) -> Tensor:
    """Mean over a 7 x 7 window, borders reflected without repeating the edge pixel (OpenCV's default).

    Shifted copies are added instead of differences of running sums: equal windows then give equal bits, so
    a constant map stays constant and an empty background stays exactly empty.
    """
    height, width = values.shape[1:]
    values = values[:, _mirrored(height, values.device)]
    values = reduce(torch.add, [values[:, i : i + height] for i in range(WINDOW)])
    values = values[:, :, _mirrored(width, values.device)]
    values = reduce(torch.add, [values[:, :, i : i + width] for i in range(WINDOW)])
    return values / WINDOW**2


def check_transfer(transfer: str) -> str:
    """Return `transfer` if it exists."""
    if transfer not in TRANSFERS:
        raise InvalidParameter(
            f"There is no transfer named {transfer!r}{suggestion(str(transfer), TRANSFERS)}"
        )
    return transfer


def prepare(
    attributions: Tensor,
    transfer: str = "heat",
    blur: bool = True,
    batch_quantiles: tuple[float, float] = (0.01, 0.99),
) -> Prepared:
    """Turn attributions into the blurred pictures that the published metrics read.

    NaN and infinity become 0 first, as in the original, which replaced NaN in its results.

    Args:
        attributions: ``(N, C, H, W)`` or ``(N, H, W)``.
        transfer: how a map becomes a picture; see the table above.
        blur: whether to blur the picture (the toy examples of the paper do not).
        batch_quantiles: where "projection" clips, as quantiles over the *whole batch* that is passed in. Pass
            the batches of the paper (one group of images) to get its maps.
    """
    check_transfer(transfer)
    low, high = batch_quantiles
    if not 0 <= low <= high <= 1:
        raise InvalidParameter(f"Quantiles must be two rising numbers from 0 to 1, not {batch_quantiles!r}.")
    raw = as_maps(attributions)
    usable = finite(raw)
    maps = torch.where(usable, raw, 0.0)
    values = projection(maps, batch_quantiles) if transfer == "projection" else TRANSFERS[transfer](maps)
    if blur:
        values = _blur(values)
    return Prepared(values, ~usable.flatten(1).all(1) | constant(values))


_blur = blur  # `prepare` has an argument of that name

PROTOCOL = Protocol(
    "published", "Coloured and blurred pictures, as the code of the SMERF paper did it.", prepare
)
