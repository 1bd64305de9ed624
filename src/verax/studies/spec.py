"""Studies as they are written down: TOML in, a checked description out."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from verax.errors import InvalidStudy, MissingFile, UnknownName, suggestion

PRESETS = Path(__file__).parent / "presets"
_MAX_BYTES = 1 << 20  # no study is a megabyte long


class MethodSpec(BaseModel):
    """A method with parameters; `label` is its name in tables."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    label: str
    parameters: dict[str, bool | int | float | str] = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value, "label": value}
        if isinstance(value, Mapping) and "name" in value and "parameters" not in value:
            own = {k: v for k, v in value.items() if k not in ("name", "label")}
            words = [str(value["name"]), *(f"{k}={v}" for k, v in own.items())]
            return {"name": value["name"], "label": value.get("label", " ".join(words)), "parameters": own}
        return value


Count = Annotated[int, Field(ge=1, le=100_000, strict=True)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=True)]


class Study(BaseModel):
    """tasks x networks x seeds x methods x protocols.

    Attributes:
        name: of the study; the run folder is called after it.
        description: one sentence.
        tasks: names of tasks.
        networks: names of networks.
        seeds: training seeds of the networks.
        methods: names, or tables with ``name``, an optional ``label`` and the method's parameters.
        protocols: "sound", "published", "faithfulness" or several of them; "exact" for tasks with vectors.
        metrics: own metrics that are scored beside those of the protocols.
        samples: cases in each bucket.
        seed: of the cases and of methods that draw random numbers.
        certify: scenes in each bucket for the certificates; 0 leaves them out.
        identify: pictures in each bucket from which the reasoning is read off the maps, at most `samples`; 0
            leaves it out.
        renderer: of TextBox tasks.
        background: of TextBox tasks.
        field: a file that the fields of climate tasks are read from, in place of their own.
        variable: of that file, where it has several.
        missing: "stop" where a network is not stored, "train" to train it and keep it in the store, or "skip"
            to go on with the seeds that are; where none of them is, the shipped seed 0 stands in. The run
            says so, and how to train the others.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    description: str = ""
    tasks: Annotated[list[str], Field(min_length=1)]
    networks: Annotated[list[str], Field(min_length=1)] = ["cnn4"]
    seeds: Annotated[list[Seed], Field(min_length=1)] = [0]
    methods: Annotated[list[MethodSpec], Field(min_length=1)]
    protocols: Annotated[list[str], Field(min_length=1)] = ["sound", "published"]
    metrics: list[str] = []
    samples: Count = 20
    seed: Seed = 0
    certify: Annotated[int, Field(ge=0, le=100_000, strict=True)] = 50
    identify: Annotated[int, Field(ge=0, le=100_000, strict=True)] = 0
    renderer: str = "sound"
    background: str = "black"
    field: str = ""
    variable: str = ""
    missing: Literal["stop", "skip", "train"] = "stop"

    @model_validator(mode="after")
    def _unique(self) -> Study:
        lists: dict[str, list[Any]] = {
            "tasks": self.tasks,
            "networks": self.networks,
            "seeds": self.seeds,
            "protocols": self.protocols,
            "metrics": self.metrics,
            "methods": [method.label for method in self.methods],
        }
        for name, entries in lists.items():
            for entry in entries:
                if entries.count(entry) > 1:
                    raise ValueError(f"{name} has {entry!r} twice")
        return self


def presets() -> list[str]:
    """The names of the studies that come with verax."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def _sentence(error: ValidationError, values: Mapping[str, Any]) -> str:
    """The first fault in plain words; entries of lists are counted from 1, as people do."""
    first = error.errors()[0]
    parts = [str(part + 1) if isinstance(part, int) else part for part in first["loc"]]
    place, limits = " ".join(parts) or "study", first.get("ctx", {})
    match first["type"]:
        case "extra_forbidden":
            return f"{place!r} is not part of a study{suggestion(place, Study.model_fields)}"
        case "missing":
            unknown = [name for name in values if name not in Study.model_fields]
            hint = f"; did you mean {place!r} where it says {unknown[0]!r}?" if unknown else ""
            return f"{place!r} is missing{hint}"
        case "greater_than_equal":
            return f"{place} must be at least {limits['ge']}"
        case "less_than_equal":
            return f"{place} must be at most {limits['le']}"
        case "less_than":
            return f"{place} must be below {limits['lt']}"
        case "too_short":
            return f"the list of {place} is empty"
        case "string_pattern_mismatch":
            return f"{place} must be made of letters, digits, '.', '_' and '-' (64 at most)"
        case "int_type" | "int_parsing":
            return f"{place} must be a whole number"
        case _:
            return f"{place}: {first['msg'].removeprefix('Value error, ')}"


def build(values: Mapping[str, Any], where: str) -> Study:
    """A study from plain values; `where` names their origin in the error."""
    try:
        return Study.model_validate(dict(values))
    except ValidationError as error:
        words = _sentence(error, values)
        end = "" if words.endswith("?") else "."
        raise InvalidStudy(f"{where} is not a valid study: {words}{end}") from error


def read(path: Path) -> dict[str, Any]:
    """The values in a TOML file."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # it might never end
        raise MissingFile(f"The study {str(path)!r} cannot be read: it is a pipe or a device, not a file.")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MissingFile(f"The study {str(path)!r} cannot be read: {error.strerror}.") from error
    if len(data) > _MAX_BYTES:
        raise InvalidStudy(f"{str(path)!r} is too large to be a study.")
    try:
        return tomllib.loads(data.decode())
    except ValueError as error:  # broken TOML, broken UTF-8, or a number of thousands of digits
        raise InvalidStudy(f"{str(path)!r} is not valid TOML: {error}.") from error
    except RecursionError as error:
        raise InvalidStudy(f"{str(path)!r} is not valid TOML: nested too deeply.") from error


def _values(source: str | Path | Mapping[str, Any] | Study) -> tuple[dict[str, Any], str]:
    """The plain values of a study, and where they come from in words."""
    if isinstance(source, Study):
        return source.model_dump(), "The study"
    if isinstance(source, Mapping):
        return dict(source), "The mapping"
    if isinstance(source, Path) or source.endswith(".toml"):
        return read(Path(source).expanduser()), repr(str(source))
    known = presets()
    if source not in known:
        raise UnknownName(
            f"There is no study named {source!r}{suggestion(source, known)} (a file must end in .toml)"
        )
    return read(PRESETS / f"{source}.toml"), repr(source)


def labelled(source: str | Path | Mapping[str, Any] | Study) -> dict[str, MethodSpec]:
    """The methods of a study by their labels, as far as they can be read; `study` says what is wrong."""
    entries = _values(source)[0].get("methods")
    found: dict[str, MethodSpec] = {}
    for entry in entries if isinstance(entries, list) else []:
        with suppress(ValidationError):
            spec = MethodSpec.model_validate(entry)
            found[spec.label] = spec
    return found


def study(source: str | Path | Mapping[str, Any] | Study, **changes: Any) -> Study:
    """A study from its name, a TOML file, a mapping, or as it is, with `changes` that are not None."""
    values, where = _values(source)
    kept = {name: value for name, value in changes.items() if value is not None}
    return build({**values, **kept}, f"{where} with these options" if kept else where)
