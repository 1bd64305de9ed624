"""Rasters: xarray Datasets and DataArrays are explained and given back with their coordinates.

The first dimension counts samples, the others are places, as in (time, lat, lon). Places that are missing
(NaN) in every sample, as land is in maps of the sea, do not exist for the network: it gets vectors of the
other cells, row by row, all variables one after the other. Nothing here imports xarray: who hands over a
Dataset has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from verax.errors import InvalidInput, VeraxError
from verax.methods.base import Method
from verax.methods.inputs import check_inputs, check_model, prepared

_PLACES = ("lat", "latitude", "lon", "longitude")


def is_raster(value: object) -> bool:
    """Whether something is a Dataset or a DataArray of xarray."""
    return type(value).__module__.partition(".")[0] == "xarray" and hasattr(value, "dims")


def _variables(data: Any) -> list[Any]:
    """The DataArrays to explain: the one that it is, or those of a Dataset with the most dimensions."""
    if not hasattr(data, "data_vars"):
        return [data if data.name is not None else data.rename("attribution")]
    found = [v for v in data.data_vars.values() if v.dtype.kind == "f"]
    most = max((v.ndim for v in found), default=0)
    return [v for v in found if v.ndim == most]


@dataclass(frozen=True)
class Raster:
    """Fields of numbers over samples and places.

    Attributes:
        variables: the DataArrays, all with the same first dimension.
        kept: for each variable, which of its places hold values: bool, shape of the places.
    """

    variables: list[Any]
    kept: list[NDArray[np.bool_]]

    @classmethod
    def of(cls, data: Any) -> Raster:
        """Read a Dataset or a DataArray; a place must have a value in all samples or in none."""
        variables = _variables(data)
        if not variables or variables[0].ndim < 2:
            raise InvalidInput(
                "A Dataset must hold a variable of floating-point numbers over samples and places, "
                "such as (time, lat, lon)."
            )
        first = str(variables[0].dims[0])
        if first.lower() in _PLACES:
            raise InvalidInput(
                f"The first dimension counts samples, and here it is {first!r}; put that of the samples "
                "first, or keep it, as isel(time=[0]) does."
            )
        kept = []
        for variable in variables:
            if variable.dtype.kind != "f":
                raise InvalidInput(
                    f"Variable {variable.name!r} must hold floating-point numbers, not {variable.dtype}."
                )
            if variable.dims[0] != variables[0].dims[0] or not variable.size:
                raise InvalidInput(
                    "The variables of a Dataset must share their first dimension, the samples."
                )
            there = ~np.isnan(variable.values)
            some = there.any(0)
            partly = some & ~there.all(0)
            if partly.any():
                spot = _place(variable, np.argwhere(partly)[0])
                raise InvalidInput(
                    f"Variable {variable.name!r} is missing in some samples and not in others at {spot}."
                )
            if not some.any():
                raise InvalidInput(f"Variable {variable.name!r} has no values: all of them are missing.")
            kept.append(some)
        return cls(variables, kept)

    @property
    def samples(self) -> str:
        """The dimension that counts samples."""
        return str(self.variables[0].dims[0])

    def vectors(self) -> Tensor:
        """``(N, D)``: the places that hold values, variable by variable."""
        return torch.cat([_chosen(v, mask) for v, mask in zip(self.variables, self.kept, strict=True)], 1)

    def pictures(self) -> Tensor | None:
        """``(N, variables, ...)``, where every place of every variable holds a value."""
        if not all(mask.all() for mask in self.kept) or len({v.shape for v in self.variables}) > 1:
            return None
        return torch.from_numpy(np.stack([v.values for v in self.variables], 1).copy())

    def fitted(self, value: Any, name: str, pictures: bool) -> Any:
        """A parameter over the same places, as the network knows them; others as they are."""
        if not is_raster(value):
            return value
        given = _variables(value) if hasattr(value, "data_vars") else [value]
        if len(given) != len(self.variables):
            raise InvalidInput(f"Parameter {name!r} must have as many variables as the data.")
        parts = []
        for one, own, mask in zip(given, self.variables, self.kept, strict=True):
            where = tuple(own.dims[1:])
            if tuple(one.dims[-len(where) :]) != where or one.shape[-len(where) :] != own.shape[1:]:
                words = ", ".join(map(str, where))
                raise InvalidInput(f"Parameter {name!r} must have the dimensions ({words}) of the data.")
            rows = one.values.reshape(*one.shape[: -len(where)], *own.shape[1:])
            parts.append(rows if pictures else rows[..., mask])
        found = np.stack(parts, -1 - self.kept[0].ndim) if pictures else np.concatenate(parts, -1)
        if name == "segments":
            return torch.from_numpy(_whole(found))
        return torch.from_numpy(np.ascontiguousarray(found, dtype=np.float64)).float()

    def restored(self, maps: Tensor, about: Mapping[str, str]) -> Any:
        """Maps of the network's inputs as a Dataset with the coordinates of the data, NaN on land."""
        values = maps.detach().cpu().numpy()
        if values.ndim > 2:
            parts = list(np.moveaxis(values, 1, 0))
        else:
            sizes = np.cumsum([int(mask.sum()) for mask in self.kept])[:-1]
            parts = np.split(values, sizes, axis=1)
        made = []
        for variable, mask, part in zip(self.variables, self.kept, parts, strict=True):
            full = np.full(variable.shape, np.nan, dtype=np.float32)
            full[:, mask] = part.reshape(len(full), -1)
            result = variable.copy(data=full)
            result.attrs = {"long_name": f"attribution of {variable.name}", **about}
            result.encoding = {}  # a scale meant for the data would round attributions to nothing
            made.append(result)
        first, *others = made
        return first.to_dataset().assign({other.name: other for other in others})


def _place(variable: Any, index: NDArray[np.int64]) -> str:
    """A place in words, by its coordinates where it has them."""
    words = []
    for dim, number in zip(variable.dims[1:], index, strict=True):
        known = dim in variable.coords
        words.append(f"{dim} {variable.coords[dim].values[number] if known else number}")
    return ", ".join(words)


def _chosen(variable: Any, mask: NDArray[np.bool_]) -> Tensor:
    return torch.from_numpy(
        np.ascontiguousarray(variable.values[:, mask].astype(variable.dtype.newbyteorder("=")))
    )


def _whole(values: NDArray[Any]) -> NDArray[np.int64]:
    """Whole numbers, which xarray keeps as floats where some are missing."""
    if not (np.isfinite(values).all() and (values == np.round(values)).all()):
        raise InvalidInput("Segments must be whole numbers that name the segment of each place.")
    return values.astype(np.int64)


def _taken(model: nn.Module, raster: Raster) -> Tensor:
    """The inputs in the shape that the network takes: vectors of cells, else whole pictures."""
    vectors, pictures = check_inputs(raster.vectors()), raster.pictures()
    try:
        prepared(model, vectors[:1], None)
    except InvalidInput as error:
        cells, places = vectors.shape[1], sum(mask.size for mask in raster.kept)
        if pictures is None and cells < places:
            raise InvalidInput(
                f"The network gets vectors of the {cells} cells that hold values (the other {places - cells} "
                f"of {places} are missing) and cannot run on them ({_reason(error)}); if it takes all "
                f"{places}, fill what is missing first."
            ) from error
        if pictures is None:
            raise
        try:
            prepared(model, pictures[:1], None)
        except VeraxError as other:
            raise InvalidInput(
                f"The network runs neither on vectors of {cells} cells ({_reason(error)}) nor on pictures of "
                f"shape {tuple(pictures.shape[1:])} ({_reason(other)})."
            ) from error
        return pictures
    return vectors


def _reason(error: VeraxError) -> str:
    """What the network itself said, without the sentence around it."""
    words = str(error).removesuffix(".")
    return words.partition(": ")[2] or words


def explain_raster(
    explain: Callable[..., Tensor],
    model: nn.Module,
    data: Any,
    targets: Any,
    parameters: Mapping[str, Any],
    *,
    method: Method,
    **options: Any,
) -> Any:
    """Attributions of a Dataset or DataArray: a Dataset with its variables and coordinates.

    Args:
        explain: `verax.explain`.
        model: takes vectors of the cells that hold values or, where none is missing, pictures with a
            channel for each variable.
        data: samples in the first dimension.
        targets: the output to explain for each sample.
        parameters: the method's own; those over the same places may be rasters too.
        method: the method; the attributes of the result name it.
        **options: of `verax.explain`.
    """
    raster = Raster.of(data)
    inputs = _taken(check_model(model), raster)
    fitted = {name: raster.fitted(value, name, inputs.ndim > 2) for name, value in parameters.items()}
    wanted = np.asarray(targets) if is_raster(targets) else targets
    maps = explain(model, inputs, wanted, method, settings=fitted, **options)
    return raster.restored(maps, {"method": method.name})
