"""The explorer in a real browser: what is drawn, what can be done, and that nothing leaves the page."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import made_up_runs
import verax
from made_up_reports import LATITUDES, LONGITUDES, Made, build, build_climate
from verax.reports import claims, gallery, globes, pages, sheets
from verax.reproductions import explorers
from verax.reproductions import pages as reproductions
from verax.reproductions.workers import Crew
from verax.studies.standings import standings

EVIL = "</script><img src=x onerror=window.hacked=1>{{7*7}}${alert(1)}'\""
WIDTHS = [400, 1600]
BAD = ("error", "warning")


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("continuous integration needs a browser: apt-get install chromium")
        pytest.skip("no browser is installed: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


class Tab:
    """A page that keeps what went wrong in it and what it asked for."""

    def __init__(
        self, browser, path: Path, width: int = 1600, scheme: str = "light", anchor: str = ""
    ) -> None:
        context = browser.new_context(
            viewport={"width": width, "height": 1000}, color_scheme=scheme, reduced_motion="reduce"
        )
        self.page, self.faults, self.requests = context.new_page(), [], []
        self.page.on(
            "console", lambda m: self.faults.append(m.text) if m.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri() + anchor)
        self.page.wait_for_selector("#viewer canvas, #grid figure")
        if self.page.locator("figure[data-chart]").count():
            self.page.wait_for_selector("html[data-ready]")

    def draw_all(self) -> int:
        """Scroll through the page until every chart is drawn; how many there are."""
        figures = self.page.locator("figure[data-chart]")
        for number in range(figures.count()):
            figures.nth(number).scroll_into_view_if_needed()
            self.page.wait_for_function(
                "n => document.querySelectorAll('figure[data-chart]')[n].dataset.drawn", arg=number
            )
        return figures.count()

    def asked(self) -> list[str]:
        """What was asked for beyond the file itself and what it holds."""
        return [url for url in self.requests[1:] if not url.startswith("data:")]

    def close(self) -> None:
        self.page.context.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    made = Made(methods={"good": 0.8, "fair": 0.5, "bad": 0.2}, networks=("net", "other"))
    return build(tmp_path_factory.mktemp("explorer") / "run", made).report()


@pytest.fixture
def tab(browser, report):
    opened = Tab(browser, report)
    yield opened
    assert opened.faults == []
    assert opened.asked() == []
    opened.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_charts_are_drawn_and_fit(browser, report, width, scheme):
    tab = Tab(browser, report, width, scheme)
    assert tab.draw_all() >= 12
    for chart in tab.page.locator("figure[data-chart] .canvas").all():
        assert chart.locator("svg path, svg text").count() > 5
    wide = tab.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, "the page scrolls sideways"
    assert tab.faults == []
    assert tab.asked() == []
    tab.close()


def test_numbers_show_on_hover_and_as_a_table(tab):
    figure = tab.page.locator("figure[data-chart=leaderboard-sound-complex]").last
    figure.scroll_into_view_if_needed()
    figure.locator("svg").wait_for()
    figure.locator(".mark-symbol path").first.hover()
    said = dict(zip(*[iter(tab.page.locator(".tip").inner_text().split("\n"))] * 2, strict=True))
    assert said["method"] == "oracle"
    assert said["mean"] == "1.000"
    assert said["skill"] == "–"
    figure.locator("summary").click()
    rows = figure.locator("details tbody tr")
    rows.first.wait_for()  # a browser says only later that something was opened
    assert rows.count() == 6  # three methods, two controls, the oracle
    assert "good" in figure.locator("details tbody").inner_text()


def test_charts_are_saved(tab):
    figure = tab.page.locator("figure[data-chart=shares-complex]")
    figure.scroll_into_view_if_needed()
    figure.locator("svg").wait_for()
    for kind, begins in (("svg", "<svg"), ("csv", "method,region,place,share")):
        with tab.page.expect_download() as found:
            figure.locator(f"[data-save={kind}]").click()
        text = Path(found.value.path()).read_text()
        assert text.startswith(begins)
        assert "var(" not in text  # a file has no page to take colours from
        assert "good" in text


def test_a_task_is_chosen_in_the_profiles(tab):
    figure = tab.page.locator("figure[data-chart=profiles]")
    figure.scroll_into_view_if_needed()
    figure.locator("svg").wait_for()
    before = figure.locator("svg").inner_html()
    figure.locator("select").select_option("world/hard")
    figure.locator("summary").click()
    tab.page.wait_for_function(
        "old => document.querySelector('figure[data-chart=profiles] svg').innerHTML !== old", arg=before
    )
    assert "world/easy" not in figure.locator("tbody").inner_text()


def test_gallery_picks_sorts_and_links(browser, report, tab):
    page = tab.page
    assert page.locator("#viewer .scene-block").count() == 3
    page.locator("#g-task").select_option("world/hard")
    page.locator("#g-bucket").select_option("2")
    assert page.locator("#viewer .scene-block").count() == 1
    page.locator("#g-bucket").select_option("")
    page.locator("#g-sort").select_option("worst")
    means = [float(text.rpartition(": ")[2]) for text in page.locator("#viewer h3 .note").all_inner_texts()]
    assert means == sorted(means)
    page.locator("#g-sort").select_option("disagreement")
    gaps = [float(text.rpartition(": ")[2]) for text in page.locator("#viewer h3 .note").all_inner_texts()]
    assert gaps == sorted(gaps, reverse=True)
    page.locator("#g-beside").select_option("1")
    assert page.locator("#viewer .scene-block").first.locator(".scene").count() == 2
    page.locator(".picker summary").click()
    page.locator("[data-pick=none]").click()
    assert "at least one" in page.locator("#viewer").inner_text()
    page.locator("#pick-list input").first.check()
    assert page.locator("#viewer .scene").first.locator("button.map").count() == 1
    address = page.evaluate("location.hash")
    again = Tab(browser, report, anchor=address)
    for control in ("task", "beside", "sort"):
        ours, theirs = (one.locator(f"#g-{control}").input_value() for one in (page, again.page))
        assert ours == theirs
    assert again.page.locator("#viewer .scene").first.locator("button.map").count() == 1
    again.close()


def test_a_long_gallery_shows_its_rest_when_asked(browser, tmp_path):
    path = build(tmp_path / "run", Made(tasks={"mine": "own"}, groups=(1, 2, 3, 4, 5, 6))).report()
    tab = Tab(browser, path)
    scenes = tab.page.locator("#viewer .scene-block")
    assert scenes.count() == 4
    assert "4 of 6 buckets" in tab.page.locator("#viewer .rest").inner_text()
    tab.page.get_by_role("button", name="Show all 6").click()
    assert scenes.count() == 6
    assert tab.page.locator("#viewer .rest").count() == 0
    again = Tab(browser, path, anchor=tab.page.evaluate("location.hash"))
    assert again.page.locator("#viewer .scene-block").count() == 6
    for one in (tab, again):
        assert one.faults == []
        one.close()


@pytest.mark.parametrize("width", [360, 400, 1400])
def test_legends_are_not_cut(browser, tmp_path, width):
    made = Made(methods={"deeplift-reveal-cancel": 0.8, "bad": 0.2})  # a long name leaves little room
    tab = Tab(browser, build(tmp_path / "run", made).report(), width)
    tab.draw_all()
    cut = tab.page.evaluate(
        """() => [...document.querySelectorAll("figure[data-chart] svg")].flatMap((svg) => {
          const outer = svg.getBoundingClientRect();
          const out = (box) => box.right > outer.right + 1 || box.left < outer.left - 1;
          return [...svg.querySelectorAll(".role-legend-label text")]
            .filter((text) => out(text.getBoundingClientRect())).map((text) => text.textContent);
        })"""
    )
    assert cut == []
    tab.close()


def test_a_chart_of_a_single_family_is_drawn_once(browser, climate, report):
    for path, times in ((climate, 1), (report, 2)):  # two families stand side by side
        tab = Tab(browser, path)
        first = tab.page.locator(".screen figure[data-chart]").first.get_attribute("data-chart")
        assert tab.page.locator(f"figure[data-chart={first}]").count() == times
        link = tab.page.locator("#leaderboard .note a")
        assert link.count() == 2 - times
        if link.count():
            assert tab.page.locator(link.get_attribute("href")).is_visible()
        tab.close()


def test_a_map_opens_in_large_and_closes_by_keyboard(tab):
    tab.page.locator("#viewer button.map").first.focus()
    tab.page.keyboard.press("Enter")
    assert tab.page.locator("#large-pictures canvas").count() == 2
    tab.page.keyboard.press("Escape")
    assert not tab.page.locator("#large").is_visible()


def test_arrows_lead_from_map_to_map(browser, report, tab):
    page, said = tab.page, tab.page.locator("#large-title")
    page.locator("#viewer button.map").first.focus()
    page.keyboard.press("Enter")
    first = said.inner_text()
    assert page.get_by_role("button", name="← method").is_disabled()
    page.keyboard.press("ArrowLeft")  # there is nothing before the first
    assert said.inner_text() == first
    page.keyboard.press("ArrowRight")
    second = said.inner_text()
    names = [
        text.split("\n")[1]
        for text in page.locator("#viewer .scene").first.locator("button.map + figcaption").all_inner_texts()
    ]
    assert (first.partition(" on ")[0], second.partition(" on ")[0]) == (names[0], names[1])
    page.get_by_role("button", name="↓ scene").click()
    assert said.inner_text() == second.replace("bucket 1", "bucket 2")
    again = Tab(browser, report, anchor=page.evaluate("location.hash"))
    assert again.page.locator("#large").is_visible()
    assert again.page.locator("#large-title").inner_text() == said.inner_text()
    again.close()
    page.keyboard.press("Escape")
    # a dialog gives the focus back first, and the page moves it to the map that was looked at last
    page.wait_for_function(
        "name => document.activeElement?.querySelector('canvas')?.ariaLabel.startsWith(`map of ${name}`)",
        arg=names[1],
    )
    assert "map=" not in page.evaluate("location.hash")


def test_tiles_are_cut_where_they_belong(tab):
    """The pixels of every tile are those of its own map."""
    same = tab.page.evaluate(
        """async () => {
          const data = JSON.parse(document.getElementById("data").textContent);
          const sheet = data.sheets.find((one) => one.task === document.getElementById("g-task").value);
          const image = new Image();
          image.src = sheet.maps;
          await image.decode();
          const [high, wide] = sheet.size, tiles = document.querySelectorAll("#viewer .scene");
          const whole = document.createElement("canvas");
          Object.assign(whole, { width: image.width, height: image.height });
          whole.getContext("2d").drawImage(image, 0, 0);
          const pixels = (canvas, x, y) => canvas.getContext("2d").getImageData(x, y, wide, high).data;
          const same = (canvas, column, row) => {
            const expected = pixels(whole, column * wide, row * high);
            return canvas.width === wide && pixels(canvas, 0, 0).every((value, i) => value === expected[i]);
          };
          const maps = (scene) => [...scene.querySelectorAll("button canvas")];
          return [...tiles].every((scene, row) => maps(scene).every((canvas, i) => same(canvas, i, row)));
        }"""
    )
    assert same
    tab.faults = [fault for fault in tab.faults if "willReadFrequently" not in fault]  # of this test


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["success", "shares", "provenance"])
def test_links_lead_to_their_section(browser, report, width, name):
    tab = Tab(browser, report, width)
    tab.page.locator(f"nav a[href='#{name}']").click()
    left = tab.page.evaluate("document.documentElement.scrollHeight - innerHeight - scrollY")
    top = tab.page.locator(f"#{name}").bounding_box()["y"]
    assert abs(top) < 5 or left < 5  # at the top of the window, or the page ends before
    tab.close()


def test_the_theme_can_be_changed(tab):
    def paper() -> str:
        return tab.page.evaluate("getComputedStyle(document.body).backgroundColor")

    before = paper()
    tab.page.locator("#theme").click()
    assert paper() != before
    assert tab.page.locator("#theme").inner_text() == "Light"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(browser, report, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    tab = Tab(browser, report, width, scheme)
    tab.draw_all()
    found = Axe().run(tab.page)
    assert found.violations_count == 0, found.generate_report()
    tab.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_an_alignment_is_accessible(browser, aligned, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    tab = Tab(browser, aligned, width, scheme)
    tab.page.wait_for_function("document.querySelectorAll('.histogram svg').length > 2")
    found = Axe().run(tab.page)
    assert found.violations_count == 0, found.generate_report()
    tab.close()


def test_hostile_names_stay_inert(browser, tmp_path):
    made = Made(methods={EVIL: 0.8, "=1+1": 0.3}, tasks={EVIL: EVIL}, name=EVIL, description=EVIL)
    tab = Tab(browser, build(tmp_path / "run", made).report())
    tab.draw_all()
    assert tab.page.evaluate("window.hacked") is None
    assert tab.page.locator("img[src=x]").count() == 0
    assert EVIL in tab.page.locator("h1").inner_text()
    assert EVIL in tab.page.locator("#viewer figcaption").nth(1).inner_text()
    figure = tab.page.locator("figure[data-chart^=leaderboard]").first
    with tab.page.expect_download() as saved:
        figure.locator("[data-save=csv]").click()
    assert "'=1+1" in Path(saved.value.path()).read_text()  # no formula for a spreadsheet
    assert tab.faults == []
    assert tab.asked() == []
    tab.close()


def test_large_sheets_lie_beside_the_page(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(sheets, "BUDGET", 0)
    run = build(tmp_path / "run")
    tab = Tab(browser, run.report())
    asked = tab.asked()
    assert asked
    assert all(url.startswith((run.folder / "sheets").as_uri()) for url in asked)
    assert tab.page.locator("#viewer canvas").first.evaluate("canvas => canvas.width") > 0
    assert tab.faults == []
    tab.close()
    monkeypatch.undo()
    run.report()
    assert not (run.folder / "sheets").exists()


def test_a_script_that_is_not_ours_does_not_run(browser, report, tmp_path):
    text = report.read_text().replace("</footer>", "</footer><script>window.hacked = 1</script>")
    (tmp_path / "changed.html").write_text(text)
    tab = Tab(browser, tmp_path / "changed.html")
    assert tab.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in fault for fault in tab.faults)
    tab.close()


def test_histograms_of_an_alignment_can_be_brushed(browser, tmp_path):
    from test_align import Halves, Squares

    path = verax.align(Halves(), Squares(24), method="gradient").report(tmp_path / "page")
    tab = Tab(browser, path)
    place = tab.page.locator(".histogram .canvas svg").first
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    tab.page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 20)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 22, steps=5)
    tab.page.mouse.up()
    tab.page.wait_for_function("() => location.hash.includes('iou=')")
    low, high = tab.page.evaluate("location.hash").partition("iou=")[2].split("-")
    assert 0.1 < float(low) < 0.3
    assert 0.8 < float(high) <= 1
    assert "of 24 images kept" in tab.page.locator("#status").inner_text()
    tab.page.goto(path.as_uri() + "#iou=0.9-1")
    assert tab.page.locator("#histograms input").first.input_value() == "0.90"
    assert tab.faults == []
    assert tab.asked() == []
    tab.close()


@pytest.fixture(scope="module")
def aligned(tmp_path_factory) -> Path:
    """An alignment whose scores lie beside the middle between two decimals, where rounding twice errs."""
    from test_align import Halves, Squares

    made = verax.align(Halves(), Squares(24), method="gradient")
    made.scores["iou"] = np.resize([0.2047, 0.205, 0.2053, 0.125, 0.135, 0.29, 0.0, 1.0], 24)
    return made.report(tmp_path_factory.mktemp("aligned") / "page")


@pytest.mark.parametrize(("low", "high"), [(0, 0.2), (0.21, 1), (0, 0.12), (0.14, 0.2), (0.29, 0.29)])
def test_ranges_of_an_alignment_are_those_of_the_cases(browser, aligned, low, high):
    values = np.resize([0.2047, 0.205, 0.2053, 0.125, 0.135, 0.29, 0.0, 1.0], 24)
    short = (values * 100).round() / 100  # as in verax.metrics.cases8
    tab = Tab(browser, aligned, anchor=f"#iou={low}-{high}")
    assert (
        tab.page.locator("#status")
        .inner_text()
        .startswith(f"{int(((short >= low) & (short <= high)).sum())} of 24")
    )
    tab.close()


@pytest.mark.parametrize(
    "anchor", ["case=__proto__", "case=length", "label=zzz", "prediction=999", "sort=up", "iou=-", "iou=1e-1"]
)
def test_a_link_to_nonsense_shows_everything(browser, aligned, anchor):
    tab = Tab(browser, aligned, anchor=f"#{anchor}")
    assert tab.page.locator("#status").inner_text().startswith("24 of 24")
    assert tab.page.evaluate("location.hash") in ("", "#")
    assert tab.faults == []
    tab.close()


def test_a_network_never_stands_beside_itself(browser, report):
    for anchor in ("#gallery?net=1&beside=1", "#gallery?net=1&beside=01"):
        tab = Tab(browser, report, anchor=anchor)
        assert tab.page.locator("#viewer .scene-block").first.locator(".scene").count() == 1
        tab.close()


def test_a_picture_of_an_alignment_opens_in_large(browser, tmp_path):
    from test_align import Halves, Squares

    path = verax.align(Halves(), Squares(12), method="gradient").report(tmp_path / "page")
    tab = Tab(browser, path)
    page, dialog = tab.page, tab.page.locator("#large")
    first = page.locator("#grid .frame").first
    first.focus()
    small = first.bounding_box()["width"]
    page.keyboard.press("Enter")
    assert dialog.is_visible()
    assert dialog.locator("img").bounding_box()["width"] > 2 * small
    assert dialog.locator("path.marked").count() == dialog.locator("path.shown").count() == 1
    assert page.locator("#large-title").inner_text() == "square-0"
    words = dialog.locator("dl").inner_text()
    for name in ("label", "prediction", "confidence", "iou", "pointing-game", "energy", "cases"):
        assert name in words
    assert page.locator("#large-before").is_disabled()
    page.keyboard.press("ArrowRight")
    assert page.locator("#large-title").inner_text() == "square-1"
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.evaluate("document.activeElement.className") == "frame"
    page.locator("#grid .frame").last.click()
    assert page.locator("#large-after").is_disabled()
    page.locator("#large form button").click()
    assert not dialog.is_visible()
    beyond = first.locator("path.beyond").bounding_box()  # what is not shown is dimmed, up to the edges
    assert beyond["width"] == pytest.approx(first.bounding_box()["width"], abs=2)
    assert "rgb(0, 0, 0)" in first.locator("path.beyond").evaluate("e => getComputedStyle(e).fill")
    page.locator("#grid-shown").uncheck()
    first.click()
    assert not dialog.locator("path.shown").is_visible()
    assert not dialog.locator("path.beyond").is_visible()
    page.locator("#large-shown").check()
    assert dialog.locator("path.shown").is_visible()
    assert page.locator("#grid-shown").is_checked()
    assert dialog.locator("path.marked").is_visible()
    assert tab.faults == []
    assert tab.asked() == []
    tab.close()


@pytest.mark.parametrize("width", [400, 320])
def test_filters_of_an_alignment_become_narrower_with_the_page(browser, aligned, width):
    """Histograms that were drawn on a tablet must not keep a phone's page as wide as that."""
    tab = Tab(browser, aligned, 880)
    page = tab.page
    page.wait_for_function("document.querySelectorAll('.histogram svg').length > 2")
    assert page.locator(".histogram svg").first.bounding_box()["width"] > 700
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function(
        "w => [...document.querySelectorAll('.histogram svg')].every((e) => e.clientWidth < w)", arg=width
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    card = page.locator("#filters").bounding_box()
    for inner in page.locator("#filters :is(select, input, svg, p, h3, button)").all():
        if inner.is_visible():
            box = inner.bounding_box()
            assert box["x"] >= card["x"]
            assert box["x"] + box["width"] <= card["x"] + card["width"]
    assert tab.faults == []
    tab.close()


def _specks(model, inputs, targets):
    """A chessboard for label 1, and the upper half for label 0."""
    high, wide = inputs.shape[2:]
    board = (torch.arange(high)[:, None] + torch.arange(wide)) % 2
    half = (torch.arange(high)[:, None] < high // 2).expand(high, wide)
    return torch.where(targets[:, None, None] == 1, board, half).float()


def _near(picture, colour):
    """The share of a picture's pixels that have a colour, but for edges that are smoothed."""
    pixels = np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(int)
    return float((np.abs(pixels - colour).max(2) < 24).mean())


def test_many_specks_are_tinted_and_marks_lie_above_what_is_shown(browser, tmp_path):
    from test_align import Halves, Squares

    made = verax.align(Halves(), Squares(4), method=_specks, binarisation="threshold:0.5")
    tab = Tab(browser, made.report(tmp_path / "page"))
    page = tab.page
    coarse, specks = (page.locator("#grid .frame").nth(place) for place in (0, 1))
    assert specks.locator("path.shown").get_attribute("class") == "shown fine"
    assert specks.locator("path.shown").evaluate("e => getComputedStyle(e).stroke") == "none"
    assert specks.locator("path.halo").count() == 1  # that of the mark
    tinted, dimmed = (specks.locator(name).get_attribute("d") for name in ("path.shown", "path.beyond"))
    assert tinted.count("M") == dimmed.count("M") == 128  # every pixel is in one of the two
    assert coarse.locator("path.shown").get_attribute("class") == "shown"
    assert coarse.locator("path.halo").count() == 2
    blue = [_near(frame.screenshot(), (0x1F, 0x86, 0xD6)) for frame in (coarse, specks)]
    assert page.locator("#explorer .key .tinted").is_visible()
    page.locator("#grid-shown").uncheck()
    for frame, share in zip((coarse, specks), blue, strict=True):  # nothing of the mark was hidden
        assert share > 0.9 * _near(frame.screenshot(), (0x1F, 0x86, 0xD6)) > 0
    assert not specks.locator("path.shown").is_visible()
    assert specks.locator("path.marked").is_visible()
    assert tab.faults == []
    tab.close()


def test_regions_that_are_the_same_are_both_seen(browser, tmp_path):
    from test_align import Halves, Squares

    made = verax.align(Halves(), Squares(4), method="gradient", binarisation="threshold:0.5")
    assert made.scores["iou"][1] == 1
    tab = Tab(browser, made.report(tmp_path / "page"))
    frame = tab.page.locator("#grid .frame").nth(1)
    marked, shown = (
        float(frame.locator(f"path.{name}").evaluate("e => parseFloat(getComputedStyle(e).strokeWidth)"))
        for name in ("marked", "shown")
    )
    assert shown > marked + 0.5  # a rim of what lies below
    assert not tab.page.locator("#explorer .key .tinted").is_visible()
    tab.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_all_columns_of_an_alignment_can_be_reached(browser, tmp_path, width):
    from test_align import Halves, Squares

    path = verax.align(Halves(), Squares(8), method="gradient").report(tmp_path / "page")
    tab = Tab(browser, path, width)
    page, table = tab.page, tab.page.locator("#scores")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    narrow = table.evaluate("e => e.scrollWidth > e.clientWidth")
    assert narrow == (width == 400)
    assert page.locator(".sideways").is_visible() == narrow  # the hint is there where it is needed
    table.focus()
    table.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
    outer = table.bounding_box()
    for name in ("skill", "images"):
        inner = table.get_by_role("columnheader", name=name).bounding_box()
        assert inner["x"] >= outer["x"]
        assert inner["x"] + inner["width"] <= outer["x"] + outer["width"]
    page.locator("#grid .frame").first.click()
    assert page.evaluate(
        "(() => { const e = document.getElementById('large'); return e.scrollWidth <= e.clientWidth; })()"
    )
    wide = page.locator("#large dd").evaluate_all("all => all.map((e) => e.getBoundingClientRect().width)")
    assert min(wide) > 120  # words beside the picture are no columns of letters
    tab.close()


def test_wide_tables_of_a_report_keep_their_names_on_a_phone(browser, climate):
    tab = Tab(browser, climate, 400)
    page = tab.page
    region = page.locator("#certificates .scroll")
    assert page.locator("#certificates .hint").is_visible()
    assert region.get_attribute("tabindex") == "0"
    assert region.get_attribute("aria-label") == "Table: Certificates"
    region.evaluate("each => { each.scrollLeft = each.scrollWidth; }")
    page.wait_for_function(
        "() => document.querySelector('#certificates .scroll').className.includes('moved')"
    )
    left = region.bounding_box()["x"]
    for selector in ("thead th", "tbody th"):
        assert region.locator(selector).first.bounding_box()["x"] == pytest.approx(left, abs=2)
    last = region.locator("tbody td").last.bounding_box()
    assert last["x"] + last["width"] <= 400
    page.set_viewport_size({"width": 1600, "height": 900})
    page.wait_for_function("() => document.querySelector('#certificates .hint').hidden")
    tab.close()


def test_json_cannot_end_its_script():
    text = str(pages.script_json({"name": EVIL + "\u2028"}))
    assert "<" not in text
    assert "\u2028" not in text


@pytest.mark.parametrize("name", ["leaderboard", "comparison"])
def test_wide_tables_on_a_phone_say_that_they_scroll(browser, tmp_path, name):
    one = made_up_runs.write(tmp_path / "one", made_up_runs.scores())
    two = made_up_runs.write(tmp_path / "two", made_up_runs.scores(noise=1))
    found = standings([one, two]) if name == "leaderboard" else verax.compare(one, two)
    path = found.report(tmp_path / f"{name}.html")
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 400  # the tables scroll, not the page
    region = page.locator(".scroll:not(.drawn)").first
    assert page.locator(".hint").first.is_visible()
    assert "more" in region.get_attribute("class")
    region.evaluate("each => { each.scrollLeft = each.scrollWidth; }")
    page.wait_for_function('() => !document.querySelector(".scroll:not(.drawn)").classList.contains("more")')
    left = region.bounding_box()["x"]
    for selector in ("thead th.name", "tbody th"):  # what a row is about stays in sight
        assert region.locator(selector).first.bounding_box()["x"] == pytest.approx(left, abs=1)
    last = region.locator("tbody tr").first.locator("td").last.bounding_box()
    assert last["x"] + last["width"] <= 400
    page.set_viewport_size({"width": 1800, "height": 800})
    page.wait_for_function("() => document.querySelector('.hint').hidden")
    page.close()


# -- maps on the Earth -------------------------------------------------------------------------------------

PIXEL = "(e, [x, y]) => [...e.getContext('2d').getImageData(x * e.width, y * e.height, 1, 1).data]"


@pytest.fixture(scope="module")
def climate(tmp_path_factory) -> Path:
    return build_climate(tmp_path_factory.mktemp("climate") / "run").report()


def test_maps_of_the_earth_lie_where_their_cells_are(browser, climate):
    """Uneven rows, rows from the south on and a seam in the middle: the colour at the place of every cell."""
    run = verax.studies.runs.Run(climate.parent)
    cases, maps = run.cases(), run.maps()
    tab = Tab(browser, climate)
    shown = {"truth": cases["sea|values"][2], "near": maps["sea|mlp|0|near"][2].float()}
    tab.page.locator("#g-bucket").select_option("2")
    drawn = tab.page.locator("#viewer .tile")
    bounds = [90, 52.5, 15, 5, -25, -65, -90]  # half way between the latitudes, from the north on
    meridians = [-75, -45, -15, 20, 60]
    for name, vector in shown.items():
        tile = drawn.filter(has_text=name).first
        tile.locator("canvas").wait_for()
        levels = gallery.levels((vector / vector.abs().max()).numpy())
        expected = {
            tuple(cell): gallery.palette()[levels[i]] for i, cell in enumerate(cases["sea|cells"].tolist())
        }
        for row, latitude in enumerate(sorted(LATITUDES, reverse=True)):
            for column in range(len(LONGITUDES)):
                # off the middle, where no line of the graticule runs
                down = (90 - (bounds[row] + 0.37 * (bounds[row + 1] - bounds[row]))) / 180
                across = (meridians[column] + 0.37 * (meridians[column + 1] - meridians[column]) + 75) / 135
                seen = tile.locator("canvas").evaluate(
                    PIXEL,
                    [across, down],
                )
                colour = expected.get((LATITUDES.index(latitude), column))
                assert (seen[3] == 0) == (colour is None), (name, row, column)  # land is blank
                if colour is not None:
                    assert np.abs(np.array(seen[:3]) - colour).max() <= 2, (name, row, column)
    words = drawn.filter(has_text="near").first.locator(".parallel, .meridian").all_inner_texts()
    assert words == ["90°S", "60°S", "30°S", "0°", "30°N", "60°N", "90°N", "45°W", "0°", "45°E"]
    assert [fault for fault in tab.faults if "willReadFrequently" not in fault] == []  # of this test
    assert tab.asked() == []
    tab.close()


def test_a_climate_gallery_has_all_controls(browser, climate):
    tab = Tab(browser, climate)
    page, heads = tab.page, tab.page.locator("#viewer h3")
    assert page.locator("#viewer .scene").first.locator("figcaption").all_inner_texts()[:3] == [
        "input field",
        "truth",
        "0.90\nnear",
    ]
    page.locator("#g-sort").select_option("worst")
    assert [text[:8] for text in heads.all_inner_texts()] == ["sample 1", "sample 2", "sample 3", "sample 0"]
    page.locator("#g-sort").select_option("disagreement")
    assert heads.first.inner_text().startswith("sample 2")
    assert heads.first.inner_text().endswith("0.60")
    page.locator("#g-beside").select_option("1")
    assert page.locator("#viewer .scene-block").first.locator(".scene").count() == 2
    again = Tab(browser, climate, anchor=page.evaluate("location.hash"))
    assert again.page.locator("#viewer h3").all_inner_texts() == heads.all_inner_texts()
    again.close()
    assert tab.faults == []
    tab.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_climate_page_is_accessible_and_fits(browser, climate, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    tab = Tab(browser, climate, width, scheme)
    tab.draw_all()
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(tab.page)
    assert found.violations_count == 0, found.generate_report()
    tab.page.locator("#viewer button.map").first.click()
    assert tab.page.locator("#large").evaluate("e => e.scrollWidth <= e.clientWidth")
    found = Axe().run(tab.page)
    assert found.violations_count == 0, found.generate_report()
    assert tab.faults == []
    assert tab.asked() == []
    tab.close()


def test_grids_that_run_from_south_to_north_are_no_others_globe(tmp_path):
    cells = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    grid = {"cells": cells, "longitudes": torch.tensor([0.0, 90.0]), "geographic": torch.tensor(True)}
    case = {part: torch.tensor([[4.0, 3.0, 2.0, 1.0]]) for part in ("inputs", "values")}
    rest = {**grid, **case, "group": torch.tensor([0]), "ids": torch.tensor([0])}
    latitudes = {"north": torch.tensor([60.0, 0.0]), "south": torch.tensor([0.0, 60.0])}
    cases = {f"{task}|{part}": value for task in latitudes for part, value in rest.items()}
    cases |= {f"{task}|latitudes": value for task, value in latitudes.items()}
    drawer = sheets._Drawer(cases, sheets.Album(tmp_path))
    drawn = [drawer.globes[drawer.of(task, {}).globe].levels(case["values"].numpy()) for task in latitudes]
    assert drawn[0].tolist() == drawn[1][:, ::-1].tolist()
    assert drawn[0].tolist() != drawn[1].tolist()


def test_hostile_names_on_a_globe_stay_inert(browser, tmp_path):
    tab = Tab(browser, build_climate(tmp_path / "run", (EVIL, "=1+1"), EVIL).report())
    tab.page.locator("#viewer button.map").first.click()
    assert EVIL in tab.page.locator("#large-title").inner_text()
    assert tab.page.evaluate("window.hacked") is None
    assert tab.page.locator("img[src=x]").count() == 0
    assert tab.faults == []
    assert tab.asked() == []
    tab.close()


@pytest.mark.parametrize(
    ("longitudes", "order", "places"),
    [
        ([0.0, 120.0, 240.0], [0, 1, 2], [0, 120, 240]),
        ([240.0, 120.0, 0.0], [2, 1, 0], [0, 120, 240]),
        ([340.0, 350.0, 0.0, 10.0], [0, 1, 2, 3], [340, 350, 360, 370]),
        ([10.0, 350.0, 0.0, 340.0], [3, 1, 2, 0], [340, 350, 360, 370]),  # in no order at all
        ([-170.0, 175.0, 170.0, -175.0], [2, 1, 3, 0], [170, 175, 185, 190]),
        ([7.0], [0], [7]),
    ],
)
def test_columns_go_from_west_to_east(longitudes, order, places):
    found, there = globes.eastwards(np.array(longitudes))
    assert found.tolist() == order
    assert (there - there[0]).tolist() == pytest.approx([place - places[0] for place in places])
    assert there[0] % 360 == pytest.approx(places[0])


def test_cells_end_half_way_to_their_neighbours():
    assert globes.edges(np.array([0.0, 1.0, 3.0, 10.0])).tolist() == [-0.5, 0.5, 2.0, 6.5, 13.5]
    assert globes.edges(np.array([4.0])).tolist() == [3.5, 4.5]


# -- claims of a reproduction ------------------------------------------------------------------------------


def reproduction(folder: Path, words: str = "Maps are right.") -> Path:
    """A reproduction with a run, of which nothing was computed; gives its page."""
    (folder / "runs").mkdir(parents=True)
    build(folder / "runs" / "main")
    claim = {
        "id": "right",
        "topic": "Maps",
        "where": "Figure 1",
        "says": words,
        "measured": "0.81 of them are.",
    }
    found = [
        {**claim, "verdict": "holds", "rule": "above 0.5", "value": 0.8123, "low": 0.79, "high": 0.83},
        {
            **claim,
            "id": "all",
            "verdict": "does not hold",
            "uncertain": True,
            "value": 3.0,
            "low": None,
            "high": None,
        },
        {**claim, "id": "none", "topic": "Words", "verdict": "not testable", "value": None},
    ]
    (folder / "claims.json").write_text(
        json.dumps({"paper": words, "command": "verax reproduce x", "claims": found})
    )
    page = folder / "index.html"
    page.write_text("<!doctype html><title>x</title><h1>Reproduced</h1><nav></nav>")
    return page


def test_claims_stand_in_the_provenance_and_pages_lead_to_each_other(browser, tmp_path):
    page = reproduction(tmp_path / "x")
    (path,) = explorers.finish(explorers.begin(page, 0, Crew(1)), quiet=True)
    tab = Tab(browser, page.parent / "runs" / "main" / "report.html")
    part = tab.page.locator("#provenance #claims")
    assert [chip.strip() for chip in part.locator(".chips li").all_inner_texts()] == [
        "✓ 1 holds",
        "✗ 1 does not hold (1 of them uncertain)",
        "⊘ 0 cannot hold",
        "? 1 not testable",
    ]
    first, second = part.locator("details").first.locator("tbody tr").all_inner_texts()
    for word in (
        "Maps are right.",
        "Figure 1",
        "✓ holds",
        "0.81 of them are.",
        "above 0.5",
        "0.812 [0.79, 0.83]",
    ):
        assert word in first
    assert "uncertain" in second
    assert second.rstrip().endswith("3")
    tab.page.locator("#claims a").first.click()
    tab.page.wait_for_url("**/index.html")
    tab.page.locator("a", has_text="main").click()
    tab.page.wait_for_url("**/runs/main/report.html")
    assert tab.page.url == path.as_uri()
    assert tab.faults == []
    tab.close()


def test_runs_that_were_there_before_belong_to_nobody(tmp_path):
    page = reproduction(tmp_path / "x")
    before = page.read_text()
    assert explorers.finish(explorers.begin(page, time.time() + 60, Crew(1)), quiet=True) == []
    assert page.read_text() == before
    assert claims.part(page.parent / "runs" / "main") is None


@pytest.mark.parametrize("text", ["", "[]", "{", '{"claims": 3}', '{"claims": [3, null]}', '{"claims": []}'])
def test_damaged_claims_are_left_out(tmp_path, text):
    page = reproduction(tmp_path / "x")
    (page.parent / "claims.json").write_text(text)
    (page.parent / "runs" / "main" / claims.POINTER).write_text('{"home": "../.."}')
    assert claims.part(page.parent / "runs" / "main") is None


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_claims_stay_inert_and_fit(browser, tmp_path, width):
    from axe_playwright_python.sync_playwright import Axe

    (path,) = explorers.finish(explorers.begin(reproduction(tmp_path / "x", EVIL), 0, Crew(1)), quiet=True)
    tab = Tab(browser, path, width, "dark")
    tab.draw_all()
    assert EVIL in tab.page.locator("#claims").inner_text()
    assert tab.page.evaluate("window.hacked") is None
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(tab.page)
    assert found.violations_count == 0, found.generate_report()
    assert tab.faults == []
    assert tab.asked() == []
    tab.close()


def test_links_to_runs_are_escaped():
    text = explorers.linked("<nav>", [Path("runs/a&b <i>/report.html")])
    assert 'href="runs/a%26b%20%3Ci%3E/report.html"' in text
    assert "a&amp;b &lt;i&gt;</a>" in text
    assert text.endswith("<nav>")


@pytest.mark.parametrize(("scheme", "most"), [("light", 255), ("dark", 210)])
def test_paper_of_reproductions_does_not_glare_in_the_dark(browser, tmp_path, scheme, most):
    """White is softened, black stays black, and a colour keeps its hue."""
    drawn = Image.new("RGB", (90, 30), "white")
    drawn.paste((0, 0, 0), (30, 0, 60, 30))
    drawn.paste((200, 40, 40), (60, 0, 90, 30))
    drawn.save(tmp_path / "drawn.png")
    made = reproductions.environment(tmp_path).get_template("shared/figures.html.j2").module
    body = made.figure("one", "A figure", "drawn.png")
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html><style>{reproductions.css()}</style><body>{body}")
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1200, "height": 800})
    page.goto(path.as_uri())
    shot = Image.open(io.BytesIO(page.locator("figure img").screenshot())).convert("RGB")
    white, black, red = (shot.getpixel((shot.width * n // 6, shot.height // 2)) for n in (1, 3, 5))
    assert most - 25 <= min(white) <= max(white) <= most
    assert max(black) <= 5
    assert red[0] > 3 * max(red[1:])
    page.close()


# -- small and large screens, and paper --------------------------------------------------------------------


def test_numbers_use_the_width_of_a_large_screen(browser, tmp_path):
    made = Made(tasks={"world/easy": "simple"})  # one family has all the width
    tab = Tab(browser, build(tmp_path / "run", made).report(), width=1600)
    beside = tab.page.locator(".beside figure[data-chart]").first
    beside.locator("summary").click()
    beside.locator("table").wait_for()
    wide, room = beside.locator(".scroll").evaluate("e => [e.scrollWidth, e.clientWidth]")
    assert wide <= room
    assert room > 1000
    first = tab.page.locator(".screen figure[data-chart]").first
    before = tab.page.locator(".screen .facts").evaluate("e => e.clientWidth")
    first.locator("summary").click()
    first.locator("table").wait_for()
    assert tab.page.locator(".screen .facts").evaluate("e => e.clientWidth") == before  # nothing jumps
    tab.close()


def test_a_large_map_can_be_seen_whole_on_a_phone(browser, climate):
    tab = Tab(browser, climate, width=400)
    tab.page.set_viewport_size({"width": 400, "height": 850})
    tab.page.locator("#viewer button.map").first.click()
    tab.page.wait_for_timeout(300)
    boxes = [one.bounding_box() for one in tab.page.locator("#large canvas, #large button").all()]
    assert max(box["y"] + box["height"] for box in boxes) <= 850
    tab.close()


def test_labels_of_axes_stand_apart_on_a_phone(browser, climate):
    tab = Tab(browser, climate, width=400)
    labels = tab.page.locator("figure[data-chart]").first.locator(".role-axis-label").first.locator("text")
    texts = [one for one in labels.all() if one.evaluate("e => getComputedStyle(e).opacity") != "0"]
    boxes = sorted((one.bounding_box() for one in texts), key=lambda box: box["x"])
    assert len(boxes) >= 3
    gaps = [right["x"] - left["x"] - left["width"] for left, right in pairwise(boxes)]
    assert min(gaps) >= 2
    tab.close()


def test_seven_columns_have_their_numbers_on_a_phone(browser, tmp_path):
    tasks = {f"world/task-{n}": "simple" for n in range(7)}
    made = Made(methods={"deeplift-reveal-cancel": 0.8, "bad": 0.2}, tasks=tasks, protocols=("sound",))
    tab = Tab(browser, build(tmp_path / "run", made).report(), width=400)
    tab.draw_all()
    numbers = tab.page.locator("figure[data-chart^=success] .mark-text").first.locator("text")
    boxes = [one.bounding_box() for one in numbers.all()[:7]]
    assert numbers.first.evaluate("e => e.getAttribute('opacity')") in (None, "1")
    line = sorted((box for box in boxes if box["y"] == boxes[0]["y"]), key=lambda box: box["x"])
    assert all(left["x"] + left["width"] < right["x"] for left, right in pairwise(line))
    tab.close()


def test_coasts_can_be_seen_on_dark_land(browser, climate):
    """The outer rim of the coast, beside blank land, is light; its core, beside light cells, is dark."""
    tab = Tab(browser, climate, scheme="dark")
    tab.page.locator("#viewer button.map canvas").first.wait_for()
    tab.page.wait_for_timeout(300)
    first = tab.page.locator("#viewer button.map canvas").first.evaluate(
        """e => {
          const { width, height } = e, found = [];
          const data = e.getContext("2d").getImageData(0, 0, width, height).data;
          const at = (x, y) => [...data.slice(4 * (y * width + x), 4 * (y * width + x) + 4)];
          for (let y = 0; y < height; y += 5) for (let x = 1; x < width - 1; x += 1)
            if (at(x - 1, y)[3] === 0 && at(x, y)[3] > 0) found.push(at(x, y).slice(0, 3));
          return found;
        }"""
    )
    light = [min(colour) > 180 for colour in first]
    assert len(light) > 5
    assert sum(light) > 0.5 * len(light)  # the rest are lines of the graticule
    tab.close()


@pytest.mark.parametrize("methods", [2, 30])
def test_paper_shows_all_columns(browser, tmp_path, methods):
    path = build_climate(tmp_path / "run", tuple(f"method-{n}, steps={n}" for n in range(methods))).report()
    tab = Tab(browser, path, width=720)
    tab.page.emulate_media(media="print")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 720
    for box in tab.page.locator(".scroll:visible").all():
        wide, room = box.evaluate("e => [e.scrollWidth, e.clientWidth]")
        assert wide <= room + 1
    tab.close()


def test_charts_keep_their_shape_on_paper(browser, report):
    """They are drawn for the screen, and smaller on paper: nothing is left blank above and below."""
    tab = Tab(browser, report, width=1600)
    tab.draw_all()
    tab.page.emulate_media(media="print")
    boxes = tab.page.evaluate(
        """() => {
          document.body.style.width = "500px"; // at once: paper does not wait for drawing again
          return [...document.querySelectorAll("figure[data-chart] .canvas svg")].map((e) => {
            const { width, height } = e.getBoundingClientRect(), view = e.viewBox.baseVal;
            return [width / height, view.width / view.height];
          });
        }"""
    )
    assert len(boxes) >= 12
    assert all(shown == pytest.approx(drawn, rel=0.02) for shown, drawn in boxes)
    tab.close()


def test_numbers_stand_under_their_headers(tab):
    """Also where a column begins with a dash, as that of ranks does."""
    figure = tab.page.locator("figure[data-chart=leaderboard-sound-complex]").last
    figure.locator("summary").click()
    side = "[...row.cells].map((cell) => getComputedStyle(cell).textAlign)"
    sides = figure.locator("table").evaluate(f"table => [...table.rows].map((row) => {side})")
    assert "right" in sides[0]
    assert all(row == sides[0] for row in sides[1:])


def test_the_oracle_is_a_star_on_charts_too(tab):
    figure = tab.page.locator("figure[data-chart=leaderboard-sound-complex]").last
    paths = figure.locator(".mark-symbol path").evaluate_all("all => all.map((e) => e.getAttribute('d'))")
    assert sum(path.count("L") == 9 for path in paths) >= 1


def test_a_map_in_large_says_what_its_colours_mean(tab):
    tab.page.locator("button.map").first.click()
    assert "for the prediction" in tab.page.locator("#large .scale").inner_text()
    assert "sample" not in tab.page.locator("#large-title").inner_text()


def test_letters_can_be_read_on_a_phone(browser, climate):
    tab = Tab(browser, climate, 400)
    chart = tab.page.locator(".drawn .chart").first
    assert chart.bounding_box()["width"] >= 470  # it scrolls in its box instead of shrinking
    assert tab.page.locator(".drawn").first.get_attribute("tabindex") == "0"
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 400
    size = tab.page.locator(".globe .parallel").first.evaluate(
        "e => parseFloat(getComputedStyle(e).fontSize)"
    )
    assert size >= 11
    tab.close()


@pytest.mark.parametrize(("width", "beside"), [(1280, True), (1600, False)])
def test_a_leaderboard_is_whole_beside_or_below_its_chart(browser, report, width, beside):
    """Families lie side by side on wide screens; on others each has its table beside its chart."""
    tab = Tab(browser, report, width=width)
    boxes = tab.page.evaluate(
        """() => [...document.querySelectorAll(".beside > .scroll")].map((e) => {
          const chart = e.parentElement.firstElementChild.getBoundingClientRect();
          const place = e.getBoundingClientRect();
          return [e.scrollWidth - e.clientWidth, place.left - chart.right, place.top - chart.top];
        })"""
    )
    assert boxes
    for hidden, apart, lower in boxes:
        assert hidden <= 1
        assert (apart > 0 and lower < 60) is beside
    tab.close()
