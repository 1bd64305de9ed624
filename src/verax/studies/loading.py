"""Loading: what lies in a folder, a run or an alignment, without being told which."""

from __future__ import annotations

import json
from pathlib import Path

from verax.errors import MissingFile
from verax.studies.alignments import Alignment
from verax.studies.runs import MANIFEST, Run


def load(folder: str | Path) -> Run | Alignment:
    """The run or the alignment in a folder that ``verax run``, ``verax align`` or their functions wrote.

    Args:
        folder: of the results, such as ``runs/NAME-HASH``.
    """
    where = Path(folder).expanduser()
    name = str(where)
    if not where.is_dir():
        raise MissingFile(f"There is no folder {name!r}.")
    if not (where / MANIFEST).is_file():
        if (where / "claims.json").is_file():
            raise MissingFile(f"{name!r} holds an experiment or a reproduction: verax open shows its page.")
        inside = sorted(path.name for path in where.iterdir() if (path / MANIFEST).is_file())
        hint = f"; name one of the folders in it, such as {str(where / inside[0])!r}" if inside else ""
        raise MissingFile(f"{name!r} holds neither a run nor an alignment: it has no {MANIFEST}{hint}.")
    try:
        said = json.loads((where / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise MissingFile(f"The manifest of {name!r} cannot be read.") from error
    if isinstance(said, dict) and "study" not in said and {"key", "model"} <= said.keys():
        return Alignment.load(where)
    found = Run(where)
    found.manifest  # noqa: B018 (reading it refuses what is damaged or not finished)
    return found
