"""Drawing faces: shapes painted one over the other, and which part each pixel belongs to."""

from __future__ import annotations

import torch
from torch import Tensor

from verax.seeding import Streams
from verax.tasks.alignment.faces_anatomy import Anatomy, Variables
from verax.tasks.alignment.shapes import Number, band, box, cover, ellipse

PARTS = ("background", "cloth", "neck", "skin", "hair", "nose", "eyes", "brows", "mouth")
_WHITE = (0.96, 0.95, 0.93)
_TURN = 0.30  # radians of a head turned all the way


class _Canvas:
    """Pictures on which shapes are painted, and the part on top of each pixel."""

    def __init__(self, image: Tensor, pixel: float) -> None:
        self.image, self.pixel = image, pixel
        self.part = torch.zeros(image.shape[0], *image.shape[2:], dtype=torch.int8, device=image.device)

    def paint(
        self, distance: Tensor, colour: Tensor | tuple[float, ...], part: str | None, alpha: Number = 1.0
    ) -> None:
        """Paint a shape; with a part, the pixels at least half covered belong to it."""
        if isinstance(colour, tuple):
            colour = torch.tensor(colour, device=self.image.device)[None, :, None, None]
        covered = cover(distance, self.pixel)
        if part is not None:
            self.part[covered >= 0.5] = PARTS.index(part)
        self.image = torch.lerp(self.image, colour.expand_as(self.image), (covered * alpha)[:, None])


def _grid(size: int, like: Tensor) -> tuple[Tensor, Tensor]:
    steps = (torch.arange(size, device=like.device) + 0.5) * (2 / size) - 1
    return steps[None, None, :].expand(len(like), size, size), steps[None, :, None].expand(
        len(like), size, size
    )


def _backdrop(anatomy: Anatomy, streams: Streams, x: Tensor, y: Tensor) -> Tensor:
    """Two colours from top to bottom, and three soft spots."""
    image = torch.lerp(anatomy.colours["above"], anatomy.colours["below"], (0.5 + 0.5 * y)[:, None])
    spots = streams.uniform("spots", 3, 6).float()[..., None, None, None]
    for spot in spots.unbind(1):
        centre_x, centre_y, spread = spot[:, 0] * 2 - 1, spot[:, 1] * 2 - 1, 0.2 + 0.4 * spot[:, 2]
        glow = torch.exp(-((x[:, None] - centre_x).square() + (y[:, None] - centre_y).square()) / spread**2)
        image = image + 0.3 * (spot[:, 3:6, 0] - 0.5) * glow
    return image.clamp(0, 1)


def _turned(anatomy: Anatomy, pose: Tensor, at: Number) -> tuple[Tensor, Tensor]:
    """Where a place `at` right of the middle of the face comes to lie, and how narrow it gets."""
    width = anatomy["face_width"] * 1.15
    angle = torch.asin(
        (at / width).clamp(-0.95, 0.95) if isinstance(at, Tensor) else torch.full_like(width, at)
    )
    return width * torch.sin(angle + pose * _TURN), torch.cos(angle + pose * _TURN) / torch.cos(angle)


def _head(canvas: _Canvas, anatomy: Anatomy, x: Tensor, y: Tensor) -> None:
    """Hair behind the head, neck, cloth, ears and face."""
    a, skin = anatomy, anatomy.colours["skin"]
    width, volume = a["face_width"], a["hair_volume"]
    long = (a["length"] >= 1).float()
    end = torch.where(a["length"] == 2, 0.85, 0.42)
    outer = ellipse(x, y + 0.10, width + volume, 0.56 + volume)
    curtain = box(x, y - (end - 0.1) / 2, width + volume * 0.9, (end + 0.1) / 2, 0.15)
    back = torch.where(long > 0, torch.minimum(outer, curtain), torch.maximum(outer, y + 0.06))
    canvas.paint(back, _hair(a, x, y) * 0.75, "hair")
    shade = (0.72 + 0.25 * ((y - 0.5) / 0.4).clamp(0, 1))[:, None]  # the chin's shadow
    canvas.paint(box(x, y - 0.8, a["neck_width"], 0.5, 0.02), skin * shade, "neck")
    body = torch.maximum(
        ellipse(x, y - 1.18, a["shoulders"], 0.56), -ellipse(x, y - 0.68, a["neck_width"] + 0.05, 0.16)
    )
    canvas.paint(body, a.colours["cloth"] * (1 - 0.15 * x.abs())[:, None], "cloth")
    for side in (-1, 1):
        ear = ellipse(x - side * (width + 0.01), y - 0.02, 0.06, 0.10)
        canvas.paint(torch.where(long > 0, 1.0, ear), skin * 0.88, "skin")
    narrow = 1 - a["jaw"] * y.clamp(min=0).square() * 1.6
    round_ = (
        0.80 + 0.20 * (1 - (x / width).square() - 0.4 * (y / a["face_height"]).square()).clamp(0, 1).sqrt()
    )
    canvas.paint(ellipse(x / narrow, y, width, a["face_height"]), skin * round_[:, None], "skin")


def _hair(anatomy: Anatomy, x: Tensor, y: Tensor) -> Tensor:
    """The colour of hair with strands and a soft gleam."""
    wave = torch.sin(anatomy["strands"] * (x + 0.25 * y * (x - anatomy["hair_part"])) + anatomy["phase"])
    gleam = torch.exp(-((y + 0.42) / 0.12).square())
    return (anatomy.colours["hair"] * (1 + 0.08 * wave)[:, None] + 0.10 * gleam[:, None]).clamp(0, 1)


def _nose(canvas: _Canvas, anatomy: Anatomy, light: Tensor, pose: Tensor, x: Tensor, y: Tensor) -> None:
    a, skin = anatomy, anatomy.colours["skin"]
    shift, _ = _turned(a, pose, 0.0)
    tip = a["eye_row"] + a["nose_length"] + 0.04
    x = x - shift - 0.05 * pose * ((y - a["eye_row"]) / a["nose_length"]).clamp(0, 1)
    share = ((y - a["eye_row"]) / (tip - a["eye_row"])).clamp(0, 1)
    bridge = band(x, y, 1.0, a["eye_row"] + 0 * x, tip + 0 * x)
    bridge = torch.maximum(bridge, x.abs() - a["nose_width"] * (0.30 + 0.45 * share))
    nose = torch.minimum(bridge, ellipse(x, y - tip, a["nose_width"], 0.042))
    side = 0.90 + 0.09 * torch.tanh(x * light * 30) + 0.05 * share
    canvas.paint(nose, skin * side[:, None], "nose")
    canvas.paint(ellipse(x, y - tip - 0.030, a["nose_width"] * 0.8, 0.016), skin * 0.70, None, 0.6)
    for part in (-1, 1):
        canvas.paint(
            ellipse(x - part * a["nose_width"] * 0.5, y - tip - 0.018, 0.018, 0.013), skin * 0.5, None
        )


def _eyes(canvas: _Canvas, anatomy: Anatomy, pose: Tensor, x: Tensor, y: Tensor) -> None:
    a = anatomy
    for side in (-1, 1):
        at, narrow = _turned(a, pose, side * a["eye_apart"])
        u, v = (x - at) / narrow, y - a["eye_row"]
        width, opening = a["eye_width"], a["eye_open"]
        radius = (width.square() + opening.square()) / (2 * opening)
        upper = (u.square() + (v - opening + radius).square()).sqrt() - radius
        lower = (u.square() + (v + opening - radius).square()).sqrt() - radius
        lids = torch.maximum(upper, lower)
        canvas.paint(lids - 0.010, a.colours["skin"] * 0.35, "eyes")
        canvas.paint(lids, _WHITE, "eyes")
        inside = torch.maximum(lids, ellipse(u - a["gaze"], v, 0.046, 0.046))
        canvas.paint(inside, a.colours["iris"], "eyes")
        canvas.paint(torch.maximum(lids, ellipse(u - a["gaze"], v, 0.022, 0.022)), (0.03, 0.03, 0.03), "eyes")
        canvas.paint(ellipse(u - a["gaze"] - 0.015, v + 0.015, 0.010, 0.010), (1.0, 1.0, 1.0), None)
        # brows follow the eye sockets
        bend = (u / (width * 1.25)).square()
        middle = v + a["brow_gap"] + a["brow_arch"] * (1 - bend) - side * a["brow_tilt"] * u
        thick = a["brow_thick"] * (1.2 - 0.6 * (side * u / width).clamp(-1, 1))
        brow = torch.maximum(middle.abs() - thick, u.abs() - width * 1.25)
        canvas.paint(brow, a.colours["brow"], "brows")


def _mouth(canvas: _Canvas, anatomy: Anatomy, pose: Tensor, x: Tensor, y: Tensor) -> None:
    a = anatomy
    at, narrow = _turned(a, pose, 0.0)
    u = (x - at) / narrow / a["mouth_width"]
    taper = (1 - u.square()).clamp(min=0).sqrt()
    middle = a["mouth_row"] + a["curve"] * (0.45 - u.square())
    half, line = a["open"] / 2, 0.008
    wide = a["mouth_width"] * narrow
    corner = 0.5 * canvas.pixel  # corners stay at least a pixel thick
    upper = middle - (half + a["upper_lip"]) * taper.sqrt() - corner * 0.5
    lower = middle + (half + a["lower_lip"]) * taper + corner * 0.5
    canvas.paint(band(x - at, y, wide, upper, lower), a.colours["lips"], "mouth")
    inner = band(x - at, y, wide * 0.95, middle - half * taper - line, middle + half * taper + line)
    canvas.paint(inner, a.colours["lips"] * 0.30, "mouth")
    teeth = band(x - at, y, wide * 0.85, middle - half * taper, middle + half * taper * 0.35)
    canvas.paint(torch.where(half > 0, teeth, 1.0), _WHITE, "mouth")


def _front_hair(canvas: _Canvas, anatomy: Anatomy, x: Tensor, y: Tensor) -> None:
    a = anatomy
    line = a["hair_line"] + a["hair_fall"] * (x - a["hair_part"]).square()
    # eyes stay free, and where hair is short the line ends above the ears
    free = -0.23 + 4 * (x.abs() - 0.80 * a["face_width"]).clamp(min=0)
    line = torch.minimum(line, torch.minimum(free, torch.where(a["length"] >= 1, 0.25, -0.05)))
    outer = ellipse(x, y + 0.10, a["face_width"] + a["hair_volume"], 0.56 + a["hair_volume"])
    slope = (1 + (2 * a["hair_fall"] * (x - a["hair_part"])).square()).sqrt()
    canvas.paint(torch.maximum(outer, (y - line) / slope), _hair(a, x, y), "hair")


def draw(anatomy: Anatomy, variables: Variables, streams: Streams, size: int) -> tuple[Tensor, Tensor]:
    """``(N, 3, size, size)`` float32 pictures in [0, 1], and ``(N, size, size)`` int8: places in `PARTS`."""
    a = anatomy
    pose, light = variables.pose[:, None, None], variables.light[:, None, None]
    across, down = _grid(size, pose)
    canvas = _Canvas(_backdrop(a, streams, across, down), 2 / size)
    x, y = (across - a["centre_x"]) / a["scale"], (down - a["centre_y"]) / a["scale"]
    cos, sin = torch.cos(a["roll"]), torch.sin(a["roll"])
    x, y = x * cos + y * sin, y * cos - x * sin
    _head(canvas, a, x, y)
    inner = y - a["pitch"]
    _nose(canvas, a, light, pose, x, inner)
    _eyes(canvas, a, pose, x, inner)
    _mouth(canvas, a, pose, x, inner)
    _front_hair(canvas, a, x, y)
    shine = a["brightness"] * (1 + 0.22 * light * across - 0.08 * down)
    tint = torch.stack([1 + a["warmth"], torch.ones_like(a["warmth"]), 1 - a["warmth"]], 1)
    image = canvas.image * shine[:, None] * tint
    image = image + 0.012 * streams.normal("grain", 3, size, size)
    return image.clamp(0, 1), canvas.part
