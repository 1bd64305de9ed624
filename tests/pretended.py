"""Whether the GPU of this process is a pretended one (`tests/pretend`)."""

import torch

PRETENDED = hasattr(torch.ops.pretended, "waits")
