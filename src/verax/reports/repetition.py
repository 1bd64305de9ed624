"""How to repeat a study: the command, or Python where a command cannot say it, and the file that it needs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from verax.reports import names
from verax.studies import spec
from verax.tasks import TASKS


def toml(values: Mapping[str, Any]) -> str:
    """Plain values as TOML."""

    def one(value: Any) -> str:
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{json.dumps(k)} = {one(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(one(entry) for entry in value) + "]"
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

    return "".join(f"{name} = {one(value)}\n" for name, value in values.items())


_LISTS = ("methods", "tasks", "networks", "seeds", "protocols", "metrics")
_VALUES = ("samples", "seed", "certify", "identify", "renderer", "background", "field", "variable")


def about(study: Mapping[str, Any]) -> str:
    """What a study is about; of a changed preset its own words may no longer hold, which is said."""
    words = str(study.get("description") or "")
    if study["name"] not in spec.presets():
        return words
    preset = spec.study(str(study["name"])).model_dump()
    changed = [key for key, value in preset.items() if study.get(key, value) != value]
    if not changed or "description" in changed:
        return words
    return f"The study {study['name']} with other {names(changed)} than it comes with."


def own(manifest: Mapping[str, Any]) -> list[str]:
    """Methods, metrics and tasks that only Python knew: a command cannot name them."""
    listed = [entry for entry in manifest["methods"] if entry["family"] == "own"]
    listed += manifest.get("metrics", [])
    unknown = [str(entry["name"]) for entry in listed if not ({"source", "plugin"} & entry.keys())]
    stems = [str(name).partition("?")[0] for name in manifest["study"]["tasks"]]
    return list(dict.fromkeys([*unknown, *(s for s in stems if not (TASKS.builtin(s) or TASKS.origin(s)))]))


def repeat(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """What repeats a run, a command or Python code, and the TOML file that it needs ("" for a preset)."""
    listed = [*manifest["methods"], *manifest.get("metrics", [])]
    sources = {str(entry["name"]): str(entry["source"]) for entry in listed if "source" in entry}
    if not own(manifest):
        return command(manifest["study"], sources)
    return _python(manifest["study"], sources)


def _changes(study: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any] | None:
    """What options make of a preset; None where they cannot make this study."""
    name = str(study["name"])
    if name not in spec.presets():
        return None
    preset = spec.study(name).model_dump()
    changed = {key: value for key, value in study.items() if preset.get(key) != value}
    if "methods" in changed:
        labels = {entry["label"]: entry for entry in preset["methods"]}
        changed["methods"] = [
            entry["label"] if labels.get(entry["label"]) == entry else _plain(entry, sources)
            for entry in changed["methods"]
        ]
    if "metrics" in changed:
        changed["metrics"] = [sources.get(name, name) for name in changed["metrics"]]
    return changed if changed.keys() <= {*_LISTS, *_VALUES} else None


def _plain(entry: Mapping[str, Any], sources: Mapping[str, str]) -> Any:
    """A method as it is named where a study is run, or the whole entry where it has more than a name."""
    bare = entry["label"] == entry["name"] and not entry["parameters"]
    return sources.get(entry["name"], entry["name"]) if bare else dict(entry)


def command(study: Mapping[str, Any], sources: Mapping[str, str] | None = None) -> tuple[str, str]:
    """The command that repeats a study, and the TOML file that it needs ("" for a preset).

    Args:
        study: its values.
        sources: ``FILE.py:NAME`` of methods and metrics that came from files.
    """
    sources = sources or {}
    changed = _changes(study, sources)
    if changed is not None and all(map(_sayable, changed.values())):
        words = ["verax", "run", str(study["name"])]
        for key, value in changed.items():
            words += [f"--{key}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
        return shlex.join(words), ""
    words = ["verax", "run", f"{study['name']}.toml"]
    if any(entry["name"] in sources for entry in study["methods"]):  # a study file names no files
        named = [_plain(entry, sources) for entry in study["methods"]]
        named = [entry if isinstance(entry, str) else entry["label"] for entry in named]
        words += ["--methods", ",".join(named)]
    if any(name in sources for name in study.get("metrics", [])):
        words += ["--metrics", ",".join(sources.get(name, name) for name in study["metrics"])]
    return shlex.join(words), toml(study)


def _sayable(value: Any) -> bool:
    """Whether an option of a command can have a value."""
    return not isinstance(value, list) or all(
        not isinstance(entry, Mapping) and "," not in str(entry) for entry in value
    )


def _python(study: Mapping[str, Any], sources: Mapping[str, str]) -> tuple[str, str]:
    """Python code that repeats a study, and the TOML file that it needs ("" for a preset)."""
    changed = _changes(study, sources)
    if changed is None:
        return f"import verax\n\nverax.run({study['name'] + '.toml'!r})", toml(study)
    words = [repr(study["name"]), *(f"{key}={value!r}" for key, value in changed.items())]
    return f"import verax\n\nverax.run({', '.join(words)})", ""
