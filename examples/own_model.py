"""Audit a model of your own: does it look where people say that it should?

    python examples/own_model.py

The model is any module whose output is a tensor (samples, classes), or an object with `logits`, as Hugging
Face's image classifiers give it; a Lightning module needs nothing either. The images are drawn faces here;
`verax.tasks.alignment.folders.masked_folder("photos", "masks")` reads your own.
"""

import torch
from torch import nn

import verax
from verax.tasks.alignment.faces import Faces


class Output(dict):
    """What libraries give: a mapping whose entries are attributes."""

    __getattr__ = dict.__getitem__


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU()
        )
        self.head = nn.Linear(16, 2)

    def forward(self, pixel_values):
        return Output(logits=self.head(self.features(pixel_values).amax((2, 3))))


torch.manual_seed(0)
model = Classifier()  # train it, or load your own
images = Faces({0: 8, 1: 8, 2: 8, 3: 8})  # 8 of each kind; the label is the smile, the mark is the mouth
plain = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}  # what the model was trained with
for part in ("mouth", "hair"):
    found = verax.align(model, images, method="grad-cam", part=part, **plain)
    print(part, found.table().to_string(index=False), sep="\n")
