"""The biased and unbiased sets of "smile or hair colour": how many faces of each group are in each.

Bang, Boggust and Satyanarayan, "Explanation Alignment" (ECCV 2024 workshops), section 4.2.
"""

from __future__ import annotations

from verax.errors import InvalidParameter, UnknownName, suggestion

GROUPS = ("black-smile", "black-plain", "blond-smile", "blond-plain")
"""Hair colour and smile of each group; its number is its place here."""

DESIGNS = {
    "train-biased": (10_000, 100, 100, 10_000),
    "train-unbiased": (5_000, 5_000, 5_000, 5_000),
    "test-biased": (1_000, 100, 100, 1_000),
    "test-unbiased": (500, 500, 500, 500),
    "test-hair": (180, 180, 180, 180),
}
"""Name -> published number of faces of each group."""


def counts(design: str, share: float = 1.0) -> dict[int, int]:
    """Group number -> how many faces it has in a design, or in a share of it, at least one.

    >>> counts("train-biased", 0.1)
    {0: 1000, 1: 10, 2: 10, 3: 1000}
    """
    if design not in DESIGNS:
        raise UnknownName(f"There is no design named {design!r}{suggestion(design, DESIGNS)}")
    if not 0 < share <= 1:
        raise InvalidParameter(f"The share of a design is above 0 and at most 1, not {share!r}.")
    return {group: max(1, round(count * share)) for group, count in enumerate(DESIGNS[design])}
