"""Writes docs/cli.md from the commands, and the names that shell completion offers from the registries.

python tools/commands.py            write both
python tools/commands.py --check    say whether they are up to date (exit code 1: they are not)
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from verax.cli import completion, console, listing
from verax.cli.main import app
from verax.files import write_atomically
from verax.protocols import PROTOCOLS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """<!-- Written by `make commands` from the command line itself; do not edit. -->
# Command line

Every command says the same with `--help`. Tables and sentences go to stdout, progress to stderr. `--json`
puts JSON on stdout and nothing else; `--quiet` leaves out bars and tables; `NO_COLOR=1`, a pipe or a file
give plain text. `verax --install-completion` teaches your shell the names of commands, studies, methods,
tasks, networks and metrics.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the answer is no: a certificate or a method failed |
| 2 | bad input, with one sentence that says what to do |
| 130 | interrupted; finished work is kept, and the same command goes on |
| 141 | nobody reads the output any more, as behind `head` |
"""


def _plain(text: str) -> str:
    """Help without markup, fit for a table."""
    return re.sub(r"\[/?[a-z]+\]", "", text or "").replace("|", "\\|").strip()


def _prose(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n"))


def _calls(epilog: str) -> list[str]:
    lines = [re.sub(r"^\[dim\]\$\[/dim\] ", "", line) for line in (epilog or "").splitlines()[1:]]
    return [line.replace("\\[", "[") for line in lines]


def _default(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or value == () or callable(value) or parameter.required:
        return ""
    return f"`{value}`"


def _parameters(command: Any) -> Iterator[str]:
    yield from ("| option | meaning | default |", "|---|---|---|")
    for parameter in command.params:
        if parameter.name == "help" or getattr(parameter, "hidden", False):
            continue
        if parameter.param_type_name == "argument":
            name = f"`{parameter.name.upper()}`" + (" ..." if parameter.nargs == -1 else "")
        else:
            flags = [*parameter.opts, *parameter.secondary_opts]
            name = ", ".join(f"`{flag}`" for flag in flags)
        about = _plain(parameter.help)
        if getattr(parameter, "envvar", None):
            about += f" Environment: `{parameter.envvar}`."
        yield f"| {name} | {about} | {_default(parameter)} |"


def _section(path: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} verax {path}\n"
    yield _prose(command.help) + "\n"
    inner = getattr(command, "commands", None)
    if inner:
        for name, each in inner.items():
            yield from _section(f"{path} {name}", each, level + 1)
        return
    yield from (line for line in _parameters(command))
    yield ""
    if calls := _calls(command.epilog):
        yield "\n".join(["```text", *calls, "```", ""])


def page() -> str:
    """The whole page, commands by their groups."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    lines = [HEAD]
    for panel in (console.JUDGE, console.AUDIT, console.REPRODUCE, console.LOOK, console.KEEP):
        lines.append(f"## {panel}\n")
        for name, command in commands.items():
            if command.rich_help_panel == panel:
                lines += _section(name, command, 3)
    return "\n".join(lines).rstrip() + "\n"


def names() -> str:
    """The names of everything that comes with verax, as JSON."""
    found = {}
    for kind, rows in listing.LISTS.items():
        plugged = set(completion.plugged(kind))
        found[kind] = [str(row["name"]) for row in rows() if row["name"] not in plugged]
    found["protocols"] = list(PROTOCOLS)
    return json.dumps(found, indent=1) + "\n"


def main() -> None:
    """Write, or say what is out of date."""
    made = {PAGE: page(), completion.NAMES: names()}
    if "--check" in sys.argv[1:]:
        old = [path.name for path, text in made.items() if not path.is_file() or path.read_text() != text]
        if old:
            print(f"Out of date: {', '.join(old)}; run `make commands`.", file=sys.stderr)
            sys.exit(1)
        return
    for path, text in made.items():
        write_atomically(path, text.encode())


if __name__ == "__main__":
    main()
