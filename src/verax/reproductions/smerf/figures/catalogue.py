"""The checklist: every figure and table of the paper, what it shows, what it needs, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
_NETS = (("alexnet", "black"), ("vgg16", "black"))
_ROBUST, _NOISE, _REAL = (("robust", "black"),), (("plain", "noise"),), (("plain", "real"),)
_IG, _G = "integrated-gradients@published", "gradient@published"

CATALOGUE = (
    Entry("1", "overview", "Overview", "The idea in a drawing."),
    Entry(
        "2", "piou", "Average and worst-case PIOU", "Mean and smallest PIOU of ten methods; both fall from simple to complex.",
        _average("piou"), notes.drop("piou"),
    ),
    Entry("2b", "pafl", "The same with PAFL", "The twin that the code behind the paper draws too.", _average("pafl"), notes.drop("pafl")),
    Entry(
        "2c", "sound", "The same under the sound protocol", "Not in the paper: raw maps, exact masks, no colours and no blur.",
        _sound, notes.sound,
    ),
    Entry("3", "textbox", "The TextBox world", "The objects in a drawing."),
    Entry("4", "reasonings", "Simple and complex reasonings", "The rules in a drawing."),
    Entry("5", "workflow", "Buckets of Complex-FR", "Scenes are put into buckets and tested one bucket at a time.", _view, notes.accuracy),
    Entry(
        "6a", "simple-afl", "PAFL and SAFL in simple settings",
        "Bars over buckets and lines for scenes with and without the object to ignore.", _focus("simple", _AFL), notes.distraction,
    ),
    Entry(
        "6b", "simple-objects", "AFL by the number of objects", "Primary focus falls with every object that is added.",
        lambda evidence: settings.by_objects(plain(evidence)), notes.objects,
    ),
    Entry(
        "7", "success", "Success and failure", "Share of buckets that succeed, and settings where most fail.",
        lambda evidence: successes.success_and_failure(plain(evidence)), notes.success,
    ),
    Entry("8a", "complex-afl", "PAFL and SAFL in complex settings", "As 6a, with three lines of CR2.", _focus("complex", _AFL), notes.variation),
    Entry("8b", "worst-pafl", "Worst-case PAFL", "The smallest bucket mean, simple and complex (CR2 and CR3 only).", _least("pafl"), notes.worst("pafl")),
    Entry("9", "identify-ig", "Can networks be told apart by their maps?", "Integrated gradients of the seven networks for the same four pictures.", _identify(_IG)),
    Entry("10", "architectures-piou", "Other architectures", "PIOU on VGG16 and AlexNet, simple dotted and complex solid, nine methods.", _architectures("piou", NINE), None, _NETS),
    Entry("11", "robust-piou", "A robust network, PIOU", "Adversarial training helps gradient methods in simple settings.", _robust("piou"), notes.robust("piou"), _ROBUST),
    Entry("12", "backgrounds-pafl", "Worst-case PAFL on real backgrounds", "It falls again, to nearly nothing in complex settings.", _backgrounds, None, _REAL),
    Entry("13", "samples", "One picture of every bucket", "Twelve buckets in seven settings with boxes, label and prediction.", lambda evidence: pictures.samples(plain(evidence).views)),
    Entry("14", "toy-afl-iou", "AFL and IOU on a toy map", "PAFL .75, SAFL .24, PIOU 1, SIOU 0.", lambda evidence: toys.afl_and_iou(), notes.toy, ()),
    Entry("15", "threshold", "IOU against its threshold", "One picture of CR1: .19 at 100 pixels, .49 at 357.", _curve, notes.curve),
    Entry("16", "toy-sweep", "AFL on toy sweeps", "PAFL falls from .985 to .451 while the box grows stronger.", lambda evidence: toys.sweeps(), notes.sweep, ()),
    Entry("17a", "simple-iou", "PIOU and SIOU in simple settings", "As 6a with IOU.", _focus("simple", _IOU)),
    Entry("17b", "simple-objects-iou", "IOU by the number of objects", "As 6b with IOU.", lambda evidence: settings.by_objects(plain(evidence), _IOU)),
    Entry("18a", "complex-iou", "PIOU and SIOU in complex settings", "As 8a with IOU.", _focus("complex", _IOU)),
    Entry("18b", "worst-piou", "Worst-case PIOU", "As 8b with IOU.", _least("piou"), notes.worst("piou")),
    Entry("19", "worst-simple-fr", "Worst buckets of Simple-FR", "Maps of all methods; the smallest PAFL is marked red.", _worst(SIMPLE[0]), notes.common_worst(SIMPLE[0])),
    Entry("20", "worst-simple-nr", "Worst buckets of Simple-NR", "The same.", _worst(SIMPLE[1]), notes.common_worst(SIMPLE[1])),
    Entry("21", "worst-complex-cr2", "Worst buckets of Complex-CR2", "13 of 15 methods are worst in the bucket Box1 and B.", _worst(_CR2), notes.common_worst(_CR2)),
    Entry("22", "bucket-lines", "AFL by kind of scene", "CR1, CR3, CR4 and Complex-FR.", lambda evidence: settings.per_bucket(plain(evidence))),
    Entry("23", "mafl-simple", "PMAFL and SMAFL, simple", "Mean attribution of a pixel in every bucket.", lambda evidence: successes.pixel_focus(plain(evidence), SIMPLE), notes.reversals(SIMPLE)),
    Entry("24", "mafl-complex", "PMAFL and SMAFL, complex", "The same; small boxes often win against the text.", lambda evidence: successes.pixel_focus(plain(evidence), COMPLEX), notes.reversals(COMPLEX)),
    Entry("25", "identify-others", "Can networks be told apart? Other methods", "Gradient, LRP-z and DeepLIFT for the same pictures.", _identify(_G, "lrp-z", "deeplift-rescale")),
    Entry("26", "architectures-piou-all", "Other architectures, PIOU of all methods", "AlexNet and VGG16.", _architectures("piou", SEVENTEEN), None, _NETS),
    Entry("27", "architectures-pafl", "Other architectures, PAFL", "AlexNet and VGG16.", _architectures("pafl", SEVENTEEN), None, _NETS),
    Entry("28", "robust-pafl", "A robust network, PAFL", "As 11 with PAFL.", _robust("pafl"), notes.robust("pafl"), _ROBUST),
    Entry("29", "noise-piou", "Noise behind the objects: PIOU", "As 2 on noise.", _average("piou", "noise"), None, _NOISE),
    Entry("30a", "noise-simple-afl", "Noise: simple settings", "As 6a on noise.", _focus("simple", _AFL, "noise"), None, _NOISE),
    Entry("30b", "noise-complex-afl", "Noise: complex settings", "As 8a on noise.", _focus("complex", _AFL, "noise"), None, _NOISE),
    Entry("31", "real-samples", "Pictures with real backgrounds", "As 13 on photographs.", lambda evidence: pictures.samples(plain(evidence, "real").views), None, _REAL),
    Entry("32", "real-piou", "Real backgrounds: PIOU", "As 2 on photographs.", _average("piou", "real"), None, _REAL),
    Entry("33a", "real-simple-afl", "Real backgrounds: simple settings", "As 6a on photographs.", _focus("simple", _AFL, "real"), None, _REAL),
    Entry("33b", "real-complex-afl", "Real backgrounds: complex settings", "As 8a on photographs.", _focus("complex", _AFL, "real"), None, _REAL),
)  # fmt: skip
"""In the order of the paper. Where the text does not say what a panel of the appendix holds (29, 30, 32, 33), it
is the figure of the main text that it repeats on another background."""
