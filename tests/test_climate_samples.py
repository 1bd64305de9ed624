"""Samples are functions of their number; tasks made of them."""

import json
import pickle

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import verax
from verax.cases import Cases
from verax.cli.main import app
from verax.errors import InvalidParameter, OutputError
from verax.seeding import key
from verax.tasks.base import Task
from verax.tasks.climate.analytic import analytic
from verax.tasks.climate.functions import LocalFunctions
from verax.tasks.climate.samples import Samples

FIELD = analytic()
FUNCTION = LocalFunctions.draw(FIELD)


def test_chunks_are_the_same_in_any_order_and_size():
    samples = Samples(FIELD, FUNCTION, 1000, size=300)
    assert samples.chunks == 4
    last = samples.chunk(3)[0]
    assert len(last) == 100
    forth = torch.cat([samples.chunk(index)[0] for index in range(4)])
    back = torch.cat([samples.chunk(index)[0] for index in reversed(range(4))][::-1])
    assert torch.equal(forth, back)
    assert torch.equal(forth[900:], last)
    other = Samples(FIELD, FUNCTION, 700, size=64)
    # a product is rounded once, and only a last digit in ten million may depend on the size of a batch
    torch.testing.assert_close(torch.cat([x for x, _ in other]), forth[:700], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(samples.inputs(torch.tensor([17, 3])), forth[[17, 3]], rtol=1e-6, atol=1e-7)


def test_outputs_are_those_of_the_function():
    x, y = Samples(FIELD, FUNCTION, 500).chunk(0)
    assert x.dtype == y.dtype == torch.float32
    assert torch.allclose(y, FUNCTION.values(x).sum(1), atol=1e-7)


def test_purposes_and_seeds_never_share_a_sample():
    drawn = [
        Samples(FIELD, FUNCTION, 50, purpose, seed).chunk(0)[0]
        for purpose in ("train", "test", "cases")
        for seed in (0, 1)
    ]
    rows = {tuple(row) for part in drawn for row in part[:, :3].tolist()}
    assert len(rows) == 300
    between = torch.corrcoef(torch.cat(drawn).T.flatten()[None].reshape(458, -1).T)
    assert between[:50, 50:].abs().mean() < 0.2  # as different as samples of one purpose


@pytest.mark.parametrize("mode", ["fresh", "memory", "mapped"])
def test_all_ways_to_keep_samples_give_the_same(mode, tmp_path):
    samples = Samples(FIELD, FUNCTION, 700, size=256)
    seen = []
    kept = samples.keep(mode, folder=tmp_path, watch=lambda done, total: seen.append((done, total)))
    assert kept.chunks == samples.chunks
    assert len(kept) == 700
    assert seen == ([] if mode == "fresh" else [(1, 3), (2, 3), (3, 3)])
    for index in range(3):
        for ours, theirs in zip(kept.chunk(index), samples.chunk(index), strict=True):
            assert torch.equal(ours, theirs)
    if mode == "mapped":
        (file,) = tmp_path.iterdir()
        before = file.stat().st_mtime_ns
        samples.keep("mapped", folder=tmp_path)
        assert file.stat().st_mtime_ns == before  # written once


def test_a_mapped_file_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    samples = Samples(FIELD, FUNCTION, 700, size=256)
    draw, calls = Samples.chunk, []

    def broken(self, index, device="cpu"):
        calls.append(index)
        if index == 1:
            raise OSError(28, "No space left on device")
        return draw(self, index, device)

    monkeypatch.setattr(Samples, "chunk", broken)
    with pytest.raises(OutputError, match="No space left"):
        samples.keep("mapped", folder=tmp_path)
    assert calls == [0, 1]
    assert list(tmp_path.iterdir()) == []


def test_wrong_samples_are_refused(tmp_path):
    samples = Samples(FIELD, FUNCTION, 10)
    with pytest.raises(InvalidParameter, match="did you mean 'train'"):
        Samples(FIELD, FUNCTION, 10, "trian")
    with pytest.raises(InvalidParameter, match="did you mean 'memory'"):
        samples.keep("memroy")
    with pytest.raises(InvalidParameter, match="need a folder"):
        samples.keep("mapped")
    for kept in (samples, samples.keep("memory")):
        with pytest.raises(InvalidParameter, match="chunks 0 to 0"):
            kept.chunk(1)
    with pytest.raises(InvalidParameter, match="above 0"):
        Samples(FIELD, FUNCTION, 0)


# -- the task --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def task():
    return verax.task("climate/analytic")


def test_the_task_hands_out_cases_with_exact_truth(task):
    assert isinstance(task, Task)
    cases = task.cases(n=30)
    assert isinstance(cases, Cases)
    assert cases.inputs.shape == (30, 458) == (30, task.features)
    assert cases.targets.tolist() == [0] * 30 == cases.group.tolist()
    assert cases.ids.tolist() == list(range(30))
    assert torch.equal(cases.truth.values, task.function.values(cases.inputs))
    assert torch.allclose(cases.truth.values.sum(1), task.function.total(cases.inputs), atol=1e-7)
    assert torch.equal(cases.truth.focus, cases.truth.values != 0)
    assert (task.classes, task.groups, task.family) == (1, (0,), "climate")
    assert task.describe(0)
    some = task.cases(n=5, start=7)
    torch.testing.assert_close(some.inputs, cases.inputs[7:12], rtol=1e-6, atol=1e-7)
    assert torch.equal(Cases.concatenate([cases[:7], some]).inputs[7:], some.inputs)
    assert not torch.equal(task.cases(n=5, seed=1).inputs, cases.inputs[:5])


def test_cases_and_baselines_are_no_sample_that_a_network_saw(task):
    def shared(rows, others):  # whether a row is among the others, but for its last digits
        return bool((torch.cdist(rows, others) < 1e-2).any())

    cases = task.cases(n=20)
    baselines = torch.stack(
        [verax.task("climate/analytic", baseline=f"sample:{number}").reference for number in range(5)]
    )
    for purpose in ("train", "test"):
        for seed in (0, cases.seed):
            drawn = task.drawn(purpose, 100, seed).chunk(0)[0]
            assert shared(drawn[:1], drawn)
            assert not shared(cases.inputs, drawn)
            assert not shared(baselines, drawn)
    assert not shared(baselines, task.cases(n=20).inputs)


@pytest.mark.parametrize("baseline", ["zero", 1.5, "-0.5", "sample:3"])
def test_truth_is_measured_from_the_baseline(baseline):
    task = verax.task("climate/analytic", baseline=baseline)
    cases = task.cases(n=10)
    change = task.function.total(cases.inputs) - task.function.total(task.reference[None])
    assert torch.allclose(cases.truth.values.sum(1), change, atol=1e-7)
    cell = 100
    swapped = cases.inputs.clone()
    swapped[:, cell] = task.reference[cell]  # occlusion: what is lost when one cell has its baseline
    lost = task.function.total(cases.inputs) - task.function.total(swapped)
    assert torch.allclose(lost, cases.truth.values[:, cell], atol=2e-7)


def test_what_the_cases_depend_on_is_in_the_fingerprint(task):
    prints = [
        json.dumps(verax.task("climate/analytic", **options).fingerprint(), sort_keys=True)
        for options in (
            {},
            {"function": 1},
            {"breaks": 4},
            {"baseline": 1.0},
            {"uniform": 0.2},
            {"globally": 0.2},
        )
    ]
    assert len(set(prints)) == 6
    same = verax.task("climate/analytic", samples=10)  # decides about networks, not about cases
    assert json.dumps(same.fingerprint(), sort_keys=True) == prints[0]


def test_blends_change_the_inputs_and_not_the_function(task):
    blended = verax.task("climate/analytic", globally=0.5)
    assert blended.function.digest == task.function.digest
    x = blended.samples.inputs(torch.arange(2000))
    assert torch.corrcoef(x.T)[0, 200] == pytest.approx(float(blended.field.correlation[0, 200]), abs=0.08)
    even = verax.task("climate/analytic", uniform=0.9)
    x = even.samples.inputs(torch.arange(2000))
    assert torch.corrcoef(x.T).mean() == pytest.approx(0.9, abs=0.03)


def test_training_and_testing_samples_are_of_the_task():
    task = verax.task("climate/analytic", samples=600)
    assert len(task.samples) == 600
    assert task.samples.purpose == "train"
    assert task.held_out.purpose == "test"
    assert len(task.drawn("test", 50)) == 50


def test_wrong_options_are_refused_in_one_sentence():
    for options, words in (
        ({"function": -1}, "function must be a whole number"),
        ({"breaks": 2.5}, "breaks must be a whole number"),
        ({"samples": 0}, "samples must be a whole number"),
        ({"baseline": "mean"}, "A baseline is"),
        ({"baseline": float("nan")}, "A baseline is"),
        ({"uniform": 1}, "from 0 to below 1"),
        ({"field": "x.nc"}, "not 'field'"),
        ({"seed": 1}, "not 'seed'"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            verax.task("climate/analytic", **options)
    with pytest.raises(InvalidParameter, match="no cases of bucket 3"):
        verax.task("climate/analytic").cases(group=3)


def test_tasks_travel(task):
    again = pickle.loads(pickle.dumps(task))
    assert torch.equal(again.cases(n=2).inputs, task.cases(n=2).inputs)


def test_climate_tasks_are_listed_without_data(monkeypatch):
    monkeypatch.delenv("VERAX_DATA", raising=False)
    listed = json.loads(CliRunner().invoke(app, ["list", "tasks", "--json"]).output)
    names = {row["name"] for row in listed}
    assert {f"climate/{name}" for name in ("analytic", "cobe-sst2", "sea-ice", "field")} <= names


def scrambled(number):
    """The finaliser of SplitMix64, in whole numbers of Python."""
    number &= 2**64 - 1
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) % 2**64
    return number ^ number >> 31


def test_a_sample_is_its_stream_times_the_factor():
    """Sample 5 worked out with nothing but Python and NumPy: the same on every machine."""
    golden = 0x9E3779B97F4A7C15
    first = scrambled(5 * golden + key(key("climate", "train", 0), "field"))
    bits = [scrambled(first + count * golden) for count in range(1, 230)]
    radius = np.sqrt(-2 * np.log([((each & 0xFFFFFF) + 0.5) / 2**24 for each in bits]))
    angle = np.array([2 * np.pi * (each >> 40) / 2**24 for each in bits])
    noise = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    expected = np.linalg.cholesky(FIELD.correlation.numpy()) @ noise
    drawn = Samples(FIELD, FUNCTION, 10).inputs(torch.tensor([5]))[0]
    np.testing.assert_allclose(drawn.numpy(), expected, atol=2e-5)


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x" * 99]
)
def test_a_damaged_mapped_file_is_written_again(tmp_path, damage):
    samples = Samples(FIELD, FUNCTION, 50)
    whole = samples.keep("mapped", folder=tmp_path).x.clone()
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert samples.keep("mapped", folder=tmp_path).x.equal(whole)


@pytest.mark.parametrize("number", ["\u00b2", "9" * 20, "9" * 5000, "-1", ""])
def test_baselines_are_numbers_of_samples(number):
    with pytest.raises(InvalidParameter, match="A baseline is"):
        verax.task("climate/analytic", baseline=f"sample:{number}")


def test_cases_and_baselines_are_no_samples_of_networks():
    task = verax.task("climate/analytic", baseline="sample:3", samples=50)
    cases = task.cases(n=50).inputs
    for purpose in ("train", "test"):
        seen = task.drawn(purpose, 50).chunk(0)[0]
        # a thousandth is far above round-off and far below the distance of two samples
        assert torch.cdist(cases, seen).min() > 1e-3
        assert torch.cdist(task.reference[None], seen).min() > 1e-3
