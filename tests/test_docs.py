"""README and docs say only what is true: their code runs, their links lead somewhere."""

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TOOL = ROOT / "tools" / "pages.py"


def load(path):
    spec = importlib.util.spec_from_file_location(f"{path.stem}_tool", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module
    spec.loader.exec_module(module)
    return module


pages = load(TOOL)
WITH_CODE = [page for page in PAGES if "```" in page.read_text()]


def name(page):
    return str(page.relative_to(ROOT).with_suffix(""))


def execute(page, *options):
    return subprocess.run(
        [sys.executable, TOOL, *options, page], capture_output=True, text=True, check=False, timeout=1800
    )


@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_code_runs(page):
    done = execute(page, "--small")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_CODE, ids=name)
def test_code_runs_as_written_and_prints_what_the_page_says(page):
    done = execute(page)
    assert done.returncode == 0, done.stderr[-3000:]


def test_there_is_code_to_run():
    ran = [block for page in PAGES for block in pages.blocks(page) if block.mark in ("", "output", "long")]
    assert len([block for block in ran if block.language == "python"]) >= 80
    assert len([block for block in ran if block.language == "sh"]) >= 5


FAULTS = {
    "a line that raises": ("```python\nimport verax\nverax.task('textbox/simple-fx')\n```", "simple-fx"),
    "names of earlier blocks": ("```python\na = 1\n```\n```python\nassert a == 2\n```", "AssertionError"),
    "a wrong option": (
        "<!-- docs: check (long) -->\n```sh\nverax run smerf --sampels 5\n```",
        "--sampels",
    ),
    "a wrong option behind others": (
        "<!-- docs: check (x) -->\n```sh\nsrun -n 1 verax run smerf --x\n```",
        "--x",
    ),
    "a wrong command": ("<!-- docs: long (hours) -->\n```sh\nverax runn smerf\n```", "runn"),
    "a wrong study": ("<!-- docs: long (hours) -->\n```sh\nverax run smerff\n```", "smerff"),
    "a wrong parameter": (
        "<!-- docs: long (hours) -->\n```python\nverax.score(maps, cases, protocl='sound')\n```",
        "no parameter 'protocl'",
    ),
    "a name that is not there": ("<!-- docs: long (hours) -->\n```python\nverax.trian()\n```", "trian"),
    "a mark without a reason": ("<!-- docs: long -->\n```sh\nverax run smerf\n```", "reason"),
    "an unknown mark": ("<!-- docs: skip (why) -->\n```sh\nverax run smerf\n```", "skip"),
    "a mark without a block": ("```text\nx\n```\n<!-- docs: long (why) -->\n\nwords\n", "without a block"),
    "a command that fails": ("```sh\nverax list methds\n```", "exit code 2"),
    "a command that tests do not run": ("```sh\nray start\n```", "ray"),
    "an unknown target": ("```sh\nmake rnu\n```", "rnu"),
    "an unknown extra": ("```sh\npip install 'verax[climat]'\n```", "climat"),
    "an unknown option of a script": ("```sh\npython tools/cards.py --chek\n```", "--chek"),
    "code without a language": ("```\nverax list tasks\n```", "language"),
    "a language that nobody runs": ("```py\nimport verax\n```", "neither run nor checked"),
    "a study that is none": ('```toml\nname = "x"\ntasks = []\nmethods = ["gradient"]\n```', "tasks"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_page_that_is_wrong_is_noticed(case, tmp_path, monkeypatch):
    text, word = FAULTS[case]
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{text}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pages, "thrift", lambda: None)  # it would change this process
    with pytest.raises(Exception, match=re.escape(word)):
        pages.run(page, small=True)


def test_blocks_of_a_page_share_names_files_and_hidden_code(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- docs: setup\na = 20\n-->\n\n<!-- docs: file note.txt -->\n```text\nhello\n```\n"
        "```python\na += 1\nprint(a, open('note.txt').read())\n```\n\n"
        "<!-- docs: output -->\n```text\nold\n```\n"
    )
    monkeypatch.chdir(tmp_path)
    outputs = pages.run(page, small=False)
    assert list(outputs.values()) == ["21 hello\n\n"]
    pages.fill(page, outputs)
    assert "```text\n21 hello\n```" in page.read_text()


def test_outputs_are_compared_by_their_numbers():
    assert pages.same("a 0.512 [0.40, 0.61] in 3 s", "a 0.51 [0.40, 0.61] in 14 s")
    assert not pages.same("a 0.56", "a 0.51")
    assert not pages.same("a 0.51", "b 0.51")
    assert not pages.same("a 0.51", "a 0.51 0.2")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r'(?:href|src)="([^"#]+)"', text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_navigation():
    text = re.sub(r"#.*", "", (ROOT / "mkdocs.yml").read_text())
    listed = set(re.findall(r"[\w/-]+\.md", text))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}


def test_pictures_are_small_and_used():
    text = "".join(page.read_text() for page in PAGES)
    for path in (ROOT / "docs" / "images" / "tutorials").glob("*"):
        assert path.stat().st_size < 150_000, path.name
        assert path.name in text, path.name


def test_the_house_is_one_way():
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_nothing_is_loaded_from_elsewhere():
    text = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in text
    assert "analytics" not in text
    assert not re.search(r"(extra_css|extra_javascript)[^#]*https?:", text)


def test_a_later_run_decides_what_the_first_could_not_test():
    def row(name, measured, verdict, uncertain=False):
        about = {"id": name, "topic": "Topic", "where": "Here", "says": f"{name}.", "rule": "all"}
        return {**about, "measured": measured, "verdict": verdict, "uncertain": uncertain}

    untested = [row(name, "No network.", "not testable") for name in "BC"]
    first = [row("A", "1 of 1.", "holds"), *untested]
    later = [row("A", "0 of 1.", "does not hold"), row("B", "0 of 2.", "does not hold", True), untested[1]]
    text = "Made.\n\n**3 claims: 1 holds, 2 not testable.** More.\n\n### Topic\n\nstale\n"
    tool = runpy.run_path(str(ROOT / "tools" / "reproduction.py"))
    text = tool["joined"](text, first, later)
    counts = "1 holds, 1 does not hold (1 of them uncertain), 0 cannot hold, 1 not testable"
    assert f"**3 claims: {counts}.** More." in text
    assert "| A. *(Here)* | 1 of 1. | all | **holds** |" in text
    assert "| B. *(Here)* | Second run: 0 of 2. | all | **does not hold** (uncertain) |" in text
    assert "| C. *(Here)* | No network. | all | **not testable** |" in text
    assert "stale" not in text
