"""Superpixels: maps and truths of patches of cells, each patch counted once and land never.

Krell et al. (Environmental Data Science 2025) explain patches instead of cells, since neighbouring cells that
vary together can stand for each other. What a patch deserves is the sum of what its cells deserve. A map of a
patch is either asked for (the patch is hidden, or plays, as one) or summed from a map of cells.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from verax.errors import InvalidInput
from verax.metrics import agreement


def check_patches(patches: Tensor, cells: int) -> Tensor:
    """Patch numbers 0 .. P - 1 of the cells ``(D,)``: int64; every number must occur."""
    if not isinstance(patches, Tensor) or patches.is_floating_point() or patches.dtype == torch.bool:
        raise InvalidInput("Patches must be a tensor of whole numbers, one for each cell.")
    if tuple(patches.shape) != (cells,):
        raise InvalidInput(f"Patches of shape {tuple(patches.shape)} do not fit maps of {cells} cells.")
    names = torch.unique(patches)
    if not torch.equal(names.cpu().long(), torch.arange(len(names))):
        raise InvalidInput("Patches must be numbered 0, 1, 2 ... without a gap.")
    return patches.long()


def patch_sums(maps: Tensor, patches: Tensor) -> Tensor:
    """What patches get: the sums of maps ``(N, D)`` over the cells of each patch, ``(N, P)`` float64.

    A map that holds NaN or infinity has NaN in the patches concerned.
    """
    if maps.ndim != 2:
        raise InvalidInput(f"Maps of cells must have the shape (N, D), not {tuple(maps.shape)}.")
    number = check_patches(patches, maps.shape[1]).to(maps.device)
    sums = torch.zeros(len(maps), int(number.max()) + 1, dtype=torch.float64, device=maps.device)
    return sums.index_add_(1, number, maps.detach().to(torch.float64))


def agreement_of_patches(maps: Tensor, truth: Tensor, patches: Tensor) -> Mapping[str, Tensor]:
    """All measures of agreement over patches: name -> ``(N,)``.

    Cells of a patch are not repeated and cells without ocean do not exist, so that large patches and land
    cannot raise a score (both are counted many times where maps are compared as pictures).

    Args:
        maps: ``(N, D)``, of cells; the value of a patch that was explained as one is shared by its cells.
        truth: ``(N, D)``, what each cell deserves.
        patches: ``(D,)`` the patch of each cell, as `Grid.patches` numbers them.
    """
    found, right = patch_sums(maps, patches), patch_sums(truth, patches)
    return {name: measure(found, right) for name, measure in agreement.MEASURES.items()}
