"""What an experiment is run with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from verax.errors import InvalidParameter
from verax.methods.base import METHODS as KNOWN
from verax.reproductions.alignment.measuring import METHODS


@dataclass(frozen=True)
class Options:
    """What an experiment is run with; None stands for its own default.

    Attributes:
        seeds: training seeds.
        methods: attribution methods that are compared, beside the published one.
        samples: images that are judged at most in each test.
        networks: of the experiments that compare networks: timm:NAME, torchvision:NAME, ...
        data: a folder, in place of what is looked for under ``VERAX_DATA``.
        quick: few images, small training: a first look.
        device: where to compute.
        store: where trained networks are kept.
        quiet: no progress bars.
    """

    seeds: Sequence[int] | None = None
    methods: Sequence[str] = METHODS
    samples: int | None = None
    networks: Sequence[str] | None = None
    data: Path | None = None
    quick: bool = False
    device: str = "auto"
    store: Path | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.seeds is not None and not self.seeds:
            raise InvalidParameter("An experiment needs at least one seed.")
        if not self.methods:
            raise InvalidParameter("An experiment needs at least one method.")
        for name in self.methods:
            KNOWN.get(name)  # raises for names that nobody knows
        if self.samples is not None and self.samples < 2:
            raise InvalidParameter(f"samples must be at least 2, not {self.samples}.")
