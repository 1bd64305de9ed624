"""`verax store`: look after the folder in which finished work is kept."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verax import progress
from verax.cli.console import Command, Json, echo, examples, print_json, say
from verax.errors import MissingFile

if TYPE_CHECKING:
    from verax.studies.store import Store

app = typer.Typer(help="Look after the folder in which finished work is kept.", no_args_is_help=True)

Folder = Annotated[
    Path | None, typer.Option("--store", envvar="VERAX_STORE", help="The folder (default: the user's cache).")
]


def _store(folder: Path | None) -> Store:
    from verax.files import store_folder
    from verax.studies.store import Store

    found = store_folder(folder)
    if not found.is_dir():
        raise MissingFile(f"There is no store in {str(found)!r} yet.")
    return Store(found)


def size_words(size: float) -> str:
    """Bytes as people say them."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@app.command("ls", cls=Command, epilog=examples("verax store ls --kind failure"))
def ls(
    store: Folder = None,
    kind: Annotated[
        str | None, typer.Option(help="Only scores, certificate, maps, reading, failure or damaged.")
    ] = None,
    json: Json = False,
) -> None:
    """List the entries: key, kind, size, seconds, and the unit, or what is wrong with it."""
    from verax.errors import UnknownName, suggestion
    from verax.studies import upkeep

    if kind is not None and kind not in upkeep.KINDS:
        raise UnknownName(f"There is no kind of entry called {kind!r}{suggestion(kind, upkeep.KINDS)}")
    found = (entry for entry in upkeep.listing(_store(store)) if kind is None or entry.kind == kind)
    if json:
        print_json([asdict(entry) for entry in found])
        return
    for entry in found:
        took = "" if entry.seconds is None else f"{entry.seconds:.1f} s"
        old = " (of other code)" if entry.old else ""
        numbers = f"{size_words(entry.size):>9}  {took:>9}"
        echo(f"{entry.key[:12]}  {entry.kind:11}  {numbers}  {entry.name}{old}")


@app.command("verify", cls=Command, epilog=examples("verax store verify --repair"))
def verify(
    store: Folder = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Move what is damaged to the quarantine; runs compute it anew.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    json: Json = False,
) -> None:
    """Read every entry and trained network and compare every checksum; exit code 1 where one is wrong."""
    from verax.studies import upkeep

    found = _store(store)
    sound, problems = 0, []
    with progress.bar(hidden=quiet) as bar:
        row = bar.add_task(
            "reading the store", total=sum(1 for _ in upkeep.listing(found)) + len(upkeep.networks(found))
        )
        for problem in upkeep.verify(found):
            bar.advance(row)
            if problem is None:
                sound += 1
                continue
            problems.append(problem)
            if not json:
                echo(f"{problem.path}: {problem.reason}")
            if repair:
                for path in (problem.path, *problem.beside):
                    found.remove_to_quarantine(path)
    if json:
        damaged = [{"path": problem.path, "reason": problem.reason} for problem in problems]
        print_json({"sound": sound, "damaged": damaged, "repaired": repair})
    else:
        done = " and moved to the quarantine" if repair and problems else ""
        say(f"{sound} entries are sound, {len(problems)} are damaged{done}.")
    if problems and not repair:
        raise typer.Exit(1)


@app.command("gc", cls=Command, epilog=examples("verax store gc --old"))
def gc(
    store: Folder = None,
    old: Annotated[bool, typer.Option("--old", help="Also results of other versions of the code.")] = False,
    maps: Annotated[bool, typer.Option("--maps", help="Also raw maps (--keep-maps).")] = False,
    failures: Annotated[bool, typer.Option("--failures", help="Also records of failures.")] = False,
    json: Json = False,
) -> None:
    """Remove the quarantine, left-over temporary files and parts without an entry."""
    from verax.studies import upkeep

    swept = upkeep.sweep(_store(store), old=old, maps=maps, failures=failures)
    if json:
        print_json(asdict(swept))
    else:
        say(f"{swept.files} files removed, {size_words(swept.size)}.")


@app.command("size", cls=Command, epilog=examples("verax store size --json"))
def size(store: Folder = None, json: Json = False) -> None:
    """Say how many entries of each kind there are, and how large they are."""
    from verax.studies import upkeep

    found = _store(store)
    counts: dict[str, tuple[int, int]] = {}
    for entry in upkeep.listing(found):
        number, total = counts.get(entry.kind, (0, 0))
        counts[entry.kind] = number + 1, total + entry.size
    whole = sum(total for _, total in counts.values())
    if json:
        kinds = {kind: {"entries": number, "bytes": total} for kind, (number, total) in counts.items()}
        print_json({"folder": found.folder, "bytes": whole, "kinds": kinds})
        return
    for kind, (number, total) in sorted(counts.items()):
        say(f"{kind:11}  {number:>9,}  {size_words(total):>9}")
    say(f"{found.folder}: {size_words(whole)}")
