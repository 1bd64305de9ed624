"""How to repeat a study: the command, and the file that it needs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from verax.studies import spec


def toml(values: Mapping[str, Any]) -> str:
    """Plain values as TOML."""

    def one(value: Any) -> str:
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{json.dumps(k)} = {one(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(one(entry) for entry in value) + "]"
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

    return "".join(f"{name} = {one(value)}\n" for name, value in values.items())


def command(study: Mapping[str, Any]) -> tuple[str, str]:
    """The command that repeats a study, and the TOML file that it needs ("" for a preset)."""
    name = str(study["name"])
    if name in spec.presets():
        preset = spec.study(name).model_dump()
        changed = [key for key, value in study.items() if preset.get(key) != value]
        words = ["verax", "run", name]
        for key in changed:
            value = study[key]
            if key == "methods":
                plain = all(m["label"] == m["name"] and not m["parameters"] for m in value)
                value = [m["name"] for m in value] if plain else None
            listed = isinstance(value, list) and not any("," in str(entry) for entry in value)
            if key in ("methods", "tasks", "networks", "seeds", "protocols") and listed:
                words += [f"--{key}", ",".join(map(str, value))]
            elif key in ("samples", "seed", "certify", "identify", "field", "variable"):
                words += [f"--{key}", str(value)]
            else:
                break
        else:
            return shlex.join(words), ""
    return shlex.join(["verax", "run", f"{name}.toml"]), toml(study)
