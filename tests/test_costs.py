"""Costs: what a plan says that a study will take."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import verax
from verax.metrics.scoring import faithfulness_scores
from verax.studies import costs
from verax.studies import plan as planning
from verax.studies import spec as specs
from verax.studies.store import Store

STUDY = {
    "name": "costs",
    "tasks": ["textbox/simple-nr"],
    "methods": ["smoothgrad"],
    "samples": 2,
    "certify": 2,
}


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.AvgPool2d(16), nn.Flatten(), nn.Linear(48, 2))
        self.rows = 0

    def forward(self, x):
        self.rows += len(x)
        return self.inner(x)


def plan(folder, *protocols):
    return planning.compile_plan(specs.study({**STUDY, "protocols": list(protocols)}), folder)


def test_the_cost_of_asking_the_network_is_part_of_a_plan(tmp_path):
    plain, asked = (
        {cost.cell.label: cost.seconds for cost in costs.costs(plan(tmp_path, *names), Store(tmp_path))}
        for names in (("sound",), ("sound", "faithfulness"))
    )
    assert plain[""] == asked[""]  # certificates ask nothing more
    assert all(asked[label] > plain[label] for label in plain if label)
    assert asked["smoothgrad"] - plain["smoothgrad"] > 2 * plain["smoothgrad"]  # maps are made again, twice


@pytest.mark.parametrize("name", ["gradient", "smoothgrad", "random"])
def test_the_passes_of_the_protocol_are_those_that_are_planned(name, tmp_path):
    found = specs.study({**STUDY, "methods": [name], "protocols": ["sound", "faithfulness"]})
    cell = next(c for c in planning.compile_plan(found, tmp_path).cells if c.label == name)
    cases = verax.task("textbox/simple-nr").cases(n=1)[:1]
    cases = replace(cases, inputs=torch.rand(cases.inputs.shape) + 0.1)  # no step is free
    model, targets = Counting().eval(), torch.zeros(1, dtype=torch.int64)
    maps = torch.rand(cases.inputs.shape)
    faithfulness_scores(maps, cases, model, targets, name, cell.parameters)
    assert model.rows / costs.asking(cell) == pytest.approx(1, abs=0.35)  # a backward pass is no row
