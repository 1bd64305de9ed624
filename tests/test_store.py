"""The store: whole or not there, whatever is done to it; and its upkeep."""

import errno
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import verax
from verax.cli.main import app
from verax.errors import OutputError
from verax.studies import upkeep
from verax.studies.driving import keeping
from verax.studies.entries import Damaged, Result, _sealed, pack, unpack
from verax.studies.failures import Failure, describe
from verax.studies.policies import POLICIES, policy
from verax.studies.store import Store
from verax.studies.units import FORMAT

KEY = "ab12" * 16
OTHER = "cd34" * 16


def result(value=1.0):
    table = pd.DataFrame({"sample": [1, 2], "value": [value, value + 1]})
    info = {"unit": "a unit", "seconds": 2.0, "samples": 2}
    return Result({"sound": table, "sound:shapley": table}, {"maps": torch.ones(2, 3)}, info)


@pytest.fixture
def store(tmp_path):
    found = Store(tmp_path / "store")
    found.write(KEY, result())
    return found


def test_what_is_written_is_read(store):
    assert KEY in store
    assert OTHER not in store
    found = store.read(KEY)
    assert set(found.tables) == {"sound", "sound:shapley"}
    pd.testing.assert_frame_equal(found.tables["sound"], result().tables["sound"])
    assert torch.equal(found.maps["maps"], torch.ones(2, 3))
    assert found.info["seconds"] == 2.0
    assert store.place(KEY).relative_to(store.folder).parts == ("units", "ab", "12")


def test_entries_are_kept_while_the_next_ones_are_made(store, monkeypatch):
    keys = [f"{number:04x}" * 16 for number in range(8)]
    put, order, going = Store.put, [], threading.Event()

    def slow(self, entry):
        going.wait(60)
        put(self, entry)
        order.append(entry.key)

    monkeypatch.setattr(Store, "put", slow)
    with keeping() as keep:
        for key in keys[:4]:  # as many as may wait
            keep(store, (pack(key, result()),))
        assert not order
        going.set()
        for key in keys[4:]:
            keep(store, (pack(key, result()),))
    assert order == keys
    assert all(store.read(key) is not None for key in keys)


def test_what_is_interrupted_keeps_all_that_was_to_be_kept(store):
    def interrupted():
        with keeping() as keep:
            keep(store, (pack(OTHER, result()),))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert store.read(OTHER) is not None


def test_however_often_somebody_interrupts_nothing_is_left_in_the_middle_of_a_file(store, monkeypatch):
    put, kept_both, pressed = Store.put, threading.Event(), threading.Event()

    def slow(self, entry):
        pressed.wait(60)
        put(self, entry)

    def press():
        kept_both.wait(60)
        for _ in range(3):
            time.sleep(0.2)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.2)
        pressed.set()

    monkeypatch.setattr(Store, "put", slow)
    before = threading.active_count()
    presses = threading.Thread(target=press)
    presses.start()

    def kept():
        with keeping() as keep:
            keep(store, (pack(KEY, result()),))
            keep(store, (pack(OTHER, result()),))
            kept_both.set()
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        kept()
    presses.join()
    assert threading.active_count() == before
    assert store.read(KEY) is not None
    assert store.read(OTHER) is not None
    assert not list(store.folder.rglob(".*"))


def test_what_cannot_be_kept_is_said_in_the_end(store, monkeypatch):
    def full(self, entry):
        raise OutputError("No space left on device.")

    monkeypatch.setattr(Store, "put", full)
    with pytest.raises(OutputError, match="No space left"), keeping() as keep:
        keep(store, (pack(OTHER, result()),))


def harmed(store, harm):
    """Damage the entry in one way; gives words of the reason that must be noticed."""
    head = store.place(KEY) / f"{KEY}.json"
    part = sorted(store.place(KEY).glob("*.parquet"))[0]
    tensors = next(iter(store.place(KEY).glob("*.safetensors")))
    match harm:
        case "head truncated":
            head.write_bytes(head.read_bytes()[:-20])
            return "truncated"
        case "head empty":
            head.write_bytes(b"")
            return "truncated"
        case "head of zeros":  # what a power cut leaves on some disks
            head.write_bytes(bytes(len(head.read_bytes())))
            return "truncated"
        case "head flipped":
            text = head.read_text().replace('"seconds": 2.0', '"seconds": 3.0')
            head.write_text(text)
            return "checksum"
        case "part truncated":
            part.write_bytes(part.read_bytes()[:40])
            return "checksum"
        case "part flipped":
            data = bytearray(part.read_bytes())
            data[len(data) // 2] ^= 1
            part.write_bytes(data)
            return "checksum"
        case "tensors flipped":
            data = bytearray(tensors.read_bytes())
            data[-1] ^= 128
            tensors.write_bytes(data)
            return "checksum"
        case "part gone":
            part.unlink()
            return "missing"
        case "part is a folder":
            part.unlink()
            part.mkdir()
            return "cannot be read"
        case "foreign":
            head.write_text('{"name": "somebody else\'s"}')
            return "not an entry"
        case "a list":
            head.write_text("[1, 2]")
            return "not an entry"
        case "sealed nonsense":
            content = json.loads(head.read_text())
            del content["sha256"]
            head.write_bytes(_sealed({**content, "info": ["seconds"]}))
            return "not an entry"
        case "deep":
            head.write_text("[" * 100_000)
            return "truncated"
        case "head is a folder":
            head.unlink()
            (head / "inner").mkdir(parents=True)
            return "a folder is in its place"
        case "head is a pipe":
            head.unlink()
            os.mkfifo(head)
            return "a pipe or a device is in its place"
        case "part is a pipe":
            part.unlink()
            os.mkfifo(part)
            return "a pipe or a device is in its place"
        case "older":
            content = json.loads(head.read_text())
            head.write_text(json.dumps({**content, "format": FORMAT - 1}))
            return "another version"
        case "of another unit":
            store.write(OTHER, result())
            shutil.copy(store.place(OTHER) / f"{OTHER}.json", head)
            return "another unit"
    raise AssertionError(harm)


HARMS = [
    "head truncated",
    "head empty",
    "head of zeros",
    "head flipped",
    "head is a folder",
    "head is a pipe",
    "part is a pipe",
    "part truncated",
    "part flipped",
    "tensors flipped",
    "part gone",
    "part is a folder",
    "foreign",
    "a list",
    "sealed nonsense",
    "deep",
    "older",
    "of another unit",
]


@pytest.mark.parametrize("harm", HARMS)
def test_every_kind_of_damage_is_noticed_set_aside_and_verified(store, harm):
    reason = harmed(store, harm)
    problems = [p for p in upkeep.verify(store) if p is not None]
    assert len(problems) == 1
    assert reason in problems[0].reason
    assert store.read(KEY) is None
    assert KEY not in store
    assert [(entry.key, reason in entry.reason) for entry in store.aside] == [(KEY, True)]
    assert len(list((store.folder / "quarantine").iterdir())) == 1
    store.write(KEY, result(5.0))
    assert store.read(KEY).tables["sound"]["value"].tolist() == [5.0, 6.0]
    assert not any(upkeep.verify(store))


def test_a_link_to_nothing_is_not_sound(store):
    head = store.place(KEY) / f"{KEY}.json"
    head.unlink()
    head.symlink_to(head.with_name("nowhere.json"))
    (problem,) = upkeep.verify(store)
    assert "link to nothing" in problem.reason
    assert store.read(KEY) is None


@pytest.mark.parametrize("place", ["head", "part", "failure"])
def test_folders_in_the_way_are_moved_out_of_it(store, place):
    store.fail(OTHER, "u", Failure("time", "Took too long."))
    path = {
        "head": store.place(KEY) / f"{KEY}.json",
        "part": next(store.place(KEY).glob("*.parquet")),
        "failure": store.place(OTHER) / f"{OTHER}.failed.json",
    }[place]
    path.unlink()
    path.mkdir()
    (path / "something").write_text("of somebody")
    store.write(KEY, result())
    store.fail(OTHER, "u", Failure("time", "Took too long."))
    assert store.read(KEY) is not None
    assert store.failure(OTHER) is not None
    (moved,) = (store.folder / "quarantine").iterdir()
    assert (moved / "something").read_text() == "of somebody"
    assert upkeep.sweep(store).files == 1
    assert not moved.exists()


def test_flipping_any_byte_of_an_entry_is_noticed():
    entry = pack(KEY, result())
    for name, data in {"head": entry.head, **entry.parts}.items():
        step = max(1, len(data) // 40)
        for position in range(0, len(data), step):
            changed = bytearray(data)
            changed[position] ^= 1
            other = (
                type(entry)(KEY, bytes(changed), entry.parts)
                if name == "head"
                else type(entry)(KEY, entry.head, {**entry.parts, name: bytes(changed)})
            )
            with pytest.raises(Damaged):
                unpack(other)


def test_parts_are_never_looked_for_elsewhere(store):
    head = store.place(KEY) / f"{KEY}.json"
    content = json.loads(head.read_text())
    del content["sha256"]
    content["parts"] = {"../../../../etc/hostname": "0"}
    from verax.studies.entries import _sealed

    head.write_bytes(_sealed(content))
    with pytest.raises(Damaged, match="outside"):
        store.get(KEY)


def test_two_writers_of_one_key_never_mix(store):
    one, two = pack(KEY, result(1.0)), pack(KEY, result(2.0))
    # the worst order: the parts of both, then the heads
    for name, data in {**two.parts, **one.parts}.items():
        (store.place(KEY) / name).write_bytes(data)
    for entry, value in ((one, 1.0), (two, 2.0), (one, 1.0)):
        (store.place(KEY) / f"{KEY}.json").write_bytes(entry.head)
        assert store.read(KEY).tables["sound"]["value"][0] == value


def _write_many(folder, value, count):
    store = Store(folder)
    for number in range(count):
        store.write(f"{number:04x}" * 16, result(value))


def test_processes_that_write_at_the_same_time(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(tmp_path, float(k), 20)) for k in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    store = Store(tmp_path)
    assert sum(problem is None for problem in upkeep.verify(store)) == 20
    for number in range(20):
        assert store.read(f"{number:04x}" * 16).tables["sound"]["value"][0] in (0.0, 1.0, 2.0)
    assert store.aside == []


# -- disks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO])
def test_disks_that_refuse_stop_with_one_sentence_and_lose_nothing(store, code, monkeypatch):
    def refuse(*args, **kwargs):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(OutputError, match="Cannot write") as caught:
        store.write(OTHER, result())
    assert "\n" not in str(caught.value)
    assert os.strerror(code) in str(caught.value)
    monkeypatch.undo()
    assert OTHER not in store
    assert store.read(KEY) is not None
    assert not any(upkeep.verify(store))


@pytest.mark.parametrize("after", range(0, 9000, 700))
def test_a_disk_that_fills_up_at_any_byte(store, after, monkeypatch):
    """Every write beyond so many bytes fails, as on a full disk: a file-size limit of the process."""
    import resource
    import signal

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    big = Result({}, {"maps": torch.rand(2000)}, {"unit": "big"})
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (after, before[1]))
        if after < 8000:
            with pytest.raises(OutputError, match="Cannot write"):
                store.write(OTHER, big)
        else:
            store.write(OTHER, big)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    assert (OTHER in store) == (after >= 8000)
    assert store.read(KEY) is not None
    assert not any(upkeep.verify(store))
    assert not [p for p in store.folder.rglob(".*") if p.is_file()]  # no temporary file is left


# -- failures and policies -----------------------------------------------------------------------------------


def test_failures_are_kept_until_the_unit_succeeds(store):
    store.fail(OTHER, "some unit", Failure("memory", "too large"))
    assert store.failure(OTHER) == Failure("memory", "too large")
    assert OTHER not in store
    assert not any(upkeep.verify(store))
    store.write(OTHER, result())
    assert store.failure(OTHER) is None


def test_policies_say_what_is_computed(store):
    failed, new = OTHER, "ef56" * 16
    store.fail(failed, "u", Failure("time", "late"))
    asked = {name: [policy(name)(store, key) for key in (KEY, failed, new)] for name in POLICIES}
    assert asked == {
        "missing": [False, True, True],
        "failed": [False, True, False],
        "all": [True, True, True],
        "never": [False, False, False],
    }


def test_exceptions_become_failures():
    assert describe(torch.OutOfMemoryError("no")).kind == "memory"
    assert describe(MemoryError()).kind == "memory"
    assert describe(verax.errors.MethodFailed("Method x failed.")).reason == "Method x failed."
    assert describe(KeyError("k\nl")) == Failure("error", "Failed with KeyError: 'k\\nl'")


# -- upkeep --------------------------------------------------------------------------------------------------


def test_gc_removes_what_nobody_can_use_and_nothing_else(store):
    folder = store.place(KEY)
    old_temporary, new_temporary = folder / ".x.json.abc", folder / ".y.json.abc"
    for path in (old_temporary, new_temporary):
        path.write_text("half")
    os.utime(old_temporary, (time.time() - 7200,) * 2)
    orphan = folder / f"{KEY}.000000000000.sound.parquet"
    orphan.write_text("part of an entry that was replaced")
    store.write(OTHER, result())
    store.set_aside(OTHER)
    swept = upkeep.sweep(store)
    assert not old_temporary.exists()
    assert new_temporary.exists()
    assert not orphan.exists()
    assert store.read(KEY) is not None
    # the head in quarantine, and the three parts that it named
    assert swept.files == 1 + 3 + 2
    assert upkeep.sweep(store).files == 0


def test_gc_leaves_the_parts_of_entries_that_others_can_read(store, monkeypatch):
    """Those of another user (here: that cannot be opened) and those of another version's format."""
    head = store.place(KEY) / f"{KEY}.json"
    before = sorted(store.place(KEY).iterdir())
    read = Path.read_bytes

    def refused(path):
        if path == head:
            raise PermissionError(errno.EACCES, "Permission denied")
        return read(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refused)
        assert upkeep.sweep(store, old=True).files == 0
        (problem,) = upkeep.verify(store)
        assert "Permission denied" in problem.reason
    assert sorted(store.place(KEY).iterdir()) == before
    assert store.read(KEY) is not None
    monkeypatch.setattr("verax.studies.entries.FORMAT", FORMAT + 1)
    assert upkeep.sweep(store).files == 0
    assert upkeep.sweep(store, old=True).files == len(before)


def test_gc_of_old_code_maps_and_failures(store):
    store.write(OTHER, Result({}, {"raw": torch.ones(2)}, {"unit": "u", "code": "of long ago"}))
    store.fail("ef56" * 16, "u", Failure("time", "late"))
    assert upkeep.sweep(store).files == 0
    assert upkeep.sweep(store, failures=True).files == 1
    assert upkeep.sweep(store, old=True).files == 2
    assert OTHER not in store
    store.write(OTHER, Result({}, {"raw": torch.ones(2)}, {"unit": "u"}))
    assert upkeep.sweep(store, maps=True).files == 2
    assert store.read(KEY) is not None


def test_gc_keeps_away_from_a_store_in_use(store):
    with store.locked() as had, Store(store.folder).locked() as too:
        assert had
        assert too
        with pytest.raises(OutputError, match="in use"):
            upkeep.sweep(Store(store.folder))
    upkeep.sweep(store)


def test_clocks_that_go_backwards_change_nothing(store, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 10**8)
    store.write(OTHER, result())
    for path in store.folder.rglob("*.json"):
        os.utime(path, (now + 10**8,) * 2)
    assert store.read(OTHER) is not None
    assert upkeep.sweep(store).files == 0
    assert not any(upkeep.verify(store))


def test_the_commands_of_the_store(store, tmp_path):
    runner = CliRunner()

    def said(*words, code=0):
        done = runner.invoke(app, ["store", *words, "--store", str(store.folder)])
        assert done.exit_code == code, done.output
        return done.output

    store.fail(OTHER, "u", Failure("time", "Took too long."))
    listed = said("ls")
    assert "a unit" in listed
    assert "u: Took too long." in listed
    assert "a unit" not in said("ls", "--kind", "failure")
    assert "scores" in said("size")
    assert "2 entries are sound, 0 are damaged" in said("verify")
    part = next(store.place(KEY).glob("*.parquet"))
    part.write_bytes(b"x")
    assert "checksum" in said("verify", code=1)
    said("verify", "--repair")
    assert "1 entries are sound" in said("verify")
    assert "files removed" in said("gc")
    gone = runner.invoke(app, ["store", "ls", "--store", str(tmp_path / "nothing")])
    assert gone.exit_code != 0
