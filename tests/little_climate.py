"""A climate task that is small enough for tests: 4 x 6 points, two of them land, one row at the pole."""

import numpy as np
import torch

from verax.tasks.climate.fields import Field
from verax.tasks.climate.grid import Grid
from verax.tasks.climate.task import Climate


def little_field():
    ocean = np.ones((4, 6), dtype=bool)
    ocean[1, 2] = ocean[3, 5] = False
    grid = Grid.of([89.5, 40.0, 0.0, -40.0], np.arange(0.5, 360, 60), ocean)
    near = torch.exp(-grid.distances() / 2000)
    return Field.of("little", grid, near)


def little_task(name="little/climate", count=4096, **options):
    return Climate(name, little_field(), count=count, **options)
