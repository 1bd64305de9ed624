"""TextBox: networks that follow a stated reasoning over letters and boxes."""

from verax.tasks.textbox.reasoning import Reasoning
from verax.tasks.textbox.scenes import TEXTBOX, Kind, Look, Scene, World
from verax.tasks.textbox.task import TextBox

__all__ = ["TEXTBOX", "Kind", "Look", "Reasoning", "Scene", "TextBox", "World"]
