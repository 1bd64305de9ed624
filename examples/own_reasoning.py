"""Define a reasoning of your own, and see which methods find it in a network that follows it.

python examples/own_reasoning.py
"""

import verax
from verax import Kind, Look, Reasoning, TextBox, World

lamps = World(
    "lamps",
    (
        Kind("lamp", {"red": Look.box(6, 6, (1, 0, 0)), "green": Look.box(6, 6, (0, 1, 0))}),
        Kind.plain("cross", Look([[0, 1, 0], [1, 1, 1], [0, 1, 0]])),  # any bitmap, any colour
    ),
)
rules = Reasoning.parse("lamp = red -> 2; lamp = green and not cross -> 1; otherwise -> 0", lamps)
task = verax.register_task(TextBox("my/lamps", rules))  # studies know it by its name from now on

print(verax.check_task(task))
scene = {"lamp": "red", "cross": True}
print(rules.label(scene), rules.focus(scene), rules.avoid(scene))  # derived, never typed in
model = task.network("wired")  # weights set by hand from the rules: nothing needs training
print(verax.certify(model, task, n=20).passed)
study = {"name": "lamps", "networks": ["wired"], "methods": ["gradient", "occlusion"], "samples": 3}
run = verax.run({**study, "tasks": ["my/lamps"], "protocols": ["sound"]}, certify=20)
print(run.leaderboard()[["rank", "method", "value", "skill"]].to_string(index=False))
