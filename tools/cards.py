"""Writes docs/cards.md, a card for each method, and its pictures, from the registry.

python tools/cards.py            write the page and the pictures
python tools/cards.py --check    say whether the page is up to date (exit code 1: it is not)
"""

from __future__ import annotations

import io
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
from PIL import Image

import verax
from verax.files import write_atomically
from verax.methods import METHODS
from verax.methods.base import FAMILIES
from verax.methods.cards import Card, card
from verax.reports.gallery import levels, palette, with_truth

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, PICTURES = DOCS / "cards.md", DOCS / "images" / "cards"
TASK, NETWORK, GROUP = "textbox/complex-cr1", "cnn4", 11
SIDE = 192  # pixels of a picture's side
_WIDTH = 82  # letters of a line of code on the page

TITLES = {
    "gradients": "Gradients",
    "relevance": "Relevance",
    "references": "References",
    "attention": "Attention",
    "cams": "Class activation maps",
    "perturbations": "Perturbations",
    "controls": "Controls",
    "truth": "Truth",
}
HEAD = f"""<!-- Written by `make cards` from the registry and the docstrings; do not edit. -->
# Method cards

One card for each method, the same as `verax list methods NAME` shows. [Methods](methods.md) is the overview.

In every example picture the input is on the left: a scene of `{TASK}` that the certified network `{NETWORK}`
looks at, with a blue line around what its reasoning uses (focus) and a dashed orange one around objects
that it ignores (avoid). On the right is the map of the method with its default parameters: green speaks for
the output, purple against it, white says nothing. A good map is green inside the blue line and white
elsewhere. Colours follow the square root of the values, so that weak ones can be seen.

<!-- docs: setup
import torch, verax
from verax.networks import NETWORKS
cases = verax.task("{TASK}").cases(group={GROUP}, n=1)
inputs, targets = cases.inputs, cases.targets
convolutional = model = verax.task("{TASK}").network("{NETWORK}")
transformer = NETWORKS.get("vit")(2).eval()
additive = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64 * 64, 2))
-->
"""
_OTHER = {"attention": "transformer", "additive": "additive"}
"""What stands for `model` where the example network cannot be explained, when the page is run as a test."""


def anchor(name: str) -> str:
    """The name in addresses and file names."""
    return name.replace("@", "-")


def members() -> list[Card]:
    """The cards of all methods of this package, by family, variants behind the methods themselves."""
    own = [METHODS.get(name) for name in METHODS if METHODS.get(name).builtin and ":" not in name]
    return [card(m) for m in sorted(own, key=lambda m: (FAMILIES.index(m.family), "@" in m.name))]


def has_picture(of: Card) -> bool:
    """Whether the example network can be explained: it has no attention, and is not additive."""
    return of.method.needs not in _OTHER


def _code(value: object) -> str:
    return f"`{value!r}`".replace("'", '"')


def _cell(text: str) -> str:
    return text.replace("``", "`").replace("|", "\\|")


def _call(of: Card) -> str:
    """How it is called, with the first of its parameters, as the formatter would write it."""
    plain = [p for p in of.parameters if isinstance(p.default, bool | int | float | str)][:1]
    words = ["model", "inputs", "targets", f'method="{of.method.name}"']
    words += [f"{p.name}={p.default!r}".replace("'", '"') for p in plain]
    words += ["truth=cases.truth"] if "truth" in of.method.special else []
    line = f"maps = verax.explain({', '.join(words)})"
    if len(line) <= _WIDTH:
        return line
    return "\n".join(["maps = verax.explain(", *(f"    {word}," for word in words), ")"])


def text(of: Card) -> str:
    """The card of one method in Markdown."""
    name = of.method.name
    lines = [f"### {name} {{#{anchor(name)}}}", "", _cell(of.summary), ""]
    for part in of.details:
        lines += (
            ["```text", *(line[4:] for line in part.splitlines()), "```", ""]
            if part[0] == " "
            else [part, ""]
        )
    if has_picture(of):
        lines += [f"![Input and {name} map](images/cards/{anchor(name)}.png){{ loading=lazy }}", ""]
    else:
        what = "has no attention" if of.method.needs == "attention" else "is not additive"
        lines += [f"No picture: the example network {what}.", ""]
    facts = {key: value for key, value in of.facts().items() if key != "family"}
    if of.aliases:
        facts["also called"] = ", ".join(f"`{alias}`" for alias in of.aliases)
    lines += [f"- **{key}**: {value}" for key, value in facts.items()] + [""]
    if of.parameters:
        lines += ["| parameter | default | meaning |", "|---|---|---|"]
        lines += [f"| `{p.name}` | {_code(p.default)} | {_cell(p.about)} |" for p in of.parameters] + [""]
    call = ["```python", _call(of), "```", ""]
    if not has_picture(of):
        call = [f"<!-- docs: setup\nmodel = {_OTHER[of.method.needs]}\n-->", "", *call]
        call += ["<!-- docs: setup\nmodel = convolutional\n-->", ""]
    return "\n".join([*lines, *call])


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for family, cards in groupby(members(), key=lambda of: of.method.family):
        parts += [f"## {TITLES[family]}\n", *map(text, cards)]
    return "\n".join(parts)


def draw() -> int:
    """Write the pictures; their size in bytes."""
    task = verax.task(TASK)
    cases = task.cases(group=GROUP, n=1)
    network = task.network(NETWORK)
    pixels = (cases.inputs[0] * 255).round().byte().numpy()
    truth = with_truth(pixels, cases.truth.focus[0].numpy(), cases.truth.avoid[0].numpy())
    left = Image.fromarray(truth).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    whole = 0
    for of in filter(has_picture, members()):
        maps = verax.explain(
            network, cases.inputs, cases.targets, of.method, ids=cases.ids, truth=cases.truth
        )[0].double()
        flat = maps.sum(0)
        shown = palette()[levels((flat / flat.abs().max().clamp_min(1e-30)).numpy())]
        right = Image.fromarray(np.ascontiguousarray(shown)).resize((SIDE, SIDE), Image.Resampling.NEAREST)
        both = Image.new("RGB", (2 * SIDE + 12, SIDE), "white")
        both.paste(left, (0, 0))
        both.paste(right, (SIDE + 12, 0))
        buffer = io.BytesIO()
        both.quantize(128, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
        write_atomically(PICTURES / f"{anchor(of.method.name)}.png", buffer.getvalue())
        whole += buffer.tell()
    return whole


def main() -> int:
    """Write or check."""
    if "--check" in sys.argv[1:]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page()
        print("docs/cards.md is up to date." if fresh else "docs/cards.md is out of date; run: make cards")
        return 0 if fresh else 1
    PICTURES.mkdir(parents=True, exist_ok=True)
    wanted = {f"{anchor(of.method.name)}.png" for of in members()}
    for path in PICTURES.glob("*.png"):
        if path.name not in wanted:
            path.unlink()
    write_atomically(PAGE, page().encode())
    print(f"docs/cards.md and {draw() / 1000:.0f} kB of pictures are written.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
