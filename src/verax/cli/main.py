"""`verax`: the commands, and how they end.

Exit codes: 0 done; 1 the answer is no (a certificate or a method failed), or nobody reads it any more
(`verax list methods | true`); 2 bad input, with one sentence; 130 interrupted, by Ctrl-C or SIGTERM.
SIGPIPE stays ignored: a worker that dies would take the whole study along.
"""

from __future__ import annotations

import signal
import sys

import typer

from verax.cli import alignment, data, exports, listing, networks, plans, reproductions, runs, stores
from verax.errors import VeraxError
from verax.version import __version__

app = typer.Typer(
    name="verax",
    help="Does this explanation tell the truth? "
    "Attribution methods judged where the truth is known, and models by what people marked.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("run")(runs.run)
app.command("plan")(plans.plan)
app.command("report")(runs.report)
app.command("export")(exports.export)
app.command("align")(alignment.align)
app.command("list")(listing.show)
app.command("certify")(networks.certify)
app.command("train")(networks.train)
app.command("data")(data.data)
app.add_typer(stores.app, name="store")
app.add_typer(reproductions.app, name="reproduce")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"verax {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version."
    ),
) -> None:
    pass


def _stop(number: int, frame: object) -> None:
    """Batch systems ask before they kill: that is the same as Ctrl-C, and finished work is kept."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; errors that verax raises on purpose become one sentence and exit code 2."""
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        app()
    except VeraxError as error:
        typer.echo(f"verax: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:  # before or after a command that has more to say about it
        typer.echo("verax: Interrupted.", err=True)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
