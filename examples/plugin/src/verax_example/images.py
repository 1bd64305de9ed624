"""A data set for alignment: bright squares on a dark ground, which people are said to have marked."""

import torch

from verax.tasks.alignment import Annotated


class Squares:
    """Sixteen pictures with a square; its label is the half in which it stands."""

    name, classes = "example-squares", ("left", "right")

    def __len__(self):
        return 16

    def fingerprint(self):
        return {"name": self.name, "version": 1}

    def read(self, indices):
        number = torch.as_tensor(list(indices))
        place = torch.arange(32)
        row, col = (5 * number) % 24, (7 * number) % 24
        high = (place >= row[:, None]) & (place < row[:, None] + 8)
        wide = (place >= col[:, None]) & (place < col[:, None] + 8)
        masks = high[:, :, None] & wide[:, None, :]
        images = (0.1 + 0.8 * masks.float())[:, None].expand(-1, 3, -1, -1).contiguous()
        labels = (col >= 12).long()
        return Annotated(images, masks, labels, tuple(f"square-{k}" for k in number.tolist()))
