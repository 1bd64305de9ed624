"""Climate: fields on the sphere, a known function of them and the exact contribution of every cell."""

from verax.tasks.climate.fields import Field
from verax.tasks.climate.functions import LocalFunctions
from verax.tasks.climate.grid import Grid
from verax.tasks.climate.samples import Kept, Samples
from verax.tasks.climate.task import Climate

__all__ = ["Climate", "Field", "Grid", "Kept", "LocalFunctions", "Samples"]
