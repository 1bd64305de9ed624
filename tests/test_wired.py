"""Wired networks: right on every scene by construction, and open to every method."""

import itertools

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d
from typer.testing import CliRunner

import verax
from verax import Kind, Look, Reasoning, TextBox, World
from verax.cli.main import app
from verax.errors import InvalidParameter, MissingFile
from verax.networks import library, templates
from verax.networks.templates import detectors
from verax.networks.wired import terms, wire
from verax.tasks.textbox import TEXTBOX
from verax.tasks.textbox.settings import SETTINGS

XOR = "box1 and not box2 -> 1; box2 and not box1 -> 1; otherwise -> 0"
THREE = "text = A and box1 -> 2; text = B or box2 -> 1; otherwise -> 0"
REASONINGS = {**{name: text for name, (_, text) in SETTINGS.items()}, "xor": XOR, "three": THREE}
SCENES = 840  # in each of the 12 buckets: 10,080


def cross_world() -> World:
    cross = Look(np.array([[0, 1, 0], [1, 1, 1], [0, 1, 0]]).repeat(3, 0).repeat(3, 1))
    return World("crosses", (*TEXTBOX.kinds, Kind.plain("cross", cross)))


def lamps() -> World:
    looks = {"red": Look.box(6, 6, (1, 0, 0)), "green": Look.box(6, 6, (0, 1, 0)), "white": Look.box(6, 6)}
    return World("lamps", (Kind("lamp", looks), Kind.plain("bar", Look.box(2, 9))))


def bits_of(model, pictures):
    with torch.no_grad():
        return torch.cat([model[:4](part) for part in pictures.split(128)])


def two_strongest(pictures, detector):
    """The two largest responses of a detector in each picture, objects half outside the kernel included."""
    kernel, reach = detector.kernel[None], max(detector.kernel.shape)
    parts = [conv2d(part.float(), kernel.float(), padding=reach) for part in pictures.split(16)]
    return torch.cat(parts).flatten(1).topk(2, dim=1).values


@pytest.fixture(scope="module")
def scenes():
    """10,080 scenes of all buckets and what the detectors, which all reasonings share, say of them."""
    task = TextBox("all", "text = A -> 1; otherwise -> 0")
    cases = task.cases(n=SCENES, seed=3)
    return cases.group, bits_of(wire(task), cases.inputs), wire(task)


@pytest.mark.parametrize("name", REASONINGS)
def test_a_wired_network_follows_its_reasoning_on_ten_thousand_scenes(name, scenes):
    groups, bits, other = scenes
    task = TextBox(f"my/{name}", REASONINGS[name])
    model = wire(task)
    assert torch.equal(model[0].weight, other[0].weight)  # so the bits are this network's, too
    assert torch.equal(model[0].bias, other[0].bias)
    labels = task.labels(groups)
    with torch.no_grad():
        outputs = model[4:](bits)
    known = labels >= 0
    wanted = torch.nn.functional.one_hot(labels.clamp(min=0), task.classes) * known[:, None]
    assert len(groups) >= 10_000
    assert torch.equal(outputs.argmax(1)[known], labels[known])
    assert float((outputs - wanted).abs().max()) < 1e-4  # the logits themselves are exact, undefined ones 0


@pytest.mark.parametrize("n", [20, pytest.param(420, marks=pytest.mark.slow)])
def test_a_world_with_a_new_object_is_wired_as_well(n):
    rule = "cross and text = A -> 1; cross and not text -> 2; otherwise -> 0"
    task = TextBox("my/cross", Reasoning.parse(rule, cross_world()))
    cases = task.cases(n=n)
    assert len(cases) == 24 * n  # 10,080 with the larger n
    model = wire(task)
    with torch.no_grad():
        outputs = model[4:](bits_of(model, cases.inputs))
    assert torch.equal(outputs.argmax(1), cases.targets)


def test_colours_are_told_apart():
    task = TextBox(
        "my/lamps", Reasoning.parse("lamp = red -> 2; lamp = green or bar -> 1; otherwise -> 0", lamps())
    )
    cases = task.cases(n=50)
    with torch.no_grad():
        assert torch.equal(task.network("wired")(cases.inputs).argmax(1), cases.targets)


@pytest.mark.parametrize("world", [TEXTBOX, cross_world(), lamps()], ids=lambda world: world.name)
def test_no_scene_reaches_a_response_between_the_rival_and_the_exact_one(world):
    """The bound that the threshold rests on, against scenes that were really drawn."""
    first = world.kinds[0]
    state = next(iter(first.looks))
    task = TextBox("bound", Reasoning.parse(f"{first.name} = {state} -> 1; otherwise -> 0", world))
    cases = task.cases(n=4, seed=1)
    present = cases.truth.roles >= 0
    for detector in detectors(world):
        peaks = two_strongest(cases.inputs, detector)
        scene_states = [list(world.scenes())[g - 1][world.names[detector.kind]] for g in cases.group.tolist()]
        there = torch.tensor([state == detector.state for state in scene_states])
        assert there.any()
        assert bool(present[:, detector.kind][there].all())
        assert torch.allclose(peaks[there, 0], torch.tensor(detector.exact), atol=1e-3)
        assert float(peaks[there, 1].max()) <= detector.rival + 1e-3
        assert float(peaks[~there, 0].max()) <= detector.rival + 1e-3


def test_the_rival_is_the_worst_of_all_placements_by_brute_force():
    """A small canvas on which every placement can be listed."""
    pair = World("pair", (Kind.plain("dot", Look.box(1, 1)), Kind.plain("bar", Look.box(1, 3))), (6, 7))
    drawn = []
    for dot, bar in itertools.product(
        itertools.product(range(6), range(7)), itertools.product(range(6), range(5))
    ):
        for both in ((1, 1), (1, 0), (0, 1)):
            if both == (1, 1):
                apart_rows = abs(dot[0] - bar[0]) >= 3
                if not (apart_rows or dot[1] + 3 <= bar[1] or bar[1] + 5 <= dot[1]):
                    continue
            picture = torch.zeros(6, 7, dtype=torch.float64)
            if both[0]:
                picture[dot] = 1
            if both[1]:
                picture[bar[0], bar[1] : bar[1] + 3] = 1
            drawn.append((both, picture))
    pictures = torch.stack([p for _, p in drawn])[:, None].expand(-1, 3, -1, -1)
    for detector, index in zip(detectors(pair), (0, 1), strict=True):
        there = torch.tensor([bool(both[index]) for both, _ in drawn])
        two = two_strongest(pictures, detector)
        assert torch.allclose(two[there, 0], torch.tensor(detector.exact))
        worst = max(float(two[~there, 0].max()), float(two[there, 1].max()))
        assert worst <= detector.rival + 1e-4
        assert worst == pytest.approx(detector.rival, abs=1e-4)  # and it is not too careful, either


def test_terms_are_disjoint_complete_and_ask_only_what_matters():
    for text in REASONINGS.values():
        reasoning = Reasoning.parse(text)
        listed = terms(reasoning)
        for scene in TEXTBOX.scenes():
            holding = [label for label, term in listed if all(scene[n] in s for n, s in term.items())]
            label = reasoning.label(scene)
            assert holding == ([] if label is None else [label])
    cr1 = Reasoning.parse(SETTINGS["complex-cr1"][1])
    assert {frozenset(term) for _, term in terms(cr1)} == {
        frozenset({"box1", "box2"}),
        frozenset({"text", "box2"}),
    }


def test_an_object_that_cannot_matter_has_no_influence_at_all():
    task = verax.task("textbox/simple-fr")
    model, cases = task.network("wired"), task.cases(group=12, n=4)
    maps = verax.explain(model, cases.inputs, cases.targets, method="gradient")
    ignored = cases.truth.objects[:, 1:].any(1)[:, None].expand_as(maps)
    assert float(maps[ignored].abs().max()) == 0
    assert float(maps.abs().flatten(1).amax(1).min()) > 0


def test_the_published_renderer_is_followed_wherever_ink_stands_apart():
    task = TextBox("my/published", REASONINGS["complex-cr1"], renderer="published")
    cases = task.cases(n=100)
    ink = TextBox("my/published", REASONINGS["complex-cr1"]).renderer  # rectangles by ink
    streams = task.streams(cases.ids, 0, "cases")
    layout = task.layout(cases.group, streams)
    shift = torch.tensor([task.renderer.offset(kind) for kind in task.world.kinds])
    corners = layout.positions + shift
    sizes = torch.tensor([kind.size for kind in task.world.kinds])
    near = torch.zeros(len(cases), dtype=torch.bool)
    for i, j in itertools.combinations(range(3), 2):
        gap = torch.maximum(
            corners[:, i] - corners[:, j] - sizes[j], corners[:, j] - corners[:, i] - sizes[i]
        )
        near |= layout.present[:, i] & layout.present[:, j] & (gap.amax(1) < 2)
    with torch.no_grad():
        right = task.network("wired")(cases.inputs).argmax(1) == cases.targets
    assert ink.name == "sound"
    assert bool(right[~near].all())
    assert bool(near.any())
    assert not bool(right.all())  # overlapping objects do hide each other, so that nothing is promised there


@pytest.mark.parametrize(
    "method",
    ["gradient", "integrated-gradients", "lrp-epsilon", "lrp-a", "deep-taylor", "deeplift-rescale",
     "deeplift-reveal-cancel", "guided-backprop", "deconvnet", "grad-cam", "input-x-gradient"],
)  # fmt: skip
def test_methods_run_on_it_unmodified_and_see_something(method):
    task = verax.task("textbox/complex-cr1")
    cases = task.cases(group=10, n=3)
    maps = verax.explain(task.network("wired"), cases.inputs, cases.targets, method=method)
    assert bool(maps.isfinite().all())
    assert float(maps.abs().flatten(1).amax(1).min()) > 0


def test_input_times_gradient_is_the_truth_of_a_wired_network():
    task = verax.task("textbox/complex-cr1")
    cases = task.cases(group=[8, 11, 12], n=5)
    maps = verax.explain(task.network("wired"), cases.inputs, cases.targets, method="input-x-gradient")
    scores = verax.score(maps, cases)
    assert scores["focus-share"].min() > 1 - 1e-9
    assert scores["avoid-share"].max() < 1e-9


def test_the_certificate_is_perfect():
    task = verax.task("textbox/complex-cr2")
    certificate = verax.certify(task.network("wired"), task, n=10)
    assert (certificate.worst_accuracy, certificate.worst_follow) == (1.0, 1.0)
    done = CliRunner().invoke(app, ["certify", "textbox/complex-cr2", "--network", "wired", "--samples", "3"])
    assert done.exit_code == 0
    assert "worst bucket 1.000" in done.output.replace("\n", " ")


def test_a_study_has_one_wired_network_whatever_the_seeds_and_its_hash_follows_the_reasoning(tmp_path):
    study = {"name": "w", "methods": ["gradient"], "samples": 1, "certify": 2, "networks": ["wired"]}
    run = verax.run(study, tasks=["textbox/simple-fr"], seeds=[0, 1], out=tmp_path / "run", quiet=True)
    assert [(n["network"], n["seed"]) for n in run.manifest["networks"]] == [("wired", 0)]
    assert run.manifest["certificates"][0]["worst_follow"] == 1.0
    first, second = (
        library.sha256(TextBox("same", REASONINGS[n]), "wired", None) for n in ("simple-fr", "xor")
    )
    assert run.manifest["networks"][0]["sha256"] == first != second


def test_what_cannot_be_wired_is_refused_in_one_sentence():
    with pytest.raises(InvalidParameter, match="'black' only, not 'noise:0-150'"):
        verax.task("textbox/simple-fr", background="noise").network("wired")
    twins = World("twins", (Kind.plain("left", Look.box(3, 3)), Kind.plain("right", Look.box(3, 3))))
    with pytest.raises(InvalidParameter, match="look too much like 'left'"):
        wire(Reasoning.parse("left -> 1; otherwise -> 0", twins))
    with pytest.raises(InvalidParameter, match="not trained"):
        verax.train(verax.task("textbox/simple-fr"), "wired", quiet=True)


def test_where_placements_are_too_many_the_rival_is_too_high_rather_than_too_low(monkeypatch):
    searched = [detector.rival for detector in templates.detectors(TEXTBOX)]
    found = templates._candidates
    kinds = [
        [found(templates.kernel(look), k, s if k is kind else None) for k in TEXTBOX.kinds]
        for kind in TEXTBOX.kinds
        for s, look in kind.looks.items()
    ]
    monkeypatch.setattr(templates, "_MOST", 0)
    careful = [templates._rival(listed) for listed in kinds]
    assert careful == [pytest.approx(sum(kind.most for kind in listed)) for listed in kinds]
    assert all(bound >= exact for bound, exact in zip(careful, searched, strict=True))


def test_who_lacks_weights_is_told_of_what_needs_none(tmp_path):
    with pytest.raises(MissingFile, match="take 'wired', which needs no training, or train one: verax train"):
        library.require(verax.task("textbox/complex-cr1"), "cnn4", 77, tmp_path)
    with pytest.raises(MissingFile, match="shipped networks know 'sound' and 'black' only\\); train one"):
        library.require(verax.task("textbox/complex-cr1", background="noise"), "cnn4", 77, tmp_path)
