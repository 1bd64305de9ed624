"""Small folders in the layouts of well-known data sets, written by the tests themselves."""

import numpy as np
from PIL import Image

VOC_OBJECT = (
    "<object><name>{name}</name><bndbox><xmin>{xmin}</xmin><ymin>{ymin}</ymin>"
    "<xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox></object>"
)


def picture(path, height=8, width=12, level=100, seed=None):
    """A picture of one level, or of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if seed is None:
        levels = np.full((height, width, 3), level, np.uint8)
    else:
        levels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(levels).save(path)
    return levels


def mask(path, marked, value=255, mode=np.uint8):
    """A mask that has `value` where `marked` is true."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((np.asarray(marked) * value).astype(mode)).save(path)


def rectangle(height, width, rows, cols):
    """A mask of one rectangle."""
    marked = np.zeros((height, width), bool)
    marked[slice(*rows), slice(*cols)] = True
    return marked


def voc_file(path, objects, size=(8, 12)):
    """An XML file; `objects` are (name, xmin, ymin, xmax, ymax), `size` is (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    inner = "".join(
        VOC_OBJECT.format(name=name, xmin=xmin, ymin=ymin, xmax=xmax, ymax=ymax)
        for name, xmin, ymin, xmax, ymax in objects
    )
    outer = "" if size is None else f"<size><width>{size[1]}</width><height>{size[0]}</height></size>"
    path.write_text(f"<annotation>{outer}{inner}</annotation>")


BOMB = """<?xml version="1.0"?>
<!DOCTYPE bomb [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<annotation>&b;</annotation>"""

LEAK = """<?xml version="1.0"?>
<!DOCTYPE leak [<!ENTITY secret SYSTEM "file:///etc/hostname">]>
<annotation><object><name>&secret;</name></object></annotation>"""
