"""Judge a method of your own: is it right about a network whose reasoning is known?

python examples/own_method.py
"""

import torch

import verax


@verax.method("mine")
def mine(model, inputs, targets):
    """Any callable (model, inputs, targets) -> attributions is a method."""
    x = inputs.clone().requires_grad_()
    output = model(x).gather(1, targets[:, None]).sum()
    return inputs * torch.autograd.grad(output, x)[0].clamp(min=0)


@verax.metric("outside", higher_is_better=False, bounds=(0, 1))
def outside(maps, truth):
    """Share of a map that lies on no object at all."""
    ground = ~truth.objects.any(1)
    total = maps.sum((1, 2)).clamp(min=1e-300)
    return (maps * ground).sum((1, 2)) / total


print(verax.check_method(mine))  # does it behave?
print(verax.check_metric(outside))
run = verax.run(
    "smerf-quick",
    tasks=["textbox/complex-cr1"],
    methods=["mine", "gradient", "integrated-gradients"],
    metrics=["outside"],
    samples=3,
    certify=10,
)
print(run.leaderboard()[["rank", "method", "value", "skill"]].to_string(index=False))
print(run.leaderboard(metric="outside")[["rank", "method", "value"]].to_string(index=False))
print(run.to_csv("scores.csv"))
