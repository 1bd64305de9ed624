"""What notebooks show: pictures and tables, escaped, and `verax.show`."""

import base64
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from markupsafe import escape
from matplotlib.figure import Figure
from PIL import Image

import verax
from made_up_runs import scores, write
from verax.errors import InvalidInput, InvalidParameter, VeraxError
from verax.reports import AVOID, BACKGROUND, FOCUS, INK, METHOD, MUTED, PAPER, RULE, gallery, inline, notebook
from verax.reports.showing import show
from verax.reports.verdicts import verdict
from verax.studies import listings
from verax.studies.listings import Listing

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def cases():
    return verax.task("textbox/complex-cr1").cases(n=1, seed=0)


def _pictures(html):
    """The pictures of a fragment, opened; those inside a drawing among them."""
    found = re.findall(r'(?:src|href)="data:image/(\w+);base64,([^"]+)"', html)
    return [(kind, base64.b64decode(re.sub(r"\s", "", data))) for kind, data in found]


def _drawings(html):
    """How many drawings a fragment has; each takes its colours from the page and says what it shows."""
    heads = re.findall(r"<svg[^>]*>", html)
    assert all('role="img"' in head and 'aria-label="' in head for head in heads)
    for colour in (PAPER, INK, MUTED, RULE, METHOD, BACKGROUND):
        assert colour not in html
    assert html.count("var(--jp-content-font-color1, currentcolor)") >= len(heads)
    return len(heads)


def test_show_draws_input_truth_and_maps_on_the_colours_of_the_gallery(cases, tmp_path):
    some = cases[torch.tensor([5, 7])]
    maps = {"truth": some.truth.ideal.float(), "against": -some.truth.ideal.float() * 7}
    picture = show(maps, some)
    assert len(picture.rows) == 2
    for place, (title, tiles) in enumerate(picture.rows):
        assert [tile.name for tile in tiles] == ["input and truth", "truth", "against"]
        assert title == verax.task("textbox/complex-cr1").describe(int(some.group[place]))
        colours = gallery.palette()
        focus = some.truth.focus[place].numpy()
        assert (tiles[1].pixels[focus] == colours[-1]).all()  # the strongest is the end of the scale
        assert (tiles[2].pixels[focus] == colours[0]).all()
        assert (tiles[1].pixels[~focus] == colours[len(colours) // 2]).all()
        assert tiles[1].caption == "1.00"
        seen = {tuple(c) for c in tiles[0].pixels.reshape(-1, 3).tolist()}
        assert tuple(bytes.fromhex(FOCUS[1:])) in seen
        assert (tuple(bytes.fromhex(AVOID[1:])) in seen) == bool(some.truth.avoid[place].any())
    for name in ("p.png", "p.svg", "p.html"):
        assert picture.save(tmp_path / name).stat().st_size > 1000
    assert Image.open(tmp_path / "p.png").size[0] > 300
    (kind, data) = _pictures(picture._repr_html_())[0]
    assert kind == "png"
    assert np.asarray(Image.open(io.BytesIO(data))).std() > 0
    assert "focus-share" in picture.legend


def test_show_takes_what_explain_gives(cases):
    some = cases[:3]
    one = show(torch.randn(*some.inputs.shape), some, titles=["a", "b", EVIL], scores=False)
    assert [title for title, _ in one.rows] == ["a", "b", EVIL]
    assert EVIL not in one._repr_html_()
    assert EVIL not in show({EVIL: torch.zeros(3, *some.inputs.shape[2:])}, some)._repr_html_()
    assert len(show(np.zeros(some.inputs.shape), some, most=2).rows) == 2
    assert show(None, cases, most=7).rows[1][1][0].caption  # seven inputs need two lines


def test_show_says_what_does_not_fit(cases, tmp_path):
    with pytest.raises(InvalidInput, match="do not fit"):
        show(torch.zeros(2, 5, 5), cases)
    with pytest.raises(InvalidInput, match="2 titles for"):
        show(None, cases, titles=["a", "b"])
    with pytest.raises(InvalidInput, match="no cases"):
        show(None, cases[:0])
    with pytest.raises(InvalidParameter, match="whole number from 1"):
        show(None, cases, most=0)
    with pytest.raises(InvalidParameter, match=r"\.png"):
        show(None, cases[:1]).save(tmp_path / "p.gif")


def test_show_says_what_to_call_for_a_run(cases, tmp_path):
    run = verax.Run(write(tmp_path / "run", scores()))
    with pytest.raises(InvalidInput, match=r"run\.report\(\)"):
        verax.show(run)
    with pytest.raises(InvalidInput, match=r"show\(maps, cases\)"):
        verax.show(torch.zeros(1, 3, 3))
    assert repr(verax.show(cases)) == repr(verax.show(None, cases))


def test_vectors_are_shown_on_their_grid():
    task = verax.task("climate/analytic")
    some = task.cases(n=2)
    picture = verax.show({"twice": some.truth.values * 2}, some)
    tiles = picture.rows[0][1]
    assert [tile.name for tile in tiles] == ["input field", "truth", "twice"]
    assert tiles[1].pixels.shape == (*task.grid.shape, 3)
    assert (tiles[1].pixels == tiles[2].pixels).all()  # each relative to its strongest value
    assert tiles[2].caption == "1.00"


def test_cases_and_runs_have_pictures(cases, tmp_path):
    html = cases._repr_html_()
    assert [kind for kind, _ in _pictures(html)] == ["png"]
    assert "textbox/complex-cr1" in html
    run = verax.Run(write(tmp_path / "a & b", scores(methods=("gradient", EVIL, "oracle")), study=EVIL))
    html = run._repr_html_()
    assert _drawings(html) == 1
    assert EVIL not in html
    assert "&lt;script&gt;" in html
    assert "a &amp; b" in html


def test_a_run_says_the_verdict_on_each_family_and_pools_none(tmp_path):
    tasks = ("textbox/simple-fr", "textbox/complex-cr1")
    table = scores(tasks=tasks, methods=("gradient", "lrp-a", "random", "oracle"))
    hard = (table["task"] == tasks[1]) & (table["method"] == "lrp-a")
    table.loc[hard, "value"] = 0.02  # first on one family, last on the other
    folder = write(tmp_path / "run", table)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["tasks"][1]["family"] = "complex"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    run = verax.Run(folder)
    html = run._repr_html_()
    assert _drawings(html) == 2
    said = [verdict(run.leaderboard(family=family), family, "sound") for family in ("complex", "simple")]
    assert "gradient comes first" in said[0]
    assert "lrp-a comes first" in said[1]
    places = [html.index(str(escape(sentence))) for sentence in said]
    assert places == sorted(places)  # the family that the report leads with
    pooled = run.leaderboard().set_index("method")["value"]["lrp-a"]
    assert f"{pooled:.3f}" not in html


def test_leaderboards_print_method_score_and_skill_first(tmp_path, monkeypatch):
    run = verax.Run(write(tmp_path / "run", scores()))
    for width in ("80", "100", "200"):
        monkeypatch.setenv("COLUMNS", width)
        board = run.leaderboard()
        head, line, *_ = str(board).split("\n")
        assert head.split()[:3] == ["method", "value", "skill"]
        best = board.iloc[0]
        assert line.startswith(f"{best['method']} ")
        line = next(line for line in str(board).split("\n") if line.startswith("lrp-a"))
        row = board.set_index("method").loc["lrp-a"]
        for name, low, high in (("value", "low", "high"), ("skill", "skill_low", "skill_high")):
            assert f"{row[name]:.3f} [{row[low]:.3f}, {row[high]:.3f}]" in line
        assert max(map(len, str(board).split("\n"))) <= int(width)
    assert isinstance(board, pd.DataFrame)
    assert list(board.columns[:4]) == ["rank", "method", "value", "low"]
    assert board["value"].dtype == float
    assert type(board[["method", "value"]]) is pd.DataFrame
    assert type(board.sort_values("value")) is pd.DataFrame
    assert "skill" in board._repr_html_()
    board["note"] = EVIL
    assert "note" in str(board)
    assert EVIL not in board._repr_html_()
    del board["skill_low"]
    assert "skill_high" in str(board)


def test_certificates_have_pictures():
    from verax.networks import library

    task = verax.task("textbox/simple-fr")
    certificate = verax.certify(library.network(task, "cnn3", 0), task, n=3)
    html = certificate._repr_html_()
    assert _drawings(html) == 1
    assert "the network passes" in html
    assert html.count("<tr>") == len(certificate.accuracy) + len(certificate.interventions) + 2


def test_fits_have_pictures():
    import pandas as pd

    from verax.networks.fits import Fit, Limits

    numbers = {"value": [0.9, 0.5], "low": [0.8, 0.4], "high": [1.0, 0.6], "limit": [0.8, 0.6]}
    measures = pd.DataFrame({"measure": ["r2", EVIL], **numbers})
    html = Fit("task", measures, pd.DataFrame(), (0.1, 0.1), 5, Limits(), 0)._repr_html_()
    assert EVIL not in html
    assert _drawings(html) == 1
    assert "FAILS" in html


def test_alignments_show_what_was_marked_and_shown():
    import pandas as pd

    from verax.metrics.alignment import SCORES
    from verax.studies.alignments import Alignment
    from verax.studies.thumbnails import encoded, thumbnails

    marked, shown = torch.zeros(2, 40, 40, dtype=torch.bool), torch.zeros(2, 40, 40, dtype=torch.bool)
    marked[:, 5:20, 5:20], shown[:, 15:30, 15:30] = True, True
    shown[1], shown[1, 22:30, 22:30] = True, False  # all but a hole, which has the only edge
    columns = {f"{name}{end}": [0.2, 0.4] for name in SCORES[:2] for end in ("", "/random", "/centre")}
    table = pd.DataFrame({"id": [EVIL, "b"], "label": [0, 1], "prediction": [0, 0], "right": [True, False],
                          "area": [0.1, 0.1], "shown": [0.1, 0.9],
                          "empty": [False, False], "flat": [False, False], **columns})  # fmt: skip
    regions = list(zip(encoded(marked), encoded(shown), strict=True))
    pictures = thumbnails([0, 1], torch.rand(2, 3, 40, 40), regions)
    html = Alignment(table, {"model": EVIL, "data": "d", "method": "grad-cam"}, pictures)._repr_html_()
    assert EVIL not in html
    found = _pictures(html)
    assert len(found) == 2
    for place, (_, picture) in enumerate(found):
        pixels = np.asarray(Image.open(io.BytesIO(picture)))
        plain = np.asarray(Image.open(io.BytesIO(base64.b64decode(pictures[place]["image"]))))
        for at in (2, 12, 26, 35):  # the middle of a pixel; what is not shown is darker
            factor = 1 if shown[place, at, at] else 0.55
            wanted = plain[at, at].astype(float) * factor
            assert np.abs(pixels[round((at + 0.5) * 7.5), round((at + 0.5) * 7.5)] - wanted).max() < 1.5
        for colour in (FOCUS, AVOID):
            assert (pixels == tuple(bytes.fromhex(colour[1:]))).all(-1).any()


def test_differences_have_pictures(tmp_path):
    one = write(tmp_path / "one", scores())
    html = verax.compare(one, write(tmp_path / "two", scores(noise=1)))._repr_html_()
    assert _drawings(html) == 1
    assert "won : lost" in html


def test_show_says_scenes_and_what_it_drops(cases):
    task = verax.task("textbox/complex-cr1")
    one = task.cases(group=task.groups[3], n=2)
    assert [title for title, _ in show(one.truth.ideal.float(), one).rows] == [
        task.describe(task.groups[3])
    ] * 2
    own = verax.TextBox("own/unknown", "box1 -> 1; otherwise -> 0").cases(group=7, n=2)
    assert [title for title, _ in show(own.truth.ideal.float(), own).rows] == ["bucket 7"] * 2
    some = show(cases.truth.ideal.float(), cases, most=4)
    assert f"4 of {len(cases)} cases shown" in some._repr_html_()
    assert repr(some) == f"Picture(4 of {len(cases)} cases, 2 pictures of each)"
    alone = show(None, cases, most=7)  # two rows of pictures side by side
    assert f"7 of {len(cases)} cases shown" in alone.legend
    assert repr(alone) == f"Picture(7 of {len(cases)} cases, 1 picture of each)"
    assert repr(show(None, cases[:1])) == "Picture(1 case, 1 picture of each)"
    assert "shown" not in show(None, cases[:7]).legend


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_maps_of_own_photographs_are_shown(channels, tmp_path):
    inputs = torch.linspace(-2, 2, 3 * channels * 20 * 30).reshape(3, channels, 20, 30)  # as if normalised
    maps = {"one": torch.randn(3, channels, 20, 30), "two": np.random.default_rng(0).random((3, 20, 30))}
    picture = show(maps, inputs, titles=torch.tensor([4, 5, 6]))
    assert [title for title, _ in picture.rows] == ["4", "5", "6"]
    for _, tiles in picture.rows:
        assert [tile.name for tile in tiles] == ["input", "one", "two"]
        assert tiles[0].pixels.shape == tiles[1].pixels.shape == (20, 30, 3)
        assert (tiles[0].pixels.min(), tiles[0].pixels.max()) == (0, 255)
    assert "truth" not in picture.legend
    assert "focus" not in picture.legend
    assert picture.save(tmp_path / "own.png").stat().st_size > 1000
    assert [title for title, _ in show(maps, inputs.numpy(), most=2).rows] == ["input 1", "input 2"]
    plain = show(maps["one"], inputs.clamp(0, 0.5)).rows[2][1][0].pixels
    assert plain.max() == 128  # what is in [0, 1] stays as it is
    assert len(show(None, inputs).rows[0][1]) == 3
    vectors = show(torch.randn(2, 9), torch.randn(2, 9))
    assert [tile.name for tile in vectors.rows[0][1]] == ["input field", "map"]


@pytest.mark.parametrize(
    ("maps", "inputs", "words"),
    [
        (torch.zeros(2, 5, 5), torch.zeros(2, 3, 6, 6), "do not fit"),
        (torch.zeros(2, 5, 5), None, r"show\(maps, inputs\)"),
        (torch.zeros(2, 5, 5), "photos", "not str"),
        (torch.zeros(2, 5, 5), torch.nn.Linear(2, 2), "not Linear"),
        ("gradient", torch.zeros(2, 3, 5, 5), "'map' must be a tensor"),
        (torch.zeros(3, 5, 5), torch.zeros(3, 5, 5), "pictures"),
        (torch.zeros(0, 5), torch.zeros(0, 5), "no cases"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(maps, inputs, words):
    with pytest.raises(VeraxError, match=words):
        show(maps, inputs)


def test_numbers_of_things_read_well(tmp_path):
    one = write(tmp_path / "one", scores(tasks=("textbox/simple-fr",), methods=("gradient", "random")))
    two = write(tmp_path / "two", scores(tasks=("textbox/simple-fr",), methods=("lrp-a", "random")))
    run = verax.Run(one)
    assert "'made-up', 1 task, " in repr(run)
    assert "1 task, 1 of 1 network certified" in run._repr_html_()
    assert "2 tasks" in repr(verax.Run(write(tmp_path / "more", scores())))
    nothing = verax.compare(one, two).sentence()
    assert "0 tests" not in nothing
    assert "Nothing was tested" in nothing
    assert "among 1 test (Holm" in verax.compare(one, write(tmp_path / "same", run.scores)).sentence()


def test_a_run_that_cannot_be_ranked_says_why(tmp_path):
    run = verax.Run(write(tmp_path / "one", scores(methods=("gradient",), metric="avoid-share")))
    assert "focus-share" in notebook.run(run)


def test_names_in_drawings_are_drawn_and_not_written(tmp_path):
    """A name can hold anything, and a drawing is part of the notebook's page."""
    evil = '"></svg><img src=x onerror=alert(1)> url(#a) #1c2128'
    run = verax.Run(write(tmp_path / "run", scores(methods=("gradient", evil, "oracle"))))
    html = run._repr_html_()
    assert "<img" not in html
    assert html.count("</svg>") == _drawings(html.replace("#1c2128</td>", "")) == 1
    assert inline(Figure(), '"><b>').startswith('<svg role="img" aria-label="&#34;&gt;&lt;b&gt;"')


def test_listings_print_everything():
    table = Listing(
        {"name": ["a", "b"], "n": [1, 20], "x": [0.12345, np.nan], "about": ["word " * 9, "short"]}
    )
    wide, narrow = listings.text(table, 200), listings.text(table, 40)
    assert wide.split("\n")[1:] == [f"a      1  0.123  {('word ' * 9).strip()}", "b     20      –  short"]
    assert max(map(len, narrow.split("\n"))) <= 40
    assert narrow.count("word") == 9
    blocks = listings.text(table, 20).split("\n\n")
    assert len(blocks) > 1
    assert all(block.startswith("name") for block in blocks)
    assert repr(table).startswith("name")
    assert type(table[["n"]]) is pd.DataFrame
    assert ("word " * 9).strip() in table._repr_html_()
    assert listings.text(table[:0], 40).split() == ["name", "n", "x", "about"]
