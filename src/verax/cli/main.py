"""`verax`: the commands, and how they end.

Exit codes: 0 done; 1 the answer is no (a certificate or a method failed); 2 bad input, with one sentence;
130 interrupted, by Ctrl-C or SIGTERM; 141 nobody reads the output any more (`verax list methods | true`), as
shells report it of other programs. SIGPIPE itself stays ignored: a worker that dies would take the whole
study along.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import typer

from verax.cli import (
    alignment,
    comparisons,
    data,
    exports,
    leaderboards,
    listing,
    networks,
    pages,
    plans,
    reproductions,
    runs,
    stores,
)
from verax.cli.console import AUDIT, JUDGE, KEEP, LOOK, REPRODUCE, Command, echo, examples
from verax.errors import VeraxError
from verax.version import __version__

_EPILOG = examples(
    "verax run smerf-quick           a first verdict, minutes on a laptop",
    "verax open                      look at it in the browser",
    "verax list methods              what can be judged",
    "verax compare runs/a runs/b     what has changed, with paired tests",
    "verax align --model timm:resnet18 --images photos --masks masks",
) + (
    "\n\n[bold]Exit codes[/bold]"
    "\n    0  done"
    "\n    1  the answer is no: a certificate or a method failed"
    "\n    2  bad input, with one sentence that says what to do"
    "\n  130  interrupted; finished work is kept, and the same command goes on"
    "\n  141  nobody reads the output any more, as behind | head"
    "\n\nAll about a command: verax COMMAND --help. NO_COLOR=1 gives plain text, and"
    "\nVERAX_STORE says where finished work is kept."
)

app = typer.Typer(
    name="verax",
    help="Does this explanation tell the truth?\n\n"
    "Attribution methods judged where the truth is known, and models by what people marked.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add(name: str, function: Callable[..., None], panel: str, about: str, *calls: str) -> None:
    """A command with its group, its line in the overview, and examples."""
    app.command(name, cls=Command, rich_help_panel=panel, short_help=about, epilog=examples(*calls))(function)


_add(
    "run", runs.run, JUDGE, "Run a study: explain, score, rank, write a report.",
    "verax run smerf-quick",
    "verax run smerf --samples 50 --methods gradient,grad-cam --device cuda",
    "verax run my-study.toml --out results/mine --json > results.json",
)  # fmt: skip
_add(
    "plan",
    plans.plan,
    JUDGE,
    "Show what a study would do, and how long it would take.",
    "verax plan smerf",
    "verax plan my-study.toml --samples 500 --json",
)
_add(
    "certify", networks.certify, JUDGE, "Prove that a network follows the reasoning of a task.",
    "verax certify textbox/complex-cr2",
    "verax certify textbox/simple-fr --network cnn3 --weights mine.safetensors",
)  # fmt: skip
_add(
    "train", networks.train, JUDGE, "Train a network, certify it and keep it.",
    "verax train textbox/complex-cr2 --network cnn4 --seed 1",
    "verax train climate/analytic --network mlp --device cuda",
)  # fmt: skip
_add(
    "align", alignment.align, AUDIT, "Does a network look where people marked?",
    "verax align --model timm:resnet18 --images photos --masks masks",
    "verax align --model torchvision:resnet50 --voc VOC2012 --method lrp-a",
    "verax align --model timm:resnet18 --images photos --boxes boxes.csv --json",
)  # fmt: skip
app.add_typer(reproductions.app, name="reproduce", rich_help_panel=REPRODUCE)
_add(
    "data",
    data.data,
    REPRODUCE,
    "Fetch data that the package does not carry.",
    "verax data cobe-sst2",
    "verax data sea-ice --file icec.mon.mean.nc",
)
_add(
    "open", pages.open_, LOOK, "Open the report of a run in the browser.",
    "verax open                the newest run in runs/",
    "verax open smerf-quick    the newest run of this study",
    "verax open results/mine   the run in this folder",
)  # fmt: skip
_add(
    "report",
    pages.report,
    LOOK,
    "Write the report of a finished run again.",
    "verax report runs/smerf-quick-1a2b3c4d",
)
_add(
    "compare", comparisons.compare, LOOK, "How runs differ, picture by picture, with paired tests.",
    "verax compare runs/before runs/after",
    "verax compare runs/a runs/b runs/c --metric rank-accuracy --out compared.html",
)  # fmt: skip
_add(
    "leaderboard", leaderboards.leaderboard, LOOK, "The methods of many runs in one sortable page.",
    "verax leaderboard runs",
    "verax leaderboard mine theirs --out board.html --csv board.csv",
)  # fmt: skip
_add(
    "export", exports.export, LOOK, "The scores of a run as CSV, Parquet or in MLflow.",
    "verax export runs/smerf-quick-1a2b3c4d --format csv",
    "verax export runs/smerf-quick-1a2b3c4d --out scores.parquet",
    "verax export runs/smerf-quick-1a2b3c4d --format mlflow",
)  # fmt: skip
_add(
    "list", listing.show, LOOK, "List tasks, networks, methods, metrics or studies.",
    "verax list methods",
    "verax list methods integrated-gradients",
    "verax list studies --json",
)  # fmt: skip
app.add_typer(stores.app, name="store", rich_help_panel=KEEP)


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


_UNREAD = 128 + 13  # what shells show of a program that SIGPIPE has ended


def _unread(error: BaseException | None) -> bool:
    """Whether an end was caused by a pipe that nobody reads; rich and typer make exit code 1 of that."""
    while error is not None and not isinstance(error, BrokenPipeError):
        error = error.__context__
    return error is not None


def _leave_quietly() -> NoReturn:
    """End, without a word about what is left in the buffers and can no longer be written."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]
        with suppress(OSError, ValueError, AttributeError):
            os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
    sys.exit(_UNREAD)


def _short(name: str, most: int = 80) -> str:
    """The end of a long name, which tells more than its beginning."""
    return name if len(name) <= most else f"...{name[-most:]}"


def main() -> None:
    """Run the command line; errors that verax raises on purpose become one sentence and exit code 2."""
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        app(prog_name="verax")
    except (SystemExit, BrokenPipeError) as error:
        if _unread(error):
            _leave_quietly()
        raise
    except VeraxError as error:
        echo(f"verax: {error}", err=True)
        sys.exit(2)
    except OSError as error:  # a name that is too long for the system, a disk that has gone
        where = f" for {_short(str(error.filename))!r}" if error.filename else ""
        echo(f"verax: The system answered {(error.strerror or str(error))!r}{where}.", err=True)
        sys.exit(2)
    except KeyboardInterrupt:  # before or after a command that has more to say about it
        typer.echo("verax: Interrupted.", err=True)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
