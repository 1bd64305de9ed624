"""A metric: how much of a map lies in the middle of the focus, away from its rim."""

import torch

import verax


@verax.metric("middle-share", higher_is_better=True, bounds=(0, 1))
def middle_share(maps, truth):
    """Share of a map on focus pixels whose neighbours are all in focus."""
    rim = torch.nn.functional.max_pool2d((~truth.focus).float(), 3, stride=1, padding=1)
    middle, total = rim == 0, maps.sum((1, 2))
    share = (maps * middle).sum((1, 2)) / total.clamp(min=1e-300)
    share = torch.where(total > 0, share, middle.double().mean((1, 2)))  # an empty map scores like chance
    return torch.where(truth.focus.any(2).any(1), share, torch.nan)  # nothing to focus on: no score
