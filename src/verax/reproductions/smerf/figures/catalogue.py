"""The checklist: every figure and table of the paper, what it shows, what it needs, and how it is drawn."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from verax.reproductions.smerf.evidence import Evidence, Series
from verax.reproductions.smerf.figures import averages, notes, pictures, settings, successes, toys
from verax.reproductions.smerf.figures.averages import Rows
from verax.reproductions.smerf.figures.summaries import everywhere
from verax.reproductions.smerf.paper_methods import COMPLEX, NINE, SEVENTEEN, SIMPLE, TEN

_CFR, _CR1, _CR2, _CR3, _CR4 = COMPLEX
Draw = Callable[[Evidence], Figure]
Note = Callable[[Evidence], str]


@dataclass(frozen=True)
class Entry:
    """One figure of the paper.

    Attributes:
        number: as in the paper, with a letter where it has parts.
        slug: what the file is called after the number.
        title: what it is.
        paper: what the paper shows there.
        draw: makes the figure; None for schematics, which have no data.
        note: what is seen in ours, in a sentence.
        needs: (role of a network, kind of background) pairs, any of which is enough.
    """

    number: str
    slug: str
    title: str
    paper: str
    draw: Draw | None = None
    note: Note | None = None
    needs: tuple[tuple[str, str], ...] = (("plain", "black"),)

    @property
    def file(self) -> str:
        """The name of its file, without an ending."""
        digits = "".join(c for c in self.number if c.isdigit())
        return f"fig{int(digits):02d}{self.number[len(digits) :]}-{self.slug}"

    def lacking(self, evidence: Evidence) -> str:
        """Why it cannot be drawn; empty where it can."""
        if self.draw is None:
            return "a schematic without data"
        if self.slug.startswith("sound") and evidence.sound is None:
            return "needs the sound protocol"
        if not self.needs or any(evidence.find(*pair) for pair in self.needs):
            return ""
        words = " or ".join(f"the {role} network on a {ground} background" for role, ground in self.needs)
        return f"needs {words}"


def plain(evidence: Evidence, background: str = "black") -> Series:
    """The plain CNN; only asked for where it was run."""
    found = evidence.find("plain", background)
    assert found is not None
    return found


def _average(metric: str, background: str = "black", methods: Sequence[str] = TEN) -> Draw:
    return lambda evidence: averages.average_and_least(plain(evidence, background), metric, methods)


def _sound(evidence: Evidence) -> Figure:
    assert evidence.sound is not None
    methods = [name.partition("@")[0] for name in TEN]
    return averages.average_and_least(
        evidence.sound, "focus-share", methods, protocol="sound", label="share on the focus (sound)"
    )


def _focus(family: str, metrics: tuple[str, str], background: str = "black") -> Draw:
    tasks, lines = {
        "simple": (SIMPLE, settings.SIMPLE_LINES),
        "complex": (COMPLEX, settings.COMPLEX_LINES),
    }[family]
    return lambda evidence: settings.focus_and_avoid(plain(evidence, background), tasks, lines, metrics)


def _least(metric: str) -> Draw:
    """Figure 8b: the worst bucket, over the settings that the paper takes and over all."""

    def draw(evidence: Evidence) -> Figure:
        series = plain(evidence)
        simple = Rows(series, everywhere(SIMPLE))
        return averages.least_of(
            {
                "as in the paper: complex means CR2 and CR3": {
                    "simple": simple,
                    "complex": Rows(series, everywhere([_CR2, _CR3])),
                },
                "all five complex settings": {
                    "simple": simple,
                    "complex": Rows(series, everywhere(COMPLEX)),
                },
            },
            metric,
        )

    return draw


def _backgrounds(evidence: Evidence) -> Figure:
    """Figure 12: black beside real, as the paper takes the settings and over all of them."""
    black, real = plain(evidence), plain(evidence, "real")

    def rows(dark: Sequence[str]) -> dict[str, Rows]:
        return {
            "simple, black": Rows(black, everywhere(SIMPLE)),
            "complex, black": Rows(black, everywhere(dark)),
            "simple, real": Rows(real, everywhere(SIMPLE)),
            "complex, real": Rows(real, everywhere(COMPLEX)),
        }

    return averages.least_of(
        {
            "as in the paper: complex on black means Complex-FR, CR2 and CR3; on real, all five": rows(
                [_CFR, _CR2, _CR3]
            ),
            "all five complex settings on both": rows(COMPLEX),
        }
    )


def _architectures(metric: str, methods: Sequence[str]) -> Draw:
    def draw(evidence: Evidence) -> Figure:
        found = evidence.all_of(("alexnet", "vgg16", "resnet18", "vit"))
        return averages.dotted({series.network: series for series in found}, metric, methods)

    return draw


def _robust(metric: str) -> Draw:
    def draw(evidence: Evidence) -> Figure:
        shown = {series.network: series for series in evidence.all_of(("plain", "robust"))}
        return averages.compared(shown, metric)

    return draw


def _identify(*methods: str) -> Draw:
    return lambda evidence: pictures.identify(plain(evidence).views, methods)


def _worst(task: str) -> Draw:
    return lambda evidence: pictures.worst_samples(plain(evidence), task)


def _view(evidence: Evidence) -> Figure:
    return pictures.workflow(next(view for view in plain(evidence).views if view.task == _CFR))


def _curve(evidence: Evidence) -> Figure:
    curve = plain(evidence).curve
    assert curve is not None
    return toys.threshold_curve(curve)


_AFL, _IOU = ("pafl", "safl"), ("piou", "siou")
_IG, _G = "integrated-gradients@published", "gradient@published"

DRAWINGS: dict[str, tuple[Draw, Note | None]] = {
    "2": (_average("piou"), notes.drop("piou")),
    "2b": (_average("pafl"), notes.drop("pafl")),
    "2c": (_sound, notes.sound),
    "5": (_view, notes.accuracy),
    "6a": (_focus("simple", _AFL), notes.distraction),
    "6b": (lambda evidence: settings.by_objects(plain(evidence)), notes.objects),
    "7": (lambda evidence: successes.success_and_failure(plain(evidence)), notes.success),
    "8a": (_focus("complex", _AFL), notes.variation),
    "8b": (_least("pafl"), notes.worst("pafl")),
    "9": (_identify(_IG), None),
    "10": (_architectures("piou", NINE), None),
    "11": (_robust("piou"), notes.robust("piou")),
    "12": (_backgrounds, None),
    "13": (lambda evidence: pictures.samples(plain(evidence).views), None),
    "14": (lambda evidence: toys.afl_and_iou(), notes.toy),
    "15": (_curve, notes.curve),
    "16": (lambda evidence: toys.sweeps(), notes.sweep),
    "17a": (_focus("simple", _IOU), None),
    "17b": (lambda evidence: settings.by_objects(plain(evidence), _IOU), None),
    "18a": (_focus("complex", _IOU), None),
    "18b": (_least("piou"), notes.worst("piou")),
    "19": (_worst(SIMPLE[0]), notes.common_worst(SIMPLE[0])),
    "20": (_worst(SIMPLE[1]), notes.common_worst(SIMPLE[1])),
    "21": (_worst(_CR2), notes.common_worst(_CR2)),
    "22": (lambda evidence: settings.per_bucket(plain(evidence)), None),
    "23": (lambda evidence: successes.pixel_focus(plain(evidence), SIMPLE), notes.reversals(SIMPLE)),
    "24": (lambda evidence: successes.pixel_focus(plain(evidence), COMPLEX), notes.reversals(COMPLEX)),
    "25": (_identify(_G, "lrp-z", "deeplift-rescale"), None),
    "26": (_architectures("piou", SEVENTEEN), None),
    "27": (_architectures("pafl", SEVENTEEN), None),
    "28": (_robust("pafl"), notes.robust("pafl")),
    "29": (_average("piou", "noise"), None),
    "30a": (_focus("simple", _AFL, "noise"), None),
    "30b": (_focus("complex", _AFL, "noise"), None),
    "31": (lambda evidence: pictures.samples(plain(evidence, "real").views), None),
    "32": (_average("piou", "real"), None),
    "33a": (_focus("simple", _AFL, "real"), None),
    "33b": (_focus("complex", _AFL, "real"), None),
}
"""Number -> how it is drawn, and what is seen in it.

Where the paper does not say what a figure of the appendix holds (29, 30, 32, 33), it is the one of the main
text that it repeats on another background.
"""


def _read() -> tuple[Entry, ...]:
    found = tomllib.loads((Path(__file__).parent / "checklist.toml").read_text())["figure"]
    return tuple(
        Entry(
            **{**words, "needs": tuple(map(tuple, words.get("needs", [["plain", "black"]])))},
            draw=DRAWINGS.get(words["number"], (None, None))[0],
            note=DRAWINGS.get(words["number"], (None, None))[1],
        )
        for words in found
    )


CATALOGUE = _read()
"""In the order of the paper."""
