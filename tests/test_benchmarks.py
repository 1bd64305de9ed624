"""Benchmarks: records say nothing of a machine, the page matches them, and the guard can fail."""

import ast
import importlib
import json
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
import torch

import verax

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def load():
    """Modules of the benchmarks, which import each other by their names."""
    sys.path.insert(0, str(FOLDER))
    before = set(sys.modules)
    yield importlib.import_module
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        found = getattr(sys.modules[name], "__file__", None)
        if found and Path(found).parent == FOLDER:
            del sys.modules[name]


@pytest.fixture(scope="module")
def records(load):
    return load("records")


@pytest.fixture
def race(records):
    """A row in which verax takes 2 units, one peer 3 and another, whose map is wrong, 1."""
    return records.race("methods", "gradient", {"verax": 2.0, "a": 3.0, "b": 1.0}, ["b"], target=1.0)


def test_a_wrong_peer_cannot_win(race):
    assert (race.peer, race.ratio, race.ahead, race.met) == ("a", 1.5, True, True)
    assert race.peers == {"a": 3.0, "b": 1.0}


def test_nobody_else_means_no_target(records):
    alone = records.race("methods", "rise", {"verax": 2.0}, target=10.0)
    assert (alone.peer, alone.ratio, alone.target, alone.met) == (None, None, None, None)


def test_targets_have_two_senses(records):
    row = records.Result("growth", "memory", ratio=1.4, target=1.5, sense="at most")
    assert row.met
    assert not replace(row, ratio=1.6).met
    assert not replace(row, sense="at least").met
    with pytest.raises(ValueError, match="at least or at most"):
        replace(row, sense="about")


def test_records_come_back_as_they_were_written(records, race, tmp_path):
    record = records.Record("x", "python x", {"cores": 2}, {"torch": "2"}, [race], ["y: too long"])
    path = records.write(record, tmp_path)
    found = records.read(path)
    assert abs(date.fromisoformat(found.date) - datetime.now(UTC).date()) <= timedelta(days=1)
    assert replace(found, date="") == record
    dated = replace(record, date="2020-02-03")
    assert records.read(records.write(dated, tmp_path)) == dated
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]  # nothing half-written is left


def test_rows_that_are_measured_again_replace_the_old_ones(records, race):
    left_out = [
        "a, batch 7: no time left",
        "gradient on a, batch 7: too long",
        "lime on a, batch 7: too long",
    ]
    rows = [replace(race, network="a"), replace(race, network="a", row="other")]
    old = records.Record("x", "a", {}, {}, rows, left_out, {"kept": 1})
    again = [replace(rows[0], ratio=9.0), replace(rows[0], batch=7)]
    new = records.Record("x", "b", {}, {}, again, ["other on a, batch 7: too long"])
    found = records.merged(old, new)
    assert found.skipped == ["lime on a, batch 7: too long", "other on a, batch 7: too long"]
    assert [(row.row, row.batch, row.ratio) for row in found.results] == [
        ("gradient", 0, 9.0),
        ("other", 0, 1.5),
        ("gradient", 7, 1.5),
    ]
    assert found.details == {"kept": 1}
    assert records.merged(replace(old, date="2026-01-02"), new).date == "2026-01-02"  # some rows are that old
    everything = replace(new, results=rows[::-1])
    assert records.merged(replace(old, date="2026-01-02"), everything).date == ""  # that of today


def test_a_failed_write_leaves_the_old_record(records, race, tmp_path, monkeypatch):
    record = records.Record("x", "python x", {}, {}, [race])
    old = records.write(record, tmp_path).read_text()

    def fail(*given):
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        records.write(replace(record, command="other"), tmp_path)
    assert (tmp_path / "x.json").read_text() == old
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


COMMITTED = sorted((FOLDER / "results").glob("*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_records_tell_hardware_and_versions_and_no_machine(path):
    content = json.loads(path.read_text())
    assert content["machine"]["processor"]
    assert content["versions"]["verax"]
    assert content["versions"]["torch"]
    assert content["command"].startswith("python benchmarks/")
    text = path.read_text()
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
    import platform

    assert platform.node() in ("", "localhost") or f'"{platform.node()}"' not in text


def test_the_page_matches_its_records(load, records):
    render = load("render")
    assert len(COMMITTED) >= 6
    assert render.PAGE.read_text() == render.page(records.read_all()), "run: python benchmarks/render.py"
    for image in re.findall(r"\(images/([^)]+)\)", render.PAGE.read_text()):
        assert (ROOT / "docs" / "images" / image).is_file()


def manifest(network, training):
    """What a study with one network leaves behind, of which 6 s of 10 are accounted for."""
    unit = f"textbox/simple-fr {network} seed 0"
    return {
        "seconds": 10.0,
        "trained": [{"network": network, "seconds": training}] * 2,
        "units": [
            {"name": f"{unit}: certificate", "method": "", "seconds": 1.0},
            {"name": f"{unit}: gradient", "method": "gradient", "seconds": 6.0,
             "explaining_seconds": 4.0, "scoring_seconds": 1.0},
        ],
        "failures": [{"unit": unit, "method": ""}] if network == "vit" else [],
        "certificates": [
            {"task": f"textbox/{name}", "network": network, "seed": 0, "passed": name == "simple-fr"}
            for name in ("simple-fr", "simple-nr")
        ],
    }  # fmt: skip


def test_phases_of_a_command_add_up_and_parts_of_a_study_are_joined(load, tmp_path):
    journeys, report = load("journeys"), tmp_path / "report.html"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest("vgg16", 7.0)))
    report.touch()
    os.utime(tmp_path / "manifest.json", (100, 100))
    os.utime(report, (102, 102))
    first = {"command": "a", "seconds": 25.0} | journeys.studied(tmp_path, 25.0)
    assert sum(first["phases"].values()) == 25
    assert (first["phases"]["training"], first["phases"]["reports"]) == (13, 2)
    assert first["networks"] == {"vgg16": {"trained": 2, "training": 14.0, "explaining": 4.0}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest("vit", 2.0)))
    second = {"command": "b", "seconds": 15.0} | journeys.studied(tmp_path, 15.0)
    both = journeys.together(first, second)
    assert both["seconds"] == 40 == pytest.approx(sum(both["phases"].values()))
    assert list(both["networks"]) == ["vgg16", "vit"]
    names = ("textbox/simple-fr vit", "textbox/simple-nr vgg16", "textbox/simple-nr vit")
    assert both["not certified"] == [f"{name} seed 0" for name in names]
    assert journeys.together(both, first) is first  # measured again: what was joined with it is out of date
    assert journeys.together(None, first) is first
    assert journeys.together({**first, "phases": {"scoring": 1.0}}, second) is second  # an older record
    inside = {"certificates": 1.0, "explaining": 2.0, "scoring": 3.0}
    rows = [("training", 5.0), ("explaining and scoring", 10.0), ("drawing", 1.0)]
    report = {
        "phases": [{"phase": name, "seconds": value} for name, value in rows],
        "within explaining and scoring": inside,
    }
    (tmp_path / "phases.json").write_text(json.dumps(report))
    found = journeys.reproduced(tmp_path / "phases.json", 20.0)["phases"]
    assert sum(found.values()) == pytest.approx(20)
    assert found["starting"] == pytest.approx(4)


def test_long_journeys_say_how_far_they_are(load, tmp_path, capsys, monkeypatch):
    journeys = load("journeys")
    monkeypatch.setattr(journeys, "_LOOK", 0.1)
    (tmp_path / "networks").mkdir()
    for name in ("a.safetensors", "b.safetensors", "b.json"):
        (tmp_path / "networks" / name).touch()

    def told(seconds, limit):
        waiting = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        done = subprocess.Popen(waiting, **pipes)
        said = journeys._watched(done, tmp_path, time.perf_counter(), limit)
        return done.returncode, said, capsys.readouterr().out

    code, said, out = told(0.5, None)
    assert (code, said) == (0, "")
    assert "2 networks trained, 3 files" in out
    code, said, out = told(60, 0.3)
    assert code != 0
    assert "KeyboardInterrupt" in said


def test_records_of_another_study_are_said_to_be_older(load):
    journeys = load("journeys")
    assert "`vgg16`, which the study no longer has" in journeys._older(
        "smerf-full", {"networks": {"vgg16": {}}}
    )
    now = {name: {} for name in journeys.study("smerf-full").networks}
    assert journeys._older("smerf-full", {"networks": now}) == ""
    assert journeys._older("sst", {"networks": {"mlp": {}}}) == ""


def test_a_gpu_has_a_part_of_its_own_once_it_was_measured(load, records, race):
    render = load("render")
    assert render.gpu({"speed": None}) == ""
    machine = {
        "processor": "p",
        "threads": 1,
        "cores": 2,
        "python": "3",
        "gpu": "H",
        "gpu memory GiB": 1,
        "cuda": "12",
    }
    words = ("method", "network", "kernel")
    numbers = ("seconds", "FLOP floor seconds", "byte floor seconds", "kernel TFLOP/s", "FLOP floor")
    floor = (
        dict.fromkeys(words, "aten.mm")
        | dict.fromkeys(numbers, 0.5)
        | {"batch": 256, "samples a second": 9.0}
    )
    row = replace(race, network="cnn4", batch=256, device="cuda", notes={"zennit": "not installed"})
    details = {"floors": [floor]}
    record = records.Record(
        "speed-cuda", "python x", machine, {"zennit": None}, [row], ["a: too long"], details
    )
    text = render.gpu({"speed-cuda": record})
    for words in ("## On a GPU", "not installed: zennit", "mm at 0.5 TFLOP/s", "50 %", "1.50×", "too long 1"):
        assert words in text


def test_the_page_says_which_records_are_old(load, records):
    render = load("render")

    def aged(**dates):
        made = {
            name.replace("_", "-"): records.Record(name, "", {}, {}, [], date=date)
            for name, date in dates.items()
        }
        return render.aged(made)

    assert aged(speed="2026-03-05", speed_cuda="2026-03-04") == ""
    assert "`speed` (4 days)" in aged(speed="2026-03-01", speed_cuda="2026-03-05")
    assert aged() == aged(speed="") == ""
    assert "`speed-cuda` (4 days)" in aged(
        speed="2026-03-05", speed_cuda="2026-03-01", growth_cuda="2026-03-05"
    )
    assert "growth" not in aged(speed="2026-03-05", speed_cuda="2026-03-01", growth_cuda="2026-03-05")


def test_a_row_that_is_behind_needs_a_reason(load, records):
    render = load("render")
    row = records.race("data", "clouds", {"verax": 2.0, "loop": 1.0}, target=1.0)
    with pytest.raises(SystemExit, match="clouds"):
        render.not_ahead([row])
    assert render.not_ahead([replace(row, ratio=1.5)]) == ""


def test_the_guard_fails_past_its_margin(load, records, race):
    check = load("check")
    known = records.Record("speed", "python x", {}, {}, [race])
    lines, bad = check.compared([replace(race, ratio=1.5 * 0.7)], known)
    assert not bad
    assert "committed 1.50" in lines[0]
    lines, bad = check.compared([replace(race, ratio=1.5 * 0.6)], known)
    assert [row.row for row in bad] == ["gradient"]
    assert "WORSE" in lines[0]
    lines, bad = check.compared([replace(race, row="other", ratio=0.1)], known)
    assert not bad
    assert "not committed" in lines[0]


def test_the_guard_measures_what_can_be_measured(load, monkeypatch):
    check, found = load("check"), []
    monkeypatch.setattr(
        check.speed, "measured", lambda contest, w, *_: found.append((contest.method, w.name))
    )
    check.methods()
    pictures = {"grad-cam"}
    assert set(found) == {
        (method, name)
        for method in check.METHODS
        for name, _ in check.PLACES
        if name != "sst-mlp" or method not in pictures
    }
    found.clear()
    check.methods([("gradient", "cnn4", 32)])
    assert found == [("gradient", "cnn4")]


def test_the_guard_knows_ratios_that_should_be_small(load, records):
    check = load("check")
    row = records.Result("growth", "memory", ratio=1.2, target=1.5, sense="at most")
    assert check.worse(replace(row, ratio=1.7), row)
    assert not check.worse(replace(row, ratio=1.5), row)
    assert not check.worse(replace(row, ratio=None), row)


def run(name, *words):
    """A command of a benchmark."""
    line = [sys.executable, str(FOLDER / name), *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("name", "words", "said"),
    [
        ("speed.py", ["--methods", "oclusion"], "there is no method 'oclusion'; did you mean 'occlusion'"),
        ("speed.py", ["--networks", "resnet19-64"], "there is no network 'resnet19-64'; did you mean"),
        ("speed.py", ["--networks", "vit-s-224"], "no network on cpu has a row like that"),
        ("speed.py", ["--batches", "7"], "no network on cpu has a row like that"),
        ("speed.py", ["--methods"], "expected at least one argument"),
        ("speed.py", ["--limit-seconds", "-1"], "'-1' is no number of seconds above 0"),
        ("speed.py", ["--limit-seconds", "nan"], "'nan' is no number of seconds above 0"),
        ("journeys.py", ["--only", "smurf"], "there is no journey 'smurf'; did you mean 'smerf'"),
        ("journeys.py", ["--device", "tpu"], "a device is cpu or cuda, not 'tpu'"),
        ("harness.py", ["--samples", "-3"], "'-3' is no whole number from 1"),
        ("check.py", ["--quick"], "unrecognized arguments: --quick"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(name, words, said):
    done = run(name, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
@pytest.mark.parametrize("name", ["speed.py", "growth.py", "journeys.py", "kernels.py"])
def test_no_gpu_is_one_sentence(name):
    done = run(name, "--device", "cuda")
    assert done.returncode == 2
    assert "PyTorch finds no GPU here" in done.stderr
    assert "Traceback" not in done.stderr


def test_journeys_that_were_not_measured_are_named(load, records):
    journeys = load("journeys")
    record = records.Record("journeys-cuda", "", {}, {}, [])
    one = {"command": "verax reproduce smerf", "seconds": 2.0, "phases": {"starting": 2.0}}
    text = journeys.shown(replace(record, details={"journeys": {"smerf": one}}))
    assert "Not measured on a GPU as it is now: `verax run sst" in text
    text = journeys.shown(replace(record, details={"journeys": dict.fromkeys(journeys.COMMANDS, one)}))
    assert "Not measured" not in text


def test_the_page_says_how_much_methods_are_asked_for(load):
    load("records")
    workloads, render = load("workloads"), load("render")
    for name in workloads.CPU:
        made = workloads.workload(name)
        sized = (made.draws, made.segments, made.size, made.coalitions)
        assert sized == workloads.sizes(name, "cpu")
        assert render._asked(name, "cpu").startswith(f"{made.draws} steps")
        assert made.segments == math.ceil(made.x.shape[-1] / made.size) ** (made.x.ndim // 2)


def test_the_shortest_of_turns_counts(load):
    timing = load("timing")
    turns = []
    times = timing.best({"a": lambda: turns.append("a"), "b": lambda: turns.append("b")}, 0.0, least=3)
    assert turns == ["a", "b"] * 3
    assert set(times) == {"a", "b"}


def test_peak_memory_sees_what_is_gone_again(load):
    timing = load("timing")
    import torch

    most = timing.peak_memory(lambda: torch.ones(16 * 2**20).sum())
    if most is None:
        pytest.skip("this system does not tell a process its peak memory")
    assert 50 < most < 200  # 64 MiB


def test_a_row_of_growth_says_what_was_asked_for(load):
    records, growth = load("records"), load("growth")
    row = records.Result("growth", "memory of 8 times the masks", ratio=1.6234, target=1.5, sense="at most")
    words = growth.said(replace(row, peers={"captum": 19.2753}))
    assert "1.62×  at most 1.5×: not met   captum 19.3×" in words
    assert "at most 1.7×: met " in growth.said(replace(row, target=1.7))


def test_each_library_is_counted_by_itself_at_its_best(load):
    records, duels = load("records"), load("duels")

    def row(method, batch, ours, peers, **notes):
        return records.Result("methods", method, "net", batch, ours=ours, peers=peers, notes=notes)

    found = duels.shown(
        [
            row("a", 1, 2.0, {"captum": 4.0, "captum tuned": 1.0, "zennit": 2.0}),
            row("b", 1, 2.0, {"captum": 1.94, "zennit": 5.0}, zennit="another map: 3 %"),
            row("c", 1, 2.0, {}, captum="refuses: TypeError", zennit="raises: ValueError"),
            row("d", 8, 1.0, {"captum": 3.0}, shap="not installed"),
            row("e", 8, 1.0, {"captum": 5.0}, zennit="too long to race: 9 s, by 2 samples"),
            records.Result("overhead", "a", "net", 1, ours=1.0, peers={"captum": 9.0}),
        ]
    )
    assert [line for line in found.splitlines() if line.startswith("| ") and "library" not in line] == [
        "| captum | 1 | 2 | 0 | 1 | 1 | 0.73× | 0.50× | 0.97× | 1 | 0 |",
        "| captum | more | 2 | 2 | 0 | 0 | 4.00× | 3.00× | 5.00× | 0 | 0 |",
        "| zennit | 1 | 1 | 1 | 0 | 0 | 1.00× | 1.00× | 1.00× | 1 | 1 |",
    ]


def test_tensors_are_counted_at_their_most_and_the_same_every_time(load):
    timing = load("timing")
    import torch

    def call():
        torch.ones(16 * 2**20).sum()
        held = [torch.ones(2**18) for _ in range(4)]
        return torch.cat(held).add_(1)

    kept = torch.ones(2**22)  # of before
    assert timing.peak_of_tensors(call) == pytest.approx(64, abs=0.01)
    assert timing.peak_of_tensors(call) == timing.peak_of_tensors(call)
    assert timing.peak_of_tensors(lambda: (kept + 1, kept + 2)) == pytest.approx(32, abs=0.01)
    assert timing.peak_of_tensors(lambda: [(kept + 1).sum() for _ in range(9)]) == pytest.approx(16, abs=0.01)


def test_floors_count_the_arithmetic_of_a_layer(load):
    import torch

    floors = load("floors")
    with torch.no_grad(), floors.Count() as count:
        torch.mm(torch.ones(3, 5), torch.ones(5, 7))
    assert count.flops == 2 * 3 * 5 * 7
    assert count.bytes >= 4 * (15 + 35 + 21)
    assert count.largest[0] == count.flops


def test_an_absent_peer_leaves_a_note(load, monkeypatch):
    speed = load("speed")
    contest = next(c for c in speed.CONTESTS if c.method == "input-x-gradient")

    def absent(module):
        raise ImportError(name=module)

    monkeypatch.setattr(speed, "load", absent)
    racing, notes, wrong = speed.entrants(contest, speed.workload("sst-mlp").first(2))
    assert list(racing) == ["verax"]
    assert notes == {"captum": "not installed"}
    assert not wrong


def test_maps_that_differ_are_called_other_maps(load):
    speed = load("speed")
    contest = next(c for c in speed.CONTESTS if c.method == "input-x-gradient")
    wrong = replace(contest, peers={"captum": lambda w: w.x, "captum tuned": contest.peers["captum"]})
    _, notes, other = speed.entrants(wrong, speed.workload("sst-mlp").first(2))
    assert other == ["captum"]
    assert "another map" in notes["captum"]
    assert "captum tuned" not in notes


def test_rates_of_all_spellings_are_shown_with_the_chosen_one(load):
    text = load("kernels").line(128, 128, 4, 2, "cpu", 0.0)
    assert text.startswith(" 128 -> 128   4 x 4 ")
    assert re.findall(r"(\w+) +[\d.]+\*", text) == ["product", "product"]
    assert len(re.findall(r"as it is|turned|product", text)) == 6


def test_networks_of_the_league_call_every_layer_that_they_hold(load):
    """Peers change layers by their place: one that is never called would make them wrong without a fault."""
    kinds = load("kinds")
    for kind in kinds.KINDS:
        model, called = kinds.network(kind), set()
        holding = [module for module in model.modules() if list(module.parameters(recurse=False))]
        for module in holding:
            module.register_forward_hook(lambda module, *_, called=called: called.add(module))
        model(kinds.X)
        assert called == set(holding), kind


@pytest.mark.parametrize("name", ["references", "relevances", "featuremaps", "games", "kinds"])
def test_references_of_the_league_use_nothing_of_verax(name):
    tree = ast.parse((FOLDER / f"{name}.py").read_text())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert names
    assert not [name for name in names if name.partition(".")[0] == "verax"]


def test_verdicts_of_the_league_tell_right_from_wrong(load):
    disciplines, league, references = load("disciplines"), load("league"), load("references")

    def failing(model, x, targets):
        raise RuntimeError

    def refusing(model, x, targets):
        raise verax.errors.UnsupportedOperation("No rule.")

    def twice(model, x, targets):
        return 2 * references.times_input(model, x, targets)

    discipline = disciplines.Discipline(
        "lrp-z",
        {
            "same": references.times_input,
            "twice": twice,
            "told": disciplines.Entrant(twice, instead={"module": "doubles"}),
            "own": disciplines.Entrant(twice, twice),
            "nan": lambda model, x, targets: x * math.nan,
            "fails": failing,
            "refuses": refusing,
        },
        references.times_input,
        kinds=("module",),
        sums=load("correctness").output,
        unbiased=True,
    )
    wanted = league.Wanted(discipline)
    cells = {
        name: league.verdict(discipline, discipline.entrant(name), "module", wanted)
        for name in discipline.entrants
    }
    does = {name: cell["does"] for name, cell in cells.items()}
    assert does == dict(
        same="right",
        twice="wrong",
        told="differs",
        own="right",
        nan="wrong",
        fails="raises",
        refuses="refuses",
    )
    assert cells["twice"]["error"] == pytest.approx(1)
    assert cells["same"]["sum"] < 1e-12
    assert cells["twice"]["sum"] == pytest.approx(1)
    made_up = league.verdict(discipline, discipline.entrant("same"), "gated", wanted)
    assert made_up == {"does": "makes up"}
    assert league.alone(discipline, discipline.entrant("same")) < 1e-12


@pytest.mark.parametrize("method", ["lrp-gamma", "deep-taylor", "deeplift-reveal-cancel", "ablation-cam"])
def test_verax_is_right_wherever_it_gives_a_map(load, method):
    _, details, _ = load("league").league([method])
    row = details["table"][method]["verax"]
    assert {cell["does"] for cell in row.values()} <= {"right", "refuses"}
    assert row["residual"]["does"] == row["in-place"]["does"] == "right"


def test_a_command_that_takes_too_long_is_interrupted_and_says_so(load, tmp_path):
    with pytest.raises(SystemExit, match=r"verax run sst --networks mlp ended after \d s"):
        load("journeys").measure("sst", {}, "cpu", tmp_path, 0.5)
