import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import verax
from verax.cases import Cases, Role
from verax.errors import InvalidParameter, MissingFile, UnknownName, VeraxWarning
from verax.tasks.textbox import TEXTBOX, Kind, Look, Reasoning, TextBox, World, backgrounds, glyphs
from verax.tasks.textbox.settings import SETTINGS

RENDERERS = ("sound", "published")


def test_cases_have_the_promised_form():
    cases = verax.task("textbox/complex-cr1").cases(group=11, n=20, seed=0)
    assert cases.inputs.shape == (20, 3, 64, 64)
    assert cases.inputs.dtype == torch.float32
    assert cases.inputs.min() == 0
    assert cases.inputs.max() == 1
    assert cases.targets.tolist() == [1] * 20
    assert cases.group.tolist() == [11] * 20
    assert len(set(cases.ids.tolist())) == 20
    assert cases.truth.focus.shape == cases.truth.avoid.shape == (20, 64, 64)
    assert cases.truth.focus.dtype == torch.bool


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("background", ["black", "noise:0-99"])
def test_sample_17_is_the_same_alone_and_in_a_crowd(renderer, background):
    task = verax.task("textbox/complex-cr1", renderer=renderer, background=background)
    crowd = task.cases(n=500)
    alone = task.cases(group=11, n=1, start=17)
    where = (crowd.ids == alone.ids).nonzero().item()
    same = crowd[[where]]
    for name in ("inputs", "targets", "group", "ids"):
        assert torch.equal(getattr(same, name), getattr(alone, name))
    assert torch.equal(same.truth.focus, alone.truth.focus)
    assert torch.equal(same.truth.boxes, alone.truth.boxes)
    other = task.cases(group=11, n=1, start=17, seed=1)
    assert not torch.equal(other.inputs, alone.inputs)


def test_all_settings_see_the_same_scenes():
    a = verax.task("textbox/complex-cr1").cases(group=12, n=5)
    b = verax.task("textbox/simple-nr").cases(group=12, n=5)
    assert torch.equal(a.inputs, b.inputs)
    assert not torch.equal(a.truth.focus, b.truth.focus)


@pytest.mark.parametrize("setting", SETTINGS)
def test_masks_follow_the_reasoning(setting):
    task = verax.task(f"textbox/{setting}")
    cases = task.cases(n=10)
    scenes = list(TEXTBOX.scenes())
    area = {"box1": 100, "box2": 16, "A": 104, "B": int((glyphs.LETTERS["B"] > 0).sum())}
    for k in range(len(cases)):
        scene = scenes[int(cases.group[k]) - 1]

        def size(names, scene=scene):
            return sum(area[scene["text"] if n == "text" else n] for n in names)

        assert cases.truth.focus[k].sum() == size(task.reasoning.focus(scene))
        assert cases.truth.avoid[k].sum() == size(task.reasoning.avoid(scene))
        present = {n for n, s in scene.items() if s != "none"}
        roles = {n: int(r) for n, r in zip(cases.truth.names, cases.truth.roles[k], strict=True)}
        assert {n for n, r in roles.items() if r != Role.ABSENT} == present
        # every object is drawn where its mask is, and nothing is drawn elsewhere
        drawn = cases.inputs[k].amax(0) > 0
        assert torch.equal(drawn, cases.truth.objects[k].any(0))
        assert cases.truth.objects[k].sum() == size(present)


def test_sound_objects_are_two_pixels_apart_and_everywhere():
    cases = verax.task("textbox/complex-fr").cases(group=[11, 12], n=2000)
    grown = torch.nn.functional.max_pool2d(cases.truth.objects.float(), 3, 1, 1) > 0
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert not (grown[:, i] & grown[:, j]).any()  # one pixel around each: a gap of two
    corners = cases.truth.boxes[:, :, [0, 2]]
    for k, limit in enumerate([(54, 54), (60, 60), (49, 51)]):
        assert corners[:, k].amin(0).tolist()[0] == 0
        assert corners[:, k].amax(0).tolist() == list(limit)


def test_published_placement():
    task = verax.task("textbox/complex-fr", renderer="published")
    cases = task.cases(group=[11, 12], n=4000)
    box1, box2, text = (cases.truth.boxes[:, k] for k in range(3))
    assert (text[:, 1] - text[:, 0]).unique().tolist() == [19]
    assert (text[:, 3] - text[:, 2]).unique().tolist() == [13]
    assert (int(text[:, [0, 2]].min()), int(text[:, [0, 2]].max())) == (6, 41)
    for box in (box1, box2):
        assert (int(box[:, [0, 2]].min()), int(box[:, [0, 2]].max())) == (0, 53)
    anchor = text[:, [0, 2]] - 6
    assert ((box1[:, [0, 2]] - anchor) ** 2).sum(1).min() > 300
    assert ((box2[:, [0, 2]] - anchor) ** 2).sum(1).min() > 400
    assert ((box2[:, [0, 2]] - box1[:, [0, 2]]) ** 2).sum(1).min() > 300
    objects = cases.truth.objects

    def overlap(i, j):
        return (objects[:, i] & objects[:, j]).flatten(1).any(1).float().mean().item()

    assert overlap(0, 2) == pytest.approx(0.105, abs=0.02)
    assert overlap(1, 2) == pytest.approx(0.065, abs=0.02)
    assert overlap(0, 1) == 0
    # ink lies in rows 4 to 18 of the text box
    top = cases.inputs[0, 0, text[0, 0] : text[0, 1], text[0, 2] : text[0, 3]].amax(1)
    assert top[:4].max() == 0
    assert (top[4:] > 0).all()


def test_published_box1_avoids_the_phantom_text():
    task = verax.task("textbox/simple-fr", renderer="published")
    cases = task.cases(group=7, n=4000)
    corner = cases.truth.boxes[:, 0, [0, 2]].double()
    # the phantom text keeps Box1 away from the middle of the upper left: not uniform
    assert corner.mean() > 27.5
    assert (corner.min(), corner.max()) == (0, 53)


def test_rendering_equals_drawing_one_by_one():
    task = verax.task("textbox/complex-cr4", background="noise")
    cases = task.cases(group=[11, 12], n=8)
    streams = task.streams(cases.ids, 0, "cases")
    layout = task.layout(cases.group, streams)
    behind = task.background.draw(streams, (64, 64)).numpy()
    for n in range(len(cases)):
        canvas = behind[n].copy()
        for k, kind in enumerate(TEXTBOX.kinds):
            state = kind.states[layout.states[n, k]]
            if state == "none":
                continue
            ink = kind.looks[state].ink
            y, x = layout.positions[n, k].tolist()
            for i in range(ink.shape[0]):
                for j in range(ink.shape[1]):
                    canvas[:, y + i, x + j] = canvas[:, y + i, x + j] * (1 - ink[i, j]) + ink[i, j]
        np.testing.assert_allclose(cases.inputs[n].numpy(), canvas, atol=1e-6)


def test_noise_levels():
    cases = verax.task("textbox/simple-fr", background="noise:10-60").cases(group=1, n=50)
    levels = (cases.inputs * 255).round()
    assert (levels.min(), levels.max()) == (10, 60)
    assert torch.allclose(levels / 255, cases.inputs)
    assert not torch.equal(cases.inputs[0], cases.inputs[1])


@pytest.fixture
def photos(tmp_path):
    for k in range(3):
        colour = tuple(int(c) for c in np.random.default_rng(k).integers(50, 255, 3))
        Image.new("RGB", (90 + k, 70), colour).save(tmp_path / f"{k}.png")
    return tmp_path


def test_photos_are_resized_darkened_and_drawn_by_sample(photos):
    task = verax.task("textbox/simple-fr", background=f"folder:{photos}")
    cases = task.cases(group=1, n=200)
    colours = {tuple((c * 255 / 0.7).round().int().tolist()) for c in cases.inputs[:, :, 0, 0]}
    wanted = {Image.open(p).getpixel((0, 0)) for p in photos.iterdir()}
    assert colours == wanted
    assert torch.equal(task.cases(group=1, n=1, start=99).inputs[0], cases.inputs[99])


def test_a_folder_is_known_by_its_content(photos):
    before = verax.task("textbox/simple-fr", background=f"folder:{photos}").fingerprint()
    Image.new("RGB", (9, 9), (1, 2, 3)).save(photos / "0.png")
    assert verax.task("textbox/simple-fr", background=f"folder:{photos}").fingerprint() != before


def test_real_photos():
    folder = os.environ.get("VERAX_DATA")
    if not folder:
        pytest.skip("VERAX_DATA is not set: no real photographs to draw on")
    assert (Path(folder) / "scenes" / "baseball_field").is_dir()
    cases = verax.task("textbox/simple-nr", background="folder:scenes/baseball_field").cases(n=4)
    assert cases.inputs.max() == 1
    assert 0.1 < cases.inputs.mean() < 0.6


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("noize", InvalidParameter),
        ("noise:5", InvalidParameter),
        ("noise:9-3", InvalidParameter),
        ("noise:0-256", InvalidParameter),
        ("folder:", InvalidParameter),
        ("folder:/nowhere/at/all", MissingFile),
    ],
)
def test_bad_backgrounds(spec, error):
    with pytest.raises(error):
        backgrounds.background(spec)


def test_photos_of_16_bits_are_as_light_as_they_look(tmp_path):
    Image.fromarray(np.full((70, 90), 100 * 257, dtype=np.uint16)).save(tmp_path / "grey.png")
    inputs = verax.task("textbox/simple-fr", background=f"folder:{tmp_path}").cases(group=1, n=1).inputs
    assert torch.allclose(inputs, torch.tensor(0.7 * 100 / 255))


def test_bad_photos(tmp_path):
    with pytest.raises(MissingFile, match="holds no images"):
        backgrounds.background(f"folder:{tmp_path}")
    (tmp_path / "a.png").write_bytes(b"not an image")
    with pytest.raises(MissingFile, match="not a readable image"):
        verax.task("textbox/simple-fr", background=f"folder:{tmp_path}").cases(n=1)


def test_bad_requests():
    task = verax.task("textbox/complex-cr1")
    with pytest.raises(InvalidParameter, match="no label"):
        task.cases(group=7)
    with pytest.raises(InvalidParameter, match="no such bucket"):
        task.cases(group=13)
    with pytest.raises(InvalidParameter, match="n must be"):
        task.cases(n=0)
    with pytest.raises(UnknownName, match="did you mean 'textbox/simple-nr'"):
        verax.task("textbox/simple-nx")
    with pytest.raises(UnknownName, match="did you mean 'published'"):
        verax.task("textbox/simple-fr", renderer="publishd")
    with pytest.raises(InvalidParameter, match="'colour'"):
        verax.task("textbox/simple-fr", colour="red")


def test_own_world():
    lamps = World(
        "lamps",
        (
            Kind("lamp", {"red": Look.box(6, 6, (1, 0, 0)), "green": Look.box(5, 4, (0, 1, 0))}),
            Kind.plain("cross", Look([[0, 1, 0], [1, 0.5, 1], [0, 1, 0]], colour=(0, 0, 1))),
        ),
        canvas=(32, 48),
    )
    task = TextBox(
        "lamps/first", Reasoning.parse("lamp = red -> 2; lamp = green -> 1; otherwise -> 0", lamps)
    )
    cases = task.cases(n=50)
    assert task.classes == 3
    assert cases.inputs.shape == (300, 3, 32, 48)
    assert set(cases.targets.tolist()) == {0, 1, 2}
    red = cases[(cases.targets == 2).nonzero()[:, 0]]
    assert torch.equal(red.inputs[:, 0] == 1, red.truth.focus)
    assert torch.equal(red.inputs[:, 2] > 0, red.truth.avoid)
    with pytest.raises(InvalidParameter, match="published"):
        TextBox("lamps/second", task.reasoning, renderer="published").cases(n=1)


def test_a_world_that_is_too_crowded_says_so():
    big = [Kind.plain(f"k{i}", Look.box(30, 30)) for i in range(5)]
    world = World("crowd", tuple(big))
    with pytest.raises(InvalidParameter, match="do not fit"):
        TextBox("crowd/1", Reasoning.parse("k0 -> 1; otherwise -> 0", world)).cases(group=32, n=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Look([[0.0]]),
        lambda: Look([[2.0]]),
        lambda: Look([[float("nan")]]),
        lambda: Look([[1.0]], colour=(2, 0, 0)),
        lambda: Look.box(0, 3),
        lambda: Kind.plain("and", Look.box(2, 2)),
        lambda: Kind("x", {}),
        lambda: World("w", ()),
        lambda: World("w", (Kind.plain("a", Look.box(2, 2)),) * 2),
        lambda: World("w", (Kind.plain("a", Look.box(65, 2)),)),
        lambda: World("w", tuple(Kind.plain(f"a{i}", Look.box(1, 1)) for i in range(13))),
    ],
)
def test_impossible_worlds_are_refused(make):
    with pytest.raises(InvalidParameter):
        make()


def test_cases_can_be_taken_apart_and_joined():
    cases = verax.task("textbox/simple-nr").cases(n=3)
    joined = Cases.concatenate([cases[:10], cases[10:]])
    assert torch.equal(joined.inputs, cases.inputs)
    assert torch.equal(joined.truth.roles, cases.truth.roles)
    assert len(cases[[1, 5]]) == 2


# -- textures --------------------------------------------------------------------------------------------


def test_textures_belong_to_samples_and_look_like_nature():
    task = verax.task("textbox/simple-fr", background="texture")
    cases = task.cases(group=1, n=60)
    assert torch.equal(task.cases(group=1, n=1, start=41).inputs[0], cases.inputs[41])
    assert not torch.equal(cases.inputs[0], cases.inputs[1])
    assert cases.inputs.max() <= 0.7
    assert torch.allclose((cases.inputs * 255 / 0.7).round() * 0.7 / 255, cases.inputs, atol=1e-6)
    # amplitudes fall with the frequency, as in photographs; those of white noise do not
    power = torch.fft.fft2(cases.inputs - cases.inputs.mean((2, 3), keepdim=True)).abs().mean((0, 1))
    rings = [float(power[0, a:b].mean()) for a, b in ((1, 3), (4, 8), (10, 20), (24, 32))]
    assert rings == sorted(rings, reverse=True)
    assert rings[0] > 4 * rings[-1]
    channels = cases.inputs.flatten(2)
    same = torch.stack([torch.corrcoef(sample)[0, 1] for sample in channels])
    assert 0.3 < float(same.nanmean()) < 0.98  # coloured, but not a rainbow


def test_textures_fit_any_canvas_and_stay_behind_the_objects():
    dot = World("dots", (Kind.plain("dot", Look.box(3, 3)),), canvas=(30, 47))
    task = TextBox("dots/1", Reasoning.parse("dot -> 1; otherwise -> 0", dot), background="texture")
    cases = task.cases(group=2, n=5)
    assert cases.inputs.shape == (5, 3, 30, 47)
    assert (cases.inputs.amin(1)[cases.truth.focus] == 1).all()
    assert cases.inputs.amax(1)[~cases.truth.focus].max() <= 0.7


def test_noise_is_that_of_the_paper_unless_asked_otherwise():
    assert backgrounds.background("noise") == backgrounds.Noise(0, 150)
    assert backgrounds.background("noise:0-99").spec == "noise:0-99"


def test_a_look_of_a_file_is_told_how_to_be_read():
    with pytest.raises(InvalidParameter, match=r"not a file: read 'cross\.png' with numpy\.asarray\(PIL"):
        Look("cross.png")
    with pytest.raises(InvalidParameter, match="matrix of numbers from 0 to 1, not list"):
        Look([["a"]])


def test_labels_that_never_occur_are_a_warning():
    with pytest.warns(VeraxWarning, match=r"never gives label 0: .* Count labels from 0\."):
        TextBox("mine", Reasoning.parse("box1 -> 1; otherwise -> 2"))
    with pytest.warns(VeraxWarning, match="never gives labels 1, 2"):
        TextBox("mine", Reasoning.parse("box1 -> 3; otherwise -> 0"))
