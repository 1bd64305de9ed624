"""Runs the code of a page of the documentation, in order, in one folder; fills in what it prints.

python tools/pages.py docs/errors.md            run its blocks as they are written
python tools/pages.py --small docs/errors.md    with few samples, and long blocks only checked (`make test`)
python tools/pages.py --fill docs/errors.md     and write what the blocks print into the page

Python blocks of a page share their names. In shell blocks `verax` is called in this process. A comment before
a block says what is special about it; there is no way to leave a block out in silence:

<!-- docs: long (reason) -->    `make test` checks its names and options, `make test-full` runs it
<!-- docs: check (reason) -->   needs what a test has not, as a cluster: names and options are checked
<!-- docs: output -->           what the block before prints; compared by `make test-full`
<!-- docs: file NAME -->        the block is the text of this file
<!-- docs: setup ... -->        hidden Python: what a reader is told in words
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

ROOT = Path(__file__).resolve().parent.parent
SAMPLES, SCENES, METHODS = 2, 5, ["gradient", "input-x-gradient"]
"""What `--small` leaves of a study: samples and scenes in a bucket, methods where none are named."""
TIMES = re.compile(r"\d+(\.\d+)? s\b|\d\.\de[-+]\d\d|/\S+|\S+-[0-9a-f]{8}\b")
"""What differs from run to run: seconds, rounding errors, paths, names of folders."""
_MARK = re.compile(r"<!-- docs: (?:(setup)\n(.*?)-->|(\w+)(?: ([^\n]*?))? -->)", re.DOTALL)
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_WORDS = {"long", "check", "output", "file", "setup"}
_SHELL = ("sh", "bash", "console")
_OTHERS = {"", "text", "toml", "yaml", "json", "html"}


class Fault(Exception):
    """A block that does not do what the page says."""


@dataclass(frozen=True)
class Block:
    """A piece of code on a page: where it is, what it is, and what is special about it."""

    page: Path
    line: int
    language: str
    text: str
    mark: str = ""
    note: str = ""
    span: tuple[int, int] = (0, 0)

    @property
    def place(self) -> str:
        """The page and the line."""
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"


def _next(text: str, mark: re.Match[str], fence: re.Match[str]) -> bool:
    """Whether there is nothing between a mark and the block behind it."""
    return mark.end() <= fence.start() and not text[mark.end() : fence.start()].strip()


def blocks(page: Path) -> list[Block]:
    """All blocks of a page in order, hidden ones included."""
    text = page.read_text(encoding="utf-8")
    found = []
    fences = list(_FENCE.finditer(text))
    marks = list(_MARK.finditer(text))
    for mark in marks:
        line = text.count("\n", 0, mark.start()) + 1
        word, note = mark[1] or mark[3], (mark[4] or "").strip("()")
        if word not in _WORDS:
            raise Fault(f"{page.name}:{line}: docs: {word} is not one of {', '.join(sorted(_WORDS))}.")
        if word == "setup":
            found.append(Block(page, line, "python", mark[2] or "", "setup"))
        elif not any(_next(text, mark, fence) for fence in fences):
            raise Fault(f"{page.name}:{line}: a mark without a block behind it.")
        elif word in ("long", "check", "file") and not note:
            raise Fault(f"{page.name}:{line}: docs: {word} needs a reason or a name.")
    for fence in fences:
        above = [mark for mark in marks if mark[3] and mark.end() <= fence.start()]
        near = [mark for mark in above[-1:] if _next(text, mark, fence)]
        word, note = (near[0][3], (near[0][4] or "").strip("()")) if near else ("", "")
        line = text.count("\n", 0, fence.start()) + 1
        found.append(Block(page, line, fence[1], fence[2], word, note, fence.span(2)))
    return sorted(found, key=lambda block: block.line)


# -- what is checked where a block is not run ------------------------------------------------------


def _of_verax(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "verax"


def check_python(block: Block) -> None:
    """The code can be compiled, and what it asks of verax exists: names, and the names of parameters."""
    import verax

    try:
        tree = ast.parse(block.text)
    except SyntaxError as error:
        raise Fault(f"{block.place}: {error}") from error
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("verax"):
            module = importlib.import_module(str(node.module))
            for name in node.names:
                if not hasattr(module, name.name):
                    raise Fault(f"{block.place}: {node.module} has no {name.name}.")
        if _of_verax(node) and not hasattr(verax, node.attr):
            raise Fault(f"{block.place}: verax has no {node.attr}.")
        if not (isinstance(node, ast.Call) and _of_verax(node.func)):
            continue
        known = inspect.signature(getattr(verax, node.func.attr)).parameters
        if any(p.kind is p.VAR_KEYWORD for p in known.values()):
            continue
        for word in node.keywords:
            if word.arg is not None and word.arg not in known:
                raise Fault(f"{block.place}: verax.{node.func.attr} has no parameter {word.arg!r}.")


def lines(block: Block) -> Iterator[str]:
    """The commands of a shell block; those that go on behind a backslash are one."""
    joined = re.sub(r"\\\n\s*", " ", block.text)
    for line in joined.splitlines():
        text = line.removeprefix("$ ").strip()
        if text and not text.startswith("#"):
            yield text


def words(line: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a command is given, and its words."""
    parts = shlex.split(line, comments=True)
    given = {}
    while parts and re.match(r"[A-Z_]+=", parts[0]):
        name, _, value = parts.pop(0).partition("=")
        given[name] = value
    return given, parts


def check_verax(arguments: list[str], place: str) -> None:
    """Commands, options and their types are right, and so are names of studies; nothing is run."""
    import typer

    from verax.cli.main import app
    from verax.errors import VeraxError
    from verax.studies.spec import study

    command: Any = typer.main.get_command(app)
    rest, name = list(arguments), "verax"
    try:
        while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
            name = rest.pop(0)
            if name not in command.commands:
                raise Fault(f"{place}: there is no command {name!r}.")
            command = command.commands[name]
        if "--help" in rest:
            return
        context = command.make_context(name, rest)
        asked = context.params.get("study")
        if isinstance(asked, str) and not asked.endswith(".toml") and not asked.startswith("alignment-"):
            study(asked)
    except VeraxError as error:
        raise Fault(f"{place}: {error}") from error
    except Exception as error:
        if hasattr(error, "format_message"):  # what click says about a wrong option
            raise Fault(f"{place}: verax {shlex.join(arguments)}: {error.format_message()}") from error
        raise


def check_other(parts: list[str], place: str) -> bool:
    """Whether a command other than verax is known and right: make, pip and our own scripts."""
    if parts[0] == "make":
        done = subprocess.run(["make", "-n", *parts[1:]], cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise Fault(f"{place}: {done.stderr.strip()}")
        return True
    if parts[0] == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for name in re.findall(r"verax\[([\w,]+)\]", " ".join(parts)):
            for extra in name.split(","):
                if extra not in extras:
                    raise Fault(f"{place}: verax has no extra {extra!r}.")
        return True
    if parts[0] == "python" and len(parts) > 1 and parts[1].endswith(".py"):
        script = ROOT / parts[1]
        text = script.read_text() if script.is_file() else ""
        missing = [word for word in parts[2:] if word.startswith("--") and word not in text]
        if not text or missing:
            raise Fault(f"{place}: {parts[1]} does not exist or does not know {' '.join(missing)}.")
        return True
    return parts[0] in (".", "source")


def check_shell(block: Block) -> None:
    """The script can be parsed, and every verax in it has a right command line."""
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    if done.returncode:
        raise Fault(f"{block.place}: {done.stderr.strip()}")
    for line in lines(block):
        found = re.search(r"(?:^|[\s=])verax (.*?)(?: &)?$", line)
        if found:
            check_verax(words(found[1])[1], block.place)
        else:
            _, parts = words(line)
            if parts and parts[0] in ("make", "pip", "python"):
                check_other(parts, block.place)


def check_data(block: Block) -> None:
    """Studies in TOML are valid; commands of verax in YAML are right; code has a language."""
    if block.language == "toml":
        values = tomllib.loads(block.text)
        if "tasks" in values:
            from verax.studies.spec import study

            study(values)
    if block.language == "yaml":
        for found in re.findall(r"verax (.*)$", block.text, re.MULTILINE):
            if found.startswith(("run ", "train ", "certify ", "align ")):
                check_verax(shlex.split(found), block.place)
    if block.language == "" and re.search(
        r"^(\$ )?(verax|pip|make) |^import |^from ", block.text, re.MULTILINE
    ):
        raise Fault(f"{block.place}: code needs a language (python, sh), so that it is run.")


# -- running ---------------------------------------------------------------------------------------


def thrift() -> None:
    """Studies are small from now on, in Python and on the command line."""
    import verax
    from verax.studies import running

    whole = running.run

    def small(study: Any, **options: Any) -> Any:
        given = {name: value for name, value in options.items() if value is not None}
        given["samples"] = min(given.get("samples", SAMPLES), SAMPLES)
        given["certify"] = min(given.get("certify", SCENES), SCENES)
        if isinstance(study, str) and not study.endswith(".toml"):
            given.setdefault("methods", METHODS)
        return whole(study, **given)

    running.run = small  # type: ignore[assignment]
    verax.run = small


def call(arguments: list[str]) -> None:
    """`verax` with these arguments, in this process."""
    from verax.cli.main import main

    before, sys.argv = sys.argv, ["verax", *arguments]
    try:
        main()
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise Fault(f"verax {shlex.join(arguments)} left with exit code {stop.code}") from stop
    finally:
        sys.argv = before


def run_shell(block: Block) -> None:
    """Every line of a shell block: verax here, harmless commands by the shell, all others are a fault."""
    for line in lines(block):
        given, parts = words(line)
        if not parts or check_other(parts, block.place):
            continue
        if parts[0] not in ("verax", "ls", "cat", "head", "mkdir", "cp"):
            raise Fault(f"{block.place}: {parts[0]!r} is not run by the tests; mark the block (docs: check).")
        if parts[0] == "verax" and not set("|><;&") & set("".join(parts)):
            os.environ.update(given)
            call(parts[1:])
            continue
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", line], env={**os.environ, "PATH": path}, capture_output=True, text=True
        )
        print(done.stdout, end="")
        if done.returncode:
            raise Fault(f"{block.place}: {line}: {done.stderr.strip()[-500:]}")


def same(here: str, there: str) -> bool:
    """Whether two outputs say the same: words alike, numbers to a hundredth, times and paths left out."""

    def parts(text: str) -> list[str]:
        return TIMES.sub("", re.sub(r"[─━ ]+", " ", text)).split()

    left, right = parts(here), parts(there)
    return len(left) == len(right) and all(map(_alike, left, right))


def _alike(one: str, other: str) -> bool:
    numbers = [re.findall(r"-?\d+(?:\.\d+)?", word) for word in (one, other)]
    if re.sub(r"[\d.+-]", "", one) != re.sub(r"[\d.+-]", "", other) or len(numbers[0]) != len(numbers[1]):
        return False
    pairs = zip(*numbers, strict=True)
    return all(abs(float(a) - float(b)) <= 0.011 + 0.02 * abs(float(b)) for a, b in pairs)


def run(page: Path, small: bool, namespace: dict[str, Any] | None = None) -> dict[int, str]:
    """Run a page; what the block before each output printed, by the line of the output's block.

    Args:
        page: to run, in the current folder.
        small: with few samples, and long blocks only checked.
        namespace: where the names of its Python are left.
    """
    namespace = {} if namespace is None else namespace
    namespace["__name__"] = "__main__"
    outputs: dict[int, str] = {}
    printed = ""
    found = blocks(page)
    if small and any(block.language in ("python", *_SHELL) for block in found):
        thrift()
    for block in found:
        known = block.language in ("python", *_SHELL) or block.language in _OTHERS
        if not known:
            raise Fault(f"{block.place}: {block.language!r} is neither run nor checked.")
        if block.mark == "file":
            Path(block.note).write_text(block.text)
        if block.mark == "output":
            outputs[block.line] = printed
            continue
        shell = block.language in _SHELL
        if block.language in _OTHERS:
            check_data(block)
        elif block.mark == "check" or (small and block.mark == "long"):
            (check_shell if shell else check_python)(block)
        else:
            stream = io.StringIO()
            try:
                with contextlib.redirect_stdout(stream):
                    if shell:
                        run_shell(block)
                    else:
                        exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
            except Exception as error:
                raise Fault(f"{block.place}: {type(error).__name__}: {error}") from error
            printed = stream.getvalue() or printed
    return outputs


def fill(page: Path, outputs: dict[int, str]) -> None:
    """Write outputs into their blocks."""
    text = page.read_text(encoding="utf-8")
    for block in reversed(blocks(page)):
        if block.line in outputs:
            body = "\n".join(line.rstrip() for line in outputs[block.line].strip("\n").splitlines())
            text = f"{text[: block.span[0]]}{body}\n{text[block.span[1] :]}"
    page.write_text(text, encoding="utf-8")


def main() -> int:
    """Run, compare or fill one page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--small", action="store_true", help="few samples; long blocks are only checked")
    parser.add_argument("--fill", action="store_true", help="write what is printed into the page")
    asked = parser.parse_args()
    os.environ |= {"COLUMNS": "96", "NO_COLOR": "1", "TERM": "dumb", "MPLBACKEND": "agg"}
    page = asked.page.resolve()
    with tempfile.TemporaryDirectory() as folder:
        Path(os.environ.setdefault("VERAX_STORE", f"{folder}/store")).mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
        try:
            outputs = run(page, asked.small)
        except Fault as fault:
            print(fault, file=sys.stderr)
            return 1
        finally:
            os.chdir(ROOT)
    if asked.fill:
        fill(page, outputs)
    elif not asked.small:
        for block in blocks(page):
            if block.line in outputs and not same(outputs[block.line], block.text):
                print(f"{block.place}: now it prints\n{outputs[block.line]}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
