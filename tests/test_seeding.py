import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from verax.seeding import _BLOCK, _FEW_THREADS, Streams, content_ids, key

MASK = (1 << 64) - 1


def splitmix(x):
    """SplitMix64's finaliser on Python integers, as published."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40), st.text(max_size=5))
def test_bits_equal_the_reference(seed, sample, label):
    streams = Streams(torch.tensor([sample]), seed)
    golden = 0x9E3779B97F4A7C15
    start = splitmix((sample * golden + key(seed, label)) & MASK)
    wanted = [splitmix((start + golden * k) & MASK) for k in range(1, 4)]
    assert [int(v) & MASK for v in streams.bits(label, 3)[0]] == wanted


@pytest.mark.parametrize(
    ("samples", "count"), [(3, 1), (5000, 7), (2, 3 * _BLOCK + 5), (5, _BLOCK - 1), (3, 0)]
)
def test_bits_are_the_same_with_few_threads_and_many(samples, count):
    streams = Streams.of(torch.arange(samples) - 1, "threads")
    before = torch.get_num_threads()
    drawn = []
    try:
        for threads in (1, _FEW_THREADS + 1):  # by NumPy, by PyTorch
            torch.set_num_threads(threads)
            drawn.append((streams.bits("x", count), streams.tries(["a", "b"], 1000, count)))
    finally:
        torch.set_num_threads(before)
    assert drawn[0][0].shape == (samples, count)
    assert all(map(torch.equal, *drawn))


@pytest.mark.parametrize("shape", [(7, 3, 5), (1, 4), (6,), (5, 1), (2, 3), (3, 0)])
def test_a_part_of_normal_numbers_is_that_of_the_whole(shape):
    streams = Streams.of(torch.tensor([3, 1, 2]), "parts")
    whole = streams.normal("x", *shape)
    for first in range(shape[0]):
        for last in range(first + 1, shape[0] + 3):
            part = slice(first, last)
            assert torch.equal(streams.normal("x", *shape, part=part), whole[:, part]), part


def test_a_stream_belongs_to_its_sample():
    ids = torch.arange(1000)
    all_at_once = Streams.of(ids, "a", 0)
    for draw in ("uniform", "normal", "bits"):
        together = getattr(all_at_once, draw)("x", 3, 5)
        alone = getattr(Streams.of(torch.tensor([17]), "a", 0), draw)("x", 3, 5)
        assert torch.equal(together[17], alone[0])
        assert torch.equal(getattr(all_at_once[ids.flip(0)], draw)("x", 3, 5), together.flip(0))


def test_labels_seeds_and_ids_separate_streams():
    ids = torch.arange(200)
    base = Streams.of(ids, "a", 0).uniform("x", 50).flatten()
    for other in (
        Streams.of(ids, "a", 1).uniform("x", 50),
        Streams.of(ids, "b", 0).uniform("x", 50),
        Streams.of(ids, "a", 0).uniform("y", 50),
        Streams.of(ids + 200, "a", 0).uniform("x", 50),
    ):
        assert abs(np.corrcoef(base, other.flatten())[0, 1]) < 0.05
    assert key("a", 1) != key("a", "1") != key("a1")


def test_distributions():
    streams = Streams.of(torch.arange(100), "d")
    uniform = streams.uniform("u", 1000).flatten().numpy()
    normal = streams.normal("n", 1001).flatten().numpy()
    assert stats.kstest(uniform, "uniform").pvalue > 1e-3
    assert stats.kstest(normal, "norm").pvalue > 1e-3
    assert uniform.min() >= 0
    assert uniform.max() < 1
    halves = streams.normal("n", 1000)
    assert abs(np.corrcoef(halves[:, :500].flatten(), halves[:, 500:].flatten())[0, 1]) < 0.02
    whole = streams.integers("i", 7, 1000).flatten().numpy()
    assert stats.chisquare(np.bincount(whole, minlength=7)).pvalue > 1e-3
    limits = torch.tensor([2, 5])
    pairs = streams.integers("p", limits, 1000, 2)
    assert pairs.amax((0, 1)).tolist() == [1, 4]
    assert pairs.min() == 0


@pytest.mark.parametrize("shape", [(5,), (3, 4, 4)])
def test_content_ids_depend_on_the_values_alone(shape):
    inputs = torch.rand(50, *shape)
    ids = content_ids(inputs)
    assert len(set(ids.tolist())) == 50
    assert torch.equal(content_ids(inputs[7:9]), ids[7:9])
    assert torch.equal(content_ids(inputs.clone()), ids)
    changed = inputs.clone()
    changed.view(50, -1)[:, 0] += 1e-3
    assert (content_ids(changed) != ids).all()
    swapped = inputs.flatten(1).flip(1).reshape(inputs.shape)
    assert (content_ids(swapped) != ids).all()
