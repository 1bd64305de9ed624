"""Reports: what the page says, what it must never hold, and runs with something missing.

The runs are made up: no network is needed to know what a page has to show.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import re
import shutil
import tomllib
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from made_up_reports import BARE, CHANCE, ONE, REFERENCES, SIZE, Made, build
from verax import reports
from verax.files import write_atomically
from verax.metrics import METRICS
from verax.reports import boards, figures, gallery, grids
from verax.reports.repetition import about, command
from verax.reports.verdicts import disagreements, verdict
from verax.studies import runs, spec, tables
from verax.studies.runs import Run


def text_of(page: str) -> str:
    """What a reader sees."""
    plain = re.sub(r"<style>.*?</style>|<script.*?</script>", " ", page, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", plain)).split())


def boards_of(page: str) -> list[list[list[str]]]:
    """The cells of every leaderboard table, row by row."""
    found = []
    for table in re.findall(r'<table class="board">.*?<tbody>(.*?)</tbody>', page, re.S):
        rows = re.findall(r"<tr.*?</tr>", table, re.S)
        cells = [re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row, re.S) for row in rows]
        found.append([[text_of(cell) for cell in row] for row in cells])
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = build(tmp_path_factory.mktemp("runs") / "plain")
    run.report()
    return run


@pytest.fixture(scope="module")
def page(plain: Run) -> str:
    return (plain.folder / "report.html").read_text()


# ---- the page -------------------------------------------------------------------------------------------


def test_page_names_every_method_and_task(page):
    text = text_of(page)
    for name in ("good", "bad", *REFERENCES, "world/easy", "world/hard", "made-up", "A made-up study."):
        assert name in text
    assert "verax.run('made-up.toml')" in text  # no command knows these tasks


def without_scripts(page: str) -> str:
    """The page without its own script elements: data, charting library, charts, wide tables and explorer."""
    rest, count = re.subn(r"<script[^>]*>.*?</script>", "", page, flags=re.S)
    assert count == 5
    return rest


def test_page_runs_its_own_scripts_and_loads_nothing(page):
    rest = without_scripts(page)
    assert "<script" not in rest.lower()
    assert not re.search(r"\son\w+\s*=", rest)
    assert "@import" not in rest
    assert "url(" not in rest
    addresses = re.findall(r"""(?:src|href|srcset)\s*=\s*["']?([^"'\s>]+)""", rest)
    assert len(addresses) > 10
    assert all(address.startswith(("data:image/", "#")) for address in addresses)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    allowed = re.search(r"script-src ([^;]+)", policy[1])[1].split()
    scripts = re.findall(r"<script>(.*?)</script>", page, re.S)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert allowed == [f"'sha256-{digest}'" for digest in digests]


def test_page_reads_on_dark_and_small_and_printed_paper(page):
    assert "light-dark(" in page
    assert 'name="viewport" content="width=device-width' in page
    assert "@media print" in page


def test_every_picture_has_words(page):
    tags = re.findall(r"<img[^>]*>", page)
    assert tags
    assert all(re.search(r'alt="[^"]+"', tag) for tag in tags)


def test_hostile_names_are_escaped(tmp_path):
    evil = "<script>alert(1)</script>"
    quote = '"><img src=http://evil.example/x onerror=alert(2)>'
    made = Made(
        methods={evil: 0.8, quote: 0.3, "price $x^{$": 0.2},
        tasks={"<b>task</b>": "<i>family</i>"},
        name=evil,
        description="</title><script>alert(3)</script>",
        failed=(("<b>task</b>", quote),),
    )
    page = build(tmp_path / "run", made).report().read_text()
    assert "<script" not in without_scripts(page).lower()
    assert "<img src=http" not in page
    for name in (evil, "<b>task</b>", "<i>family</i>"):
        assert name not in page
        assert html.escape(name, quote=False).replace("'", "&#39;") in page
    assert evil in text_of(page)
    inside = (tmp_path / "run" / "figures").iterdir()
    assert all(re.fullmatch(r"\d\d-[a-z0-9-]+\.(svg|png)", path.name) for path in inside)


@pytest.mark.parametrize("protocol", ["sound", "published"])
def test_table_shows_the_numbers_of_the_leaderboard(plain, page, protocol):
    tables = boards_of(page)
    assert len(tables) == 4
    offset = 0 if protocol == "sound" else 2
    for table, family in zip(tables[offset : offset + 2], ("simple", "complex"), strict=True):
        board = plain.leaderboard(protocol, family=family)
        assert [row[1] for row in table] == list(board["method"])
        for row, (_, expected) in zip(table, board.iterrows(), strict=True):
            assert row[0] == ("" if pd.isna(expected["rank"]) else str(expected["rank"]))
            for cell, name, low, high in (
                (row[2], "value", "low", "high"),
                (row[3], "worst", "worst_low", "worst_high"),
                (row[4], "skill", "skill_low", "skill_high"),
            ):
                found = [float(x) for x in re.findall(r"-?\d+\.\d+", cell)]
                wanted = [] if pd.isna(expected[name]) else [expected[name], expected[low], expected[high]]
                assert found == pytest.approx(wanted, abs=5.01e-4)
            assert row[5] == str(expected["degenerate"])


def test_success_table_shows_the_numbers_of_the_success_map(plain, page):
    section = page.partition('<section id="success">')[2].partition('<section id="shares">')[0]
    tables = re.findall(r"<tbody>(.*?)</tbody>", section, re.S)
    for table, protocol in zip(tables, ("sound", "published"), strict=True):
        expected = plain.success_map(protocol).set_index(["task", "method"])
        rows = [
            re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row, re.S)
            for row in re.findall(r"<tr>.*?</tr>", table, re.S)
        ]
        assert len(rows) == len(expected)
        for row in rows:
            wanted = expected.loc[(text_of(row[1]), text_of(row[0]))]
            for cell, name in ((row[3], "success"), (row[4], "failure")):
                found = [float(x) for x in re.findall(r"\d+\.\d+", text_of(cell))]
                assert found == pytest.approx(
                    [wanted[name + end] for end in ("", "_low", "_high")], abs=5.01e-3
                )


def test_references_are_marked_and_have_no_rank(page):
    rows = re.findall(r'<tr class="(\w+)"><td class="number">(\d*)</td><th scope="row">(\w+)', page)
    kinds = {method: (kind, rank) for kind, rank, method in rows}
    assert kinds["oracle"] == ("oracle", "")
    assert kinds["input"] == ("control", "")
    assert kinds["good"] == ("method", "1")


def test_facts(tmp_path):
    made = replace(BARE, wrong=(("world/easy", 2, 0), ("world/easy", 2, 3)))
    text = text_of(build(tmp_path / "run", made).report().read_text())
    for fact in (
        "tasks 2",
        "networks 2",
        "certificates passed 2 of 2",
        "samples 36",
        "samples with a focus, scored 34",
        "samples the network got wrong 2",
        "failures 0",
        "seconds of computing, by the clock 12",
        "units taken from the store 4 of 10",
    ):
        assert fact in text


# ---- what the page says ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "skill", "high", "said"),
    [
        (0.01, 0.02, 0.03, " That is better than the best control, input,"),
        (-0.01, 0.02, 0.05, " That is not clearly better than the best control, input,"),
        (-0.05, -0.02, 0.01, " That is not clearly better than the best control, input,"),
        (-0.05, -0.02, -0.01, " That is worse than the best control, input,"),
    ],
)
def test_verdict_is_honest_about_the_control(tmp_path, low, skill, high, said):
    board = build(tmp_path / "run", BARE).leaderboard(family="complex")
    board.loc[board["method"] == "good", ["skill_low", "skill", "skill_high"]] = low, skill, high
    sentence = verdict(board, "complex", "sound")
    assert sentence.startswith("On complex tasks, good comes first: 0.8")
    assert said in sentence
    assert f"(skill {skill:.2f} [{low:.2f}, {high:.2f}])" in sentence


@pytest.mark.parametrize(("skill", "said"), [(-2.75, "lies below"), (0.4, "lies above"), (0.0, "equals")])
def test_verdict_without_an_interval_doubts_nothing_and_promises_nothing(tmp_path, skill, said):
    board = build(tmp_path / "run", BARE).leaderboard(family="complex")
    columns = ["skill_low", "skill", "skill_high", "low", "high"]
    board.loc[board["method"] == "good", columns] = np.nan, skill, np.nan, np.nan, np.nan
    sentence = verdict(board, "complex", "sound")
    assert (
        f" That {said} the best control, input, which never looks at the network (skill {skill:.2f})."
        in sentence
    )
    assert "too few for an interval" in sentence


def test_verdict_needs_no_references(tmp_path):
    board = build(tmp_path / "run", BARE).leaderboard(family="complex")
    board[["skill_low", "skill", "skill_high"]] = np.nan
    assert "control" not in verdict(board, "complex", "sound")
    assert verdict(None, "complex", "sound") == "On complex tasks no method could be ranked."


def test_verdict_on_one_method_claims_no_victory(tmp_path):
    run = build(tmp_path / "run", replace(BARE, methods={"alone": 0.4}))
    sentence = verdict(run.leaderboard(family="complex"), "complex", "sound")
    assert sentence.startswith("On complex tasks, alone is the only method with a rank: 0.4")
    assert "That is worse than the best control, input," in sentence
    said = disagreements(
        {(p, "complex"): run.leaderboard(p, family="complex") for p in ("sound", "published")},
        run.scores,
        run.families,
    )
    assert not any("rank" in words for words in said)  # one method cannot be two ranks apart


def test_verdict_says_what_failed(tmp_path):
    board = build(tmp_path / "run", BARE).leaderboard(family="complex")
    assert verdict(board, "complex", "sound", ["lost", "lost"]).endswith(" lost failed and has no rank.")
    assert "failed" not in verdict(board, "complex", "sound", ["good"])  # it has a rank here
    words = verdict(None, "complex", "sound", ["a", "b", "c", "d"])
    assert words == "On complex tasks no method could be ranked: a, b and 2 others failed."


def test_verdicts_of_equals_share_the_place(tmp_path):
    board = build(tmp_path / "run", BARE).leaderboard(family="complex")
    board.loc[board["method"].isin(["good", "bad"]), "rank"] = 1
    sentence = verdict(board, "complex", "exact")
    assert "good and bad share the first place: their maps correlate with the exact truth at 0.8" in sentence


def test_page_opens_with_the_verdict_on_complex_tasks(plain, page):
    said = [verdict(plain.leaderboard(family=family), family, "sound") for family in ("complex", "simple")]
    text = text_of(page)
    assert -1 < text.index(said[0]) < text.index(said[1]) < text.index("Leaderboard")


def test_verdict_names_methods_that_cannot_be_told_apart(tmp_path):
    made = Made(methods={"good": 0.8, "twin": 0.801, "bad": 0.1}, maps=False)
    sentence = verdict(build(tmp_path / "run", made).leaderboard(), "all", "sound")
    assert re.search(r"The interval overlaps with that of (good|twin): their order may be chance\.", sentence)
    apart = Made(methods={"good": 0.8, "bad": 0.1}, maps=False)
    assert "overlaps" not in verdict(build(tmp_path / "other", apart).leaderboard(), "all", "sound")


def test_disagreements_of_the_protocols_are_named(tmp_path):
    methods = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6, "e": 0.55}
    paper = {"a": 0.3, "b": 0.4, "c": 0.45, "d": 0.1, "e": 0.2, "oracle": 0.45}
    swapped = Made(methods, paper, maps=False)
    run = build(tmp_path / "run", swapped)
    boards = {
        (p, f): run.leaderboard(p, family=f) for p in ("sound", "published") for f in ("simple", "complex")
    }
    said = " ".join(disagreements(boards, run.scores, run.families))
    assert "a (rank 1 and 3) and c (rank 3 and 1)" in said
    assert not re.search(r"[bde] \(rank", said)  # one rank is no disagreement
    assert "In 3 of 3 simple buckets even the oracle" in said
    agreeing = build(tmp_path / "other", Made(methods, maps=False))
    boards = {key: agreeing.leaderboard(key[0], family=key[1]) for key in boards}
    said = " ".join(disagreements(boards, agreeing.scores, agreeing.families))
    assert "no rank differs by two or more" in said
    assert "The oracle passes the success threshold of 0.5 in all 3 simple buckets" in said


def test_command_repeats_the_study():
    preset = spec.study("smerf-quick").model_dump()
    assert command(preset) == ("verax run smerf-quick", "")
    fewer = {**preset, "tasks": preset["tasks"][:2], "samples": 3}
    assert command(fewer)[0].startswith("verax run smerf-quick --tasks textbox/simple-fr,textbox/simple-nr")
    assert "--samples 3" in command(fewer)[0]
    other = {**preset, "certify": 0, "description": 'a "quoted" \\ line\nand \x7f more'}
    other["methods"] = [
        {"name": "gradient", "label": "grad, it", "parameters": {"a": 1, "b": True, "c": 0.5}}
    ]
    line, text = command(other)
    assert line == "verax run smerf-quick.toml"
    assert spec.build(tomllib.loads(text), "the file").model_dump() == other


def test_a_changed_preset_is_not_described_as_if_it_were_the_whole(tmp_path):
    preset = spec.study("smerf-quick").model_dump()
    assert about(preset) == preset["description"] != ""
    fewer = {**preset, "tasks": preset["tasks"][:2], "samples": 3}
    assert about(fewer) == "The study smerf-quick with other tasks and samples than it comes with."
    own = {**fewer, "description": "Mine."}
    assert about(own) == "Mine."
    assert about({**own, "name": "mine"}) == "Mine."
    folder = build(tmp_path / "run", ONE).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["study"] |= {"name": "smerf-quick", "description": preset["description"]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    text = text_of(Run(folder).report().read_text())
    assert preset["description"] not in text.partition("To repeat it")[0]
    assert "The study smerf-quick with other tasks" in text


# ---- runs with something missing ------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["sound", "published"])
def test_one_protocol(tmp_path, protocol):
    page = build(tmp_path / "run", replace(BARE, protocols=(protocol,))).report().read_text()
    assert len(boards_of(page)) == 2
    assert 'id="published"' not in page
    assert ('id="shares"' in page) == (protocol == "sound")
    assert ("pafl" in text_of(page)) == (protocol == "published")


def test_no_certificates(tmp_path, page):
    bare = text_of(build(tmp_path / "run", replace(BARE, certify=0)).report().read_text())
    assert "This study made no certificates" in bare
    assert "certificates passed none made" in bare
    assert "made no certificates" not in text_of(page)


def test_failed_certificate_is_a_warning(tmp_path, page):
    text = text_of(build(tmp_path / "run", replace(BARE, passed=False)).report().read_text())
    assert "truth is in doubt: world/easy, world/hard" in text
    assert "not passed" in text
    assert "in doubt" not in text_of(page)


def test_failures_are_listed_and_shown(tmp_path):
    both = (("world/easy", "bad"), ("world/hard", "bad"))
    page = build(tmp_path / "run", replace(BARE, failed=both)).report().read_text()
    assert "world/hard net seed 0: bad : bad raised <Boom> & co" in text_of(page)
    assert all([row for row in table if row[1] == "bad failed"] for table in boards_of(page))
    assert "raised <Boom>" not in page


def test_method_that_failed_on_one_task_is_not_a_zero(tmp_path):
    run = build(tmp_path / "run", Made(failed=(("world/hard", "bad"),)))
    page = run.report().read_text()
    rows = re.findall(r'<tr><th scope="row">bad</th><td>world/hard</td>(.*?)</tr>', page, re.S)
    assert len(rows) == 2
    assert all(text_of(row).endswith("– –") for row in rows)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.S)[1])
    assert {sheet["task"]: sheet["absent"] for sheet in data["sheets"]} == {
        "world/easy": [],
        "world/hard": ["bad"],
    }


def test_own_methods_are_told_how_to_be_defined(tmp_path):
    folder = build(tmp_path / "run", ONE).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    chosen = next(entry for entry in manifest["methods"] if entry["label"] == "good")
    chosen["family"] = "own"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    text = text_of(Run(folder).report().read_text())
    for words in ('@verax.method("NAME")', "functions of (model, inputs, targets)", "methods=[function]"):
        assert words in text


def test_one_task_of_its_own(tmp_path):
    page = build(tmp_path / "run", ONE).report().read_text()
    assert "On your own tasks, good comes first" in text_of(page)
    assert len(boards_of(page)) == 2


def test_no_maps(tmp_path, page):
    bare = build(tmp_path / "run", BARE).report().read_text()
    assert 'id="gallery"' not in bare
    assert 'id="gallery"' in page


def test_methods_that_share_no_bucket_are_not_ranked(tmp_path):
    tasks = {"world/easy": "simple", "world/hard": "simple"}
    apart = (("world/easy", "bad"), ("world/hard", "good"))
    text = text_of(build(tmp_path / "run", replace(BARE, tasks=tasks, failed=apart)).report().read_text())
    assert "On simple tasks no method could be ranked: bad and good failed." in text


def test_many_methods_with_long_names(tmp_path):
    many = {f"a-method-with-quite-a-long-name-{i:02d}": 0.1 + 0.02 * i for i in range(40)}
    path = build(tmp_path / "run", replace(ONE, methods=many, protocols=("sound",))).report()
    text = text_of(path.read_text())
    assert all(name in text for name in many)
    assert path.stat().st_size < 6e6
    board = Image.open(path.parent / "figures" / "01-leaderboard-sound-own.png")
    assert board.height > 40 * 30  # a row of its own for every label


# ---- figures and gallery --------------------------------------------------------------------------------


def test_figures_are_written_as_svg_and_png(plain):
    names = sorted(path.name for path in (plain.folder / "figures").iterdir())
    stems = {name.rpartition(".")[0] for name in names}
    assert len(names) == 2 * len(stems)
    for wanted in (
        "leaderboard-sound-simple",
        "leaderboard-published-complex",
        "success-sound",
        "success-published",
        "shares-complex",
        "gallery-world-easy",
    ):
        assert sum(stem[3:] == wanted for stem in stems) == 1
    first = Image.open(plain.folder / "figures" / "01-leaderboard-sound-simple.png")
    assert np.asarray(first.convert("L")).std() > 5


def test_rewriting_gives_the_same_bytes_and_leaves_nothing_old(tmp_path):
    run = build(tmp_path / "run", ONE)
    path = run.report()
    assert path == run.folder / "report.html"
    before = path.read_bytes()
    figure = run.folder / "figures" / "01-leaderboard-sound-own.svg"
    drawing = figure.read_bytes()
    write_atomically(run.folder / "figures" / "77-shares-gone.svg", b"old")
    write_atomically(run.folder / "figures" / "my-own.svg", b"keep")
    assert Run(run.folder).report().read_bytes() == before
    assert figure.read_bytes() == drawing
    assert not (run.folder / "figures" / "77-shares-gone.svg").exists()
    assert (run.folder / "figures" / "my-own.svg").read_bytes() == b"keep"


def test_reports_never_hold_all_scores(tmp_path, monkeypatch):
    """A run may have more rows than fit into memory: tables are made of the metrics that they need."""
    held = build(tmp_path / "held")
    assert len(held.scores)
    pages = [held.report().read_bytes()]
    streamed = build(tmp_path / "streamed")
    monkeypatch.setattr(tables, "read", lambda *given: pytest.fail("all scores were read"))
    monkeypatch.setattr(runs, "_KEPT", 1)  # nothing but what was read last is kept
    pages.append(streamed.report().read_bytes())
    assert len(streamed._read) == 1
    assert pages[0] == pages[1]
    figures.hero(streamed)
    assert streamed.truths().empty
    pd.testing.assert_frame_equal(streamed.success_map("sound"), held.success_map("sound"))
    pd.testing.assert_frame_equal(streamed.contents, held.contents)
    assert "scores" not in vars(streamed)


def test_shares_agree_with_the_leaderboard(plain):
    means = figures.share_means(plain.scores, ["world/hard"])
    board = plain.leaderboard(family="complex").set_index("method")
    assert means["focus"].to_dict() == pytest.approx(board["value"].to_dict())
    assert means.sum(axis=1).to_numpy() == pytest.approx(1.0)


def test_chance_is_the_share_of_a_constant_map(plain):
    assert figures.chance_level(plain.scores, ["world/easy"]) == pytest.approx(CHANCE)
    bare = plain.scores[plain.scores["metric"] != "focus-share/normalised"]
    assert figures.chance_level(bare, ["world/easy"]) is None


def test_dark_pictures_differ_only_in_colour(plain):
    picture = (plain.folder / "figures" / "01-leaderboard-sound-simple.svg").read_bytes()
    light, dark = reports.themed(picture, False), reports.themed(picture, True)
    assert light != dark
    assert reports.INK.encode() in light
    assert reports.INK.encode() not in dark
    assert len(light.splitlines()) == len(dark.splitlines())


def test_gallery_scores_belong_to_the_pictured_sample(plain):
    scores = plain.scores
    for panel in gallery.panels(plain):
        for row in panel.rows:
            for tile in row.tiles:
                found = scores[
                    (scores["task"] == panel.task)
                    & (scores["method"] == tile.method)
                    & (scores["metric"] == "focus-share")
                    & (scores["sample"] == row.group * 10**9)
                ]
                assert tile.score == f"{found['value'].item():.2f}"


@pytest.mark.parametrize("protocols", [("sound",), ("sound", "published")])
def test_wrong_first_sample_has_no_score_and_is_not_mistaken_for_the_second(tmp_path, protocols):
    made = Made(protocols=protocols, wrong=(("world/hard", 2, 0), ("world/hard", 3, 1)))
    rows = {row.group: row for row in gallery.panels(build(tmp_path / "run", made))[1].rows}
    assert {tile.score for tile in rows[2].tiles} == {"wrong"}
    assert "wrong" not in {tile.score for tile in rows[3].tiles}


def test_gallery_prefers_buckets_with_focus_and_avoid():
    focus, avoid = np.zeros((2, 6, 4, 4), dtype=bool)
    focus[1:, 0, 0] = True
    avoid[3:, 3, 3] = True
    assert gallery.select(focus, avoid, 3) == [3, 4, 5]
    assert gallery.select(focus, avoid, 4) == [2, 3, 4, 5]
    assert gallery.select(focus, avoid, 9) == [1, 2, 3, 4, 5]
    assert gallery.select(focus[:1], avoid[:1], 4) == [0]


def test_maps_are_drawn_symmetrically_with_a_neutral_zero():
    values = np.array([[-1.0, -0.25, 0.0, 0.25, 1.0, np.nan]])
    low, quarter, zero, back, high, missing = gallery.levels(values)[0].astype(int)
    assert (low, zero, high) == (0, 50, 100)
    assert quarter + back == 100
    assert back == 75
    assert missing == zero
    colour = gallery.palette()[zero].astype(int)
    assert colour.min() > 240
    assert np.ptp(colour) < 5


def test_truth_is_outlined_outside_the_objects():
    focus, avoid = np.zeros((2, SIZE, SIZE), dtype=bool)
    focus[2:4, 2:4] = True
    drawn = gallery.with_truth(np.zeros((3, SIZE, SIZE), dtype=np.uint8), focus, avoid)
    blue = tuple(bytes.fromhex(reports.FOCUS[1:]))
    marked = (drawn == blue).all(-1)
    zoom = drawn.shape[0] // SIZE
    assert marked.any()
    assert not marked[2 * zoom : 4 * zoom, 2 * zoom : 4 * zoom].any()
    again = Image.open(io.BytesIO(gallery.png(drawn)))
    assert (np.asarray(again.convert("RGB")) == drawn).all()


def test_hero(plain, tmp_path):
    picture = Image.open(io.BytesIO(reports.png(figures.hero(plain), dpi=100)))
    assert picture.size == (1200, 500)
    shutil.copy(plain.folder / "scores.parquet", tmp_path)
    shutil.copy(plain.folder / "manifest.json", tmp_path)
    bare = Image.open(io.BytesIO(reports.png(figures.hero(Run(tmp_path)), dpi=100)))
    assert (np.asarray(bare)[:, :300] != np.asarray(picture)[:, :300]).any()


def test_labels_fit_and_unknown_letters_do_not_warn(tmp_path):
    assert len(reports.short("x" * 99)) <= 30
    assert reports.short("two\nlines\x00") == "two lines"
    assert reports.folded("deeplift-reveal-cancel", 17) == "deeplift-reveal-\ncancel"
    assert reports.folded("lrp-z", 17) == "lrp-z"
    assert reports.folded("x" * 40, 17) == reports.short("x" * 40, 17)
    assert all(len(line) <= 17 for line in reports.folded("a-" + "x" * 99, 17).split("\n"))
    assert reports.short("method steps=1" + "0" * 30) != reports.short("method steps=2" + "0" * 29 + "1")
    assert reports.task_labels(["w/a", "w/b"]) == ["a", "b"]
    assert reports.task_labels(["w/a", "v/a"]) == ["w/a", "v/a"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        build(tmp_path / "run", replace(ONE, methods={"方法 🙂": 0.8, "$\\frac{$": 0.2})).report()


def test_metrics_named_here_exist():
    for name in ("focus-share", "focus-share/normalised", "avoid-share", "other-share", "background-share"):
        assert METRICS.get(name).protocol == "sound"
    assert METRICS.get("pafl").protocol == METRICS.get("safl").protocol == "published"


def test_certificates_and_provenance_are_shown(page):
    text = text_of(page)
    assert "world/hard net 0 1.000 [0.929, 1.000] n = 50, needs 0.99 0.985 needs 0.97 1234 ✓ passed" in text
    for fact in ("c0de" * 16, "ab" * 32, "steps = 7", "3.0 s (83.3 ms a map)", "torch 2.13", "device cpu"):
        assert fact in text


def test_the_verdict_says_where_own_methods_stand():
    board = pd.DataFrame(
        {
            "method": ["good", "mine", "oracle"],
            "rank": pd.array([1, 2, None], dtype="Int64"),
            "value": [0.8, 0.5, 1.0],
            "low": [0.7, 0.4, 1.0],
            "high": [0.9, 0.6, 1.0],
            "skill": [0.5, 0.1, np.nan],
            "skill_low": [0.4, 0.0, np.nan],
            "skill_high": [0.6, 0.2, np.nan],
            "control": "input",
            "degenerate": 0,
            "samples": 9,
        }
    )
    said = verdict(board, "complex", "sound", own=["mine"])
    assert "Your own: mine, rank 2 of 2 with 0.50 [0.40, 0.60]." in said
    assert "Your own" not in verdict(board, "complex", "sound", own=["good"])  # named first already
    assert "Your own" not in verdict(board, "complex", "sound")


@pytest.mark.parametrize(("columns", "own"), [(["a"], True), (["a", "b"], True), (["a", "b", "c"], False)])
def test_grids_of_few_columns_are_not_as_wide_as_the_page(columns, own):
    rows = [{"method": "m", "task": name, "value": 0.5, "low": 0.4, "high": 0.6} for name in columns]
    spec = grids.heat("n", "t", rows, across="task", columns=columns, methods=["m"]).spec
    assert ("width" in spec) == own
    slant = spec["layer"][0]["encoding"]["x"]["axis"]["labelAngle"]
    assert (slant == 0) == (len(columns) == 1)


def test_a_chart_is_shown_as_it_is_where_the_main_protocol_has_no_board():
    """No answer of a network was right, so that one protocol has no scores, and another has."""
    digest = SimpleNamespace(headline="simple", main="sound", boards={})
    chart, other = object(), object()
    parts = [{"family": "complex", "chart": other}, {"family": "simple", "chart": chart}]
    assert boards.hero(digest, [], parts, shelf=None) == [chart]
