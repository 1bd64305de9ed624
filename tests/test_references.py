"""Deep SHAP in studies: references from the task, and the true label."""

import pytest
import torch

import verax
from little_climate import little_task
from verax.errors import InvalidParameter
from verax.methods.base import METHODS
from verax.networks import batches
from verax.networks.inference import predictions
from verax.studies import plan as planning
from verax.studies import spec as specs
from verax.studies.execution import Bench, Block, task_references, training_inputs

STUDY = {
    "name": "references",
    "tasks": ["textbox/simple-fr"],
    "networks": ["cnn3"],
    "methods": [{"name": "deep-shap@published", "label": "deep-shap", "references": "task:3"}],
    "protocols": ["published"],
    "samples": 1,
    "certify": 0,
}


def bench(own_store):
    plan = planning.compile_plan(specs.study(STUDY), own_store)
    unit = next(unit for unit in plan.units if unit.label == "deep-shap")
    return Bench(plan.subjects[0], plan.study, torch.device("cpu")), unit


def test_references_are_the_first_training_pictures_and_drawn_once(own_store):
    found, unit = bench(own_store)
    task = found.subject.task
    drawn = found.settings(unit)["references"]
    assert found.settings(unit)["references"] is drawn
    first = next(batches.fresh(task, task.groups, 0, 1, 3, torch.device("cpu")))[0]
    assert torch.equal(drawn, first)
    assert not torch.equal(training_inputs(task, 3, 1, torch.device("cpu")), drawn)


def test_references_of_vectors_are_the_first_training_samples():
    task = little_task()
    drawn = training_inputs(task, 4, 0, torch.device("cpu"))
    torch.testing.assert_close(drawn, task.samples.chunk(0)[0][:4], rtol=1e-6, atol=1e-7)
    assert (drawn - task.held_out.chunk(0)[0][:4]).abs().amax(1).min() > 0.01


def test_the_published_deep_shap_explains_the_true_label(own_store):
    found, unit = bench(own_store)
    model, cases, predicted = found.load()
    assert torch.equal(predictions(model, cases.inputs), predicted)
    wrong = 1 - cases.targets  # as if the network had been wrong everywhere
    found._block, found._predicted = Block(0, 1, cases), wrong
    settings = found.settings(unit)
    asked = verax.explain(model, cases.inputs, cases.targets, unit.method, settings=settings)
    kept = found.begin(unit)()
    expected = verax.score(asked, cases, "published", predictions=wrong, transfer="shap")
    assert kept.tables["published"]["pafl"].equals(expected["pafl"])
    assert kept.info["wrong"] == len(cases)
    assert kept.info["completeness_error"]["largest"] < 0.01
    other = verax.explain(model, cases.inputs, wrong, unit.method, settings=settings)
    assert not torch.allclose(asked, other)
    assert {name for name in METHODS if METHODS.get(name).explains == "label"} == {"deep-shap@published"}


@pytest.mark.parametrize("word", ["task", "task:0", "task:-3", "task:1e3", "train:10", "task:99999999"])
def test_other_words_are_refused_before_any_work(word, tmp_path):
    with pytest.raises(InvalidParameter, match="'task:N'"):
        task_references(word)
    study = {**STUDY, "methods": [{"name": "deep-shap", "references": word}]}
    with pytest.raises(InvalidParameter, match="'task:N'"):
        verax.run(study, out=tmp_path / "run", quiet=True)


def test_a_number_of_references_stays_a_number():
    assert task_references(16) is None
    assert task_references("task:1000") == 1000
