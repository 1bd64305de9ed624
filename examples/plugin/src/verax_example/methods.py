"""A method: the positive part of the gradient."""

import torch

import verax


@verax.method("positive-gradient")
def positive_gradient(model, inputs, targets):
    """Where more of the input would raise the output."""
    x = inputs.clone().requires_grad_()
    output = model(x).gather(1, targets[:, None]).sum()
    return torch.autograd.grad(output, x)[0].clamp(min=0)
