"""CIFAR-100's pickles are read without being run."""

import io
import pickle
import pickletools
import time
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verax.errors import InvalidParameter, MissingFile
from verax.tasks.alignment import pickles
from verax.tasks.alignment.cifar import Cifar100

LEVELS = np.random.default_rng(0).integers(0, 256, (5, 3072), dtype=np.uint8)
LABELS = [3, 0, 2, 1, 3]
NAMES = [b"apple", b"bear", b"cup", b"dog"]


class OldBytes(pickle._Pickler):
    """Writes bytes as Python 2 wrote strings, in which the official files are written."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_old(self, text):
        if len(text) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(text)]) + text)
        else:
            self.write(pickle.BINSTRING + len(text).to_bytes(4, "little") + text)
        self.memoize(text)

    dispatch[bytes] = save_old


def old(value):
    """A pickle as Python 2 and an old NumPy wrote it."""
    file = io.BytesIO()
    OldBytes(file, 2).dump(value)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def new(protocol):
    return lambda value: pickle.dumps(value, protocol)


def write(folder, dump, changes=None):
    folder.mkdir(parents=True, exist_ok=True)
    whole = {b"data": LEVELS, b"fine_labels": LABELS, b"coarse_labels": LABELS, b"filenames": NAMES}
    (folder / "test").write_bytes(dump({**whole, **(changes or {})}))
    (folder / "meta").write_bytes(dump({b"fine_label_names": NAMES, b"coarse_label_names": NAMES}))
    return folder


@pytest.mark.parametrize("dump", [old, new(2), new(3), new(4)], ids=["old", "2", "3", "4"])
def test_pictures_and_labels_come_back(tmp_path, dump):
    images = Cifar100(write(tmp_path / "cifar-100-python", dump).parent)
    assert images.classes == ("apple", "bear", "cup", "dog")
    assert len(images) == 5
    found = images.read([4, 1])
    assert found.labels.tolist() == [3, 0]
    assert torch.equal(
        (found.images * 255).round().to(torch.uint8).flatten(1), torch.from_numpy(LEVELS[[4, 1]])
    )
    assert found.images.shape == (2, 3, 32, 32)
    assert not found.masks.any()


def test_old_files_hold_the_instructions_of_the_official_ones(tmp_path):
    used = {
        operation.name
        for operation, _, _ in pickletools.genops(old({b"data": LEVELS, b"fine_labels": LABELS}))
    }
    assert {"BINSTRING", "SHORT_BINSTRING", "GLOBAL", "REDUCE", "BUILD", "APPENDS", "SETITEMS"} <= used


class Evil:
    """What a hostile file does: leave a mark when it is loaded."""

    def __init__(self, function, *arguments):
        self.made = (function, arguments)

    def __reduce__(self):
        return self.made


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_does_not_run(tmp_path, protocol):
    mark = tmp_path / "mark"
    for evil in (Evil(mark.write_text, "run"), Evil(eval, f"open({str(mark)!r}, 'w')"), Evil(print, "x")):
        data = pickle.dumps({b"data": evil}, protocol)
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(MissingFile, match=r"is not read|not a whole pickle"):
            pickles.load(tmp_path / "bad")
        assert not mark.exists()
    pickle.loads(pickle.dumps(Evil(mark.write_text, "run"), protocol))
    assert mark.exists()  # the same file does run in Python's own reader


GLOBAL = b"cnumpy.core.multiarray\n_reconstruct\n"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"garbage",
        pickle.dumps([1, 2]),
        b"\x80\x02}q\x01",  # cut off
        b"\x80\x02}r\xff\xff\xff\xff.",  # remembered at a place that would need gigabytes; harmless here
        b"\x80\x02h\x05.",  # never learnt
        b"\x80\x02(t.",
        b"\x80\x02u.",
        b"\x80\x02}K\x01K\x02s.",  # a key that is no name
        b"\x80\x02" + GLOBAL + b")R}b.",  # an array with a dictionary for contents
        b"\x80\x02}X\x01\x00\x00\x00a" + GLOBAL + b"}bs.",  # attributes set on a function
        b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",
        b"\x80\x02cbuiltins\ngetattr\n.",
        b"\x80\x02(X\x02\x00\x00\x00lsios\nsystem\n.",  # INST
        b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x04\x00\x00\x00zlib\x86R.",
        b"\x80\x02c_codecs\nencode\n)R.",
        b"\x80\x02cnumpy\ndtype\n)R.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02B\xff\xff\xff\x7fab.",  # claims two gigabytes
        b"\x80\x02P1\n.",
        b"\x82\x01.",
    ],
    ids=range(22),
)
def test_broken_and_hostile_pickles_end_in_a_sentence(tmp_path, data):
    path = tmp_path / "bad"
    path.write_bytes(data)
    start = time.perf_counter()
    try:
        found = pickles.load(path)
    except MissingFile as error:
        assert "\n" not in str(error)
    else:
        assert found == {}
        assert data == b"\x80\x02}r\xff\xff\xff\xff."
    assert time.perf_counter() - start < 2


class Kind:
    def __init__(self, code, order):
        self.code, self.order = code, order

    def __reduce__(self):
        return np.dtype, (self.code, False, True), (3, self.order, None, None, None, -1, -1, 0)


class Pieces:
    """An array whose state is chosen freely."""

    def __init__(self, *contents):
        self.contents = contents

    def __reduce__(self):
        return np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), self.contents


@pytest.mark.parametrize(
    "contents",
    [
        (1, (10**9, 10**9), Kind("u1", "|"), False, b"abc"),
        (1, (3,), Kind("O8", "|"), False, b"abcdefgh" * 3),
        (1, (3,), Kind("O", "|"), False, [1, 2, 3]),
        (1, (3,), Kind("V3", "|"), False, b"abcabcabc"),
        (1, (-1,), Kind("u1", "|"), False, b"abc"),
        (1, [3], Kind("u1", "|"), False, b"abc"),
        (1, (1,) * 200, Kind("u1", "|"), False, b"a"),
        (1, (3,), "u1", False, b"abc"),
        (1, (3,)),
    ],
    ids=range(9),
)
def test_arrays_that_lie_are_refused(tmp_path, contents):
    (tmp_path / "bad").write_bytes(pickle.dumps({b"data": Pieces(*contents)}, 2))
    with pytest.raises(MissingFile, match=r"array|taken"):
        pickles.load(tmp_path / "bad")


def test_other_numbers_and_orders_are_read_as_numpy_does(tmp_path):
    arrays = {
        "big": np.arange(6, dtype=">i4").reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        "long": np.arange(3, dtype=np.int64),
        "double": np.linspace(0, 1, 4),
    }
    (tmp_path / "good").write_bytes(
        pickle.dumps({**arrays, "n": None, "t": (1, -2.5, True), "l": [2**40]}, 2)
    )
    found = pickles.load(tmp_path / "good")
    for name, array in arrays.items():
        assert np.array_equal(found[name], array)
    assert (found["n"], found["t"], found["l"]) == (None, (1, -2.5, True), [2**40])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({b"data": LEVELS[:, :100]}, "no data of 3072 levels"),
        ({b"data": LEVELS.astype(np.float64)}, "no data of 3072 levels"),
        ({b"data": b"abc"}, "no data of 3072 levels"),
        ({b"fine_labels": [3, 0, 2, 1, 9]}, "fine_labels that are not known"),
        ({b"fine_labels": [3, 0, 2, 1, -1]}, "fine_labels that are not known"),
        ({b"fine_labels": [3, 0]}, "5 pictures and 2 labels"),
        ({b"fine_labels": None}, "fine_labels that are not known"),
    ],
    ids=range(7),
)
def test_files_that_do_not_fit_are_refused(tmp_path, changes, sentence):
    with pytest.raises(MissingFile, match=sentence):
        Cifar100(write(tmp_path, old, changes))


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(MissingFile, match=r"CIFAR-100 needs .*cs\.toronto\.edu/~kriz/cifar"):
        Cifar100(tmp_path)
    with pytest.raises(InvalidParameter, match="did you mean 'test'"):
        Cifar100(tmp_path, "tests")
    (write(tmp_path, old) / "meta").write_bytes(old({b"other": []}))
    with pytest.raises(MissingFile, match="fine_label_names"):
        Cifar100(tmp_path)


SEEDS = [
    dump({b"data": LEVELS[:1, :12], b"fine_labels": LABELS, b"n": NAMES}) for dump in (old, new(2), new(4))
]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), min_size=1, max_size=6),
)
def test_damaged_pickles_are_read_or_refused_and_nothing_else(tmp_path, seed, damages):
    data = bytearray(seed)
    for place, value in damages:
        data[place % len(data)] = value
    (tmp_path / "damaged").write_bytes(data)
    try:
        found = pickles.load(tmp_path / "damaged")
    except MissingFile as error:
        assert "\n" not in str(error)
    else:
        assert all(isinstance(name, str) for name in found)
