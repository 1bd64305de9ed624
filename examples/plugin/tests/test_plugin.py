import torch

import verax
from verax.networks import NETWORKS


def test_method():
    report = verax.check_method("positive-gradient")
    assert report.passed, str(report)


def test_metric():
    report = verax.check_metric("middle-share")
    assert report.passed, str(report)


def test_task():
    report = verax.check_task("example/signs")
    assert report.passed, str(report)


def test_network():
    assert NETWORKS.get("example-cnn")(2)(torch.rand(3, 3, 16, 16)).shape == (3, 2)


def test_data_set():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2))
    aligned = verax.align(model, "example-squares", method="occlusion", window=8, stride=8)
    assert len(aligned.scores) == 16
