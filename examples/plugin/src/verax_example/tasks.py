"""A task: a red sign decides, a blue one means nothing."""

from verax import Kind, Look, Reasoning, TextBox, World

SIGNS = World(
    "signs",
    (Kind.plain("red", Look.box(4, 4, (1, 0, 0))), Kind.plain("blue", Look.box(4, 4, (0, 0, 1)))),
    canvas=(16, 16),
)


def signs(**options):
    """Labels, focus and avoid all follow from the rule."""
    return TextBox("example/signs", Reasoning.parse("red -> 1; otherwise -> 0", SIGNS), "example", **options)
