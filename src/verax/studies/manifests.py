"""Manifests: what the manifest of a run has to hold before anything reads it.

A folder may have been damaged, edited by hand, written by another version or made to deceive. Its shape is
looked at once, when it is read, so that whoever asks for an entry finds it, and of the right kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from verax.errors import MissingFile


class _Part(BaseModel):
    """Entries that are not named here are somebody else's."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Chosen(_Part):
    name: str
    label: str
    parameters: dict[str, Any]


class _Study(_Part):
    name: str
    description: str = ""
    tasks: list[str]
    networks: list[str] = []
    seeds: list[int] = []
    methods: list[_Chosen] = []
    protocols: list[str]
    samples: int
    seed: int


class _Task(_Part):
    name: str
    family: str
    reasoning: str = ""
    renderer: str = "sound"
    field: str = ""
    preprocessing: list[str] = []
    groups: dict[str, str]


class _Network(_Part):
    task: str
    network: str
    seed: int
    sha256: str
    tier: int | None = None


class _Method(_Part):
    label: str
    name: str = ""
    family: str = ""
    total: str | None = None
    slack: str = ""
    parameters: dict[str, Any] = {}


class _Described(_Method):
    name: str
    family: str
    parameters: dict[str, Any]


class _Metric(_Part):
    name: str
    about: str
    higher_is_better: bool
    bounds: Annotated[list[Annotated[str | float, AfterValidator(float)]], Field(min_length=2, max_length=2)]
    protocol: str
    paper: str
    version: Any


class _Certificate(_Part):
    task: str
    network: str
    seed: int
    passed: bool


class _Gap(_Part):
    median: float
    largest: float


class _Unit(_Part):
    name: str
    method: str
    samples: int = 0
    wrong: int = 0
    degenerate: int = 0
    seconds: float = 0.0
    peak_bytes: int | None = None
    completeness_error: _Gap | None = None


class _Failure(_Part):
    unit: str
    method: str | None = None
    reason: str


class _Versions(_Part):
    verax: str


class _Trained(_Part):
    seconds: float


class _Manifest(_Part):
    """What everything that reads a run asks for."""

    study: _Study
    code: str
    created: str = ""
    versions: _Versions
    tasks: Annotated[list[_Task], Field(min_length=1)]
    networks: Annotated[list[_Network], Field(min_length=1)]
    methods: list[_Method] = []
    metrics: list[_Metric] = []
    certificates: list[_Certificate]
    units: list[_Unit] = []
    failures: list[_Failure]
    notes: list[str] = []
    unkept: list[str] = []
    trained: list[_Trained] = []
    seconds: float = 0.0
    hardware: dict[str, Any] = {}
    plan: str = ""
    total_units: int = 0
    reused_units: int = 0
    damaged_entries: int = 0

    @model_validator(mode="after")
    def _known(self) -> _Manifest:
        known = {task.name for task in self.tasks}
        for entry in self.networks:
            if entry.task not in known:
                raise ValueError(f"a network of {entry.task!r}, which is none of its tasks")
        return self


class _Followed(_Certificate):
    worst_accuracy: float
    worst_follow: float
    edits: int
    thresholds: dict[str, float]

    @model_validator(mode="after")
    def _both(self) -> _Followed:
        if not {"accuracy", "follow"} <= set(self.thresholds):
            raise ValueError("thresholds without accuracy or follow")
        return self


class _Fit(_Certificate):
    r2: float
    gradient: float | None = None
    mse: float
    limits: dict[str, float]

    @model_validator(mode="after")
    def _each(self) -> _Fit:
        for name in ("r2", "gradient", "dependence", "path"):
            if name in (self.model_extra or {}) or name in self.model_fields_set:
                value = getattr(self, name, None)
                if isinstance(value, bool) or not isinstance(value, int | float) or name not in self.limits:
                    raise ValueError(f"{name} that is no number, or has no limit")
        return self


class _Reported(_Manifest):
    """What the page of a run shows beyond that."""

    methods: list[_Described]  # type: ignore[assignment]
    units: list[_Unit]
    seconds: float
    hardware: dict[str, Any]
    plan: str
    created: str


def check(manifest: Mapping[str, Any], folder: str) -> None:
    """Refuse a manifest that is not one of a run.

    Args:
        manifest: as it was read.
        folder: of the run, for the message.
    """
    _check(_Manifest, manifest, folder)


def check_report(manifest: Mapping[str, Any], folder: str) -> None:
    """Refuse a manifest that lacks something which the page of a run shows."""
    _check(_Reported, manifest, folder)
    for place, entry in enumerate(manifest["certificates"]):
        _check(_Fit if "r2" in entry else _Followed, entry, folder, ("certificates", place))


def _check(model: type[BaseModel], values: object, folder: str, before: tuple[str | int, ...] = ()) -> None:
    try:
        model.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, (*before, *first["loc"])))
        wrong = f"{place!r} is missing" if first["type"] == "missing" else f"{place!r}: {first['msg']}"
        raise MissingFile(f"The manifest of {folder!r} is damaged or of another version: {wrong}.") from None
