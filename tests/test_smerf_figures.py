"""The SMERF reproduction: every figure from small evidence, tables, and the command from end to end."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

import verax
from verax.cli.main import app
from verax.errors import InvalidParameter, VeraxError
from verax.metrics import published
from verax.metrics.scoring import metric_names
from verax.networks import library, training
from verax.networks.recipes import find_recipe
from verax.networks.starts import initialise
from verax.networks.trained import Trained
from verax.reports import png, svg
from verax.reproductions.smerf import paper_methods, reproduction, study
from verax.reproductions.smerf.evidence import Evidence, Series, View, kind, role
from verax.reproductions.smerf.figures import summaries, tables, toys
from verax.reproductions.smerf.figures.catalogue import CATALOGUE
from verax.reproductions.workers import Crew, commands
from verax.studies import spec as specs
from verax.version import __version__

CHECKLIST = [
    *("1", "2", "3", "4", "5", "6a", "6b", "7", "8a", "8b", "9", "10", "11", "12", "13", "14", "15", "16"),
    *("17a", "17b", "18a", "18b", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29"),
    *("30a", "30b", "31", "32", "33a", "33b"),
]


def made_up(labels, protocol):
    """Random scores with the shape of real ones: two pictures a bucket, NaN where there is no role."""
    rng, parts = np.random.default_rng(0), []
    for name in paper_methods.TASKS:
        cases = verax.task(name).cases(n=2)
        has = {
            "p": cases.truth.focus.flatten(1).any(1).numpy(),
            "s": cases.truth.avoid.flatten(1).any(1).numpy(),
        }
        for label in labels:
            for metric in metric_names(protocol):
                values = rng.uniform(0, 1, len(cases))
                if protocol == "published":
                    values = np.where(has[metric[0]], values, np.nan)
                facts = {"task": name, "network": "cnn4", "seed": 0, "method": label, "protocol": protocol}
                table = pd.DataFrame({**facts, "metric": metric, "group": cases.group, "sample": cases.ids})
                parts.append(table.assign(value=values, degenerate=False).dropna(subset="value"))
    return pd.concat(parts, ignore_index=True)


def view_of(name):
    task = verax.task(name)
    cases = task.cases(n=1)
    groups = cases.group.tolist()
    accuracy = pd.DataFrame({"group": groups, "scene": [task.describe(g) for g in groups]})
    accuracy = accuracy.assign(label=cases.targets, n=10, right=9, accuracy=0.9, low=0.6, high=0.98)
    maps = {label: torch.rand(len(cases), 64, 64) * 2 - 1 for label in paper_methods.SEVENTEEN}
    facts = {"reasoning": str(task.reasoning), "recipe": "fast", "scenes": "10"}
    return View(name, cases, 1 - cases.targets, maps, accuracy, facts)


@pytest.fixture(scope="module")
def evidence():
    scores = made_up([*paper_methods.SEVENTEEN, "input", "oracle"], "published")
    views = tuple(view_of(name) for name in paper_methods.TASKS)
    curve = pd.DataFrame(
        [{"threshold": k, "sample": s, "value": 0.1 * s} for k in toys.THRESHOLDS for s in (1, 2, 3)]
    )
    base = Series("cnn4", "black", scores, views, curve)
    others = [replace(base, network=name) for name in ("cnn@robust", "alexnet", "vgg16@published", "vit")]
    grounds = [replace(base, background=name) for name in ("noise:0-150", "folder:photos")]
    names = [label.partition("@")[0] for label in paper_methods.FIFTEEN]
    sound = Series("cnn4", "black", made_up([*names, "input", "oracle"], "sound"))
    return Evidence((base, *(replace(o, _kept=base._kept) for o in (*others, *grounds))), sound)


def test_the_catalogue_has_every_figure_of_the_paper():
    numbers = [entry.number for entry in CATALOGUE]
    assert [n for n in numbers if n not in ("2b", "2c")] == CHECKLIST
    assert len({entry.file for entry in CATALOGUE}) == len(CATALOGUE)
    assert {entry.number for entry in CATALOGUE if entry.draw is None} == {"1", "3", "4"}


@pytest.mark.parametrize("entry", [entry for entry in CATALOGUE if entry.draw], ids=lambda entry: entry.file)
def test_every_figure_is_drawn(entry, evidence):
    assert entry.lacking(evidence) == ""
    figure = entry.draw(evidence)
    assert isinstance(figure, Figure)
    assert png(figure, 20).startswith(b"\x89PNG")
    if entry.note is not None:
        assert entry.note(evidence).endswith(".")


def test_bars_have_intervals(evidence):
    figure = next(entry for entry in CATALOGUE if entry.number == "2").draw(evidence)
    for axes in figure.axes:
        bars = [c for c in axes.containers if hasattr(c, "patches") and len(c.patches)]
        caps = [c for c in axes.containers if hasattr(c, "has_yerr") and c.has_yerr]
        assert len(bars) == len(caps) == 2
    assert svg(figure).startswith(b"<?xml")


def test_what_was_not_run_is_named(evidence):
    alone = Evidence(evidence.series[:1])
    missing = {entry.number: entry.lacking(alone) for entry in CATALOGUE}
    assert {n for n, why in missing.items() if not why} == set(CHECKLIST) - {
        *("1", "3", "4", "10", "11", "12", "26", "27", "28", "29", "30a", "30b", "31", "32", "33a", "33b")
    } | {"2b"}
    assert "robust" in missing["11"]
    assert "real background" in missing["33a"]


def test_summaries_are_means_and_smallest_means_over_buckets(evidence):
    series = evidence.series[0]
    rows = series.scores[(series.scores["metric"] == "pafl") & (series.scores["method"] == "lrp-z")]
    means = rows[rows["task"].isin(paper_methods.COMPLEX)].groupby(["task", "group"])["value"].mean()
    found = summaries.summary(series, "pafl", ["lrp-z"], summaries.everywhere(paper_methods.COMPLEX)).iloc[0]
    assert found["buckets"] == len(means) == 37
    assert found["mean"] == pytest.approx(means.mean())
    assert found["least"] == pytest.approx(means.min())
    assert found["std"] == pytest.approx(means.std(ddof=0))
    assert found["mean_low"] < found["mean"] < found["mean_high"]
    assert len(summaries.both_roles(series, "textbox/simple-fr")) == 5
    worst = summaries.worst_buckets(series, "pafl", "textbox/complex-cr2", ["lrp-z"])
    assert worst == {"lrp-z": means["textbox/complex-cr2"].idxmin()}


def test_toys_are_those_of_the_paper():
    assert toys.levels([0.8])["pafl"][0] == pytest.approx(0.7554, abs=5e-5)
    assert toys.levels()["pafl"].iloc[-1] == pytest.approx(0.451, abs=5e-4)
    values = torch.rand(3, 64, 64)
    truth = toys.toy_truth(3)
    assert torch.equal(toys.iou_at(values, truth, [247])[:, 0], published.iou(values, truth))
    assert not torch.equal(toys.iou_at(values, truth, [4000])[:, 0], published.iou(values, truth))


def test_tables(evidence):
    views = evidence.series[0].views
    one = tables.settings(views).set_index("setting")
    assert one.loc["Complex-CR1", "no label"] == "1, 7"
    assert one.loc["Simple-FR", "label 1"] == "7, 8, 9, 10, 11, 12"
    assert "10, 11, 12: box1+box2" in one.loc["Complex-FR", "primary"]
    two = tables.sizes(views, 20).set_index("setting")
    assert two.loc["Complex-CR4", "paper: train"] == 150_000
    three = tables.accuracies(views).set_index("bucket")
    assert three.loc["1", "Simple-NR"] == "–"
    assert three.loc["all", "Simple-FR"] == "0.9000"
    assert tables.markdown(two.reset_index()).count("\n") == 9


def test_names_of_networks_and_backgrounds():
    names = ["cnn4", "cnn@published", "cnn@robust-0.1", "vgg16@published", "vit"]
    assert [role(name) for name in names] == ["plain", "plain", "robust", "vgg16", "vit"]
    assert [kind(name) for name in ("black", "noise:0-9", "folder:a", "textures")] == [
        *("black", "noise", "real", "real")
    ]
    options = study.Options(networks=["cnn@published", "vit"], backgrounds=["black", "noise"])
    assert options.pairs == [("cnn@published", "black"), ("vit", "black"), ("cnn@published", "noise")]
    with pytest.raises(InvalidParameter, match="samples"):
        study.Options(samples=0)
    with pytest.raises(InvalidParameter, match="workers"):
        study.Options(workers=0)


def test_no_networks_are_not_the_usual_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction, "reproduce", lambda *given: pytest.fail("began"))
    done = CliRunner().invoke(app, ["reproduce", "smerf", "--networks", "", "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, InvalidParameter)
    assert "at least one network" in str(done.exception)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"samples": 100_001}, "samples"),
        ({"sound_samples": 10**30}, "samples"),
        ({"seeds": [2**63]}, "seeds"),
    ],
)
def test_what_no_study_can_be_is_refused_before_a_network_is_trained(tmp_path, monkeypatch, given, words):
    monkeypatch.setattr(study, "train_missing", lambda options: pytest.fail("trained"))
    options = study.Options(store=tmp_path / "store", quiet=True, **given)
    with pytest.raises(VeraxError, match=f"{words}.*must be"), Crew(1) as crew:
        reproduction.reproduce(options, tmp_path / "out", crew)
    assert not (tmp_path / "out").exists()


def test_variants_have_the_first_seed_and_large_ones_fewer_references():
    options = study.Options(networks=["cnn@published", "cnn@robust", "vgg16"], seeds=[3, 4], references=500)
    assert options.seeds_of("cnn@published", "black") == [3, 4]
    assert options.seeds_of("cnn@published", "noise") == options.seeds_of("vgg16", "black") == [3]
    assert [options.references_of(n) for n in options.networks] == [500, 500, 100]
    assert study.Options(references=7).references_of("vgg16") == 7
    wanted = {(network, seed) for _, network, seed in study.missing(options)}
    assert wanted == {("cnn@published", 3), ("cnn@published", 4), ("cnn@robust", 3), ("vgg16", 3)}


@pytest.fixture
def robust_starts(monkeypatch):
    """Where trainings start from; nothing is trained."""
    found = []

    def trained(task, network, *, seed, start=None, **how):
        found.append(None if start is None else (start.name, start.model[0].weight.mean().item()))
        model = initialise("cnn3", 2, 0)
        return Trained(model, task, "cnn3", seed, "robust", find_recipe("robust"), 1, 1.0, None)

    monkeypatch.setattr(training, "train", trained)
    monkeypatch.setattr(study, "TASKS", ["textbox/simple-fr"])
    return found


@pytest.fixture
def plain_elsewhere(tmp_path):
    """A store that is not the user's, with a plain network; the user's knows a fast one only."""
    model = initialise("cnn3", 2, 5)
    how = ("cnn3", 0, "published", find_recipe("published"), 1, 1.0, None)
    library.save(Trained(model, verax.task("textbox/simple-fr"), *how), tmp_path / "networks")
    return tmp_path, ("cnn3@published", pytest.approx(model[0].weight.half().float().mean().item()))


@pytest.mark.parametrize("beside", [False, True])
def test_robust_networks_start_from_the_plain_ones_of_the_same_store(
    robust_starts, plain_elsewhere, monkeypatch, beside
):
    store, plain = plain_elsewhere
    options = study.Options(networks=["cnn@robust"], store=store, device="cpu", quiet=True)
    if beside:
        monkeypatch.setattr(study.workers, "threads", lambda jobs, *_: (job() for job in jobs))
        study._train_side_by_side(options, study.missing(options))
    else:
        assert study.train_missing(options) == 1
    assert robust_starts == [plain]
    assert study.missing(options) == []


def test_the_command_that_trains_starts_from_what_lies_in_its_folder(robust_starts, plain_elsewhere):
    store, plain = plain_elsewhere
    words = ["train", "textbox/simple-fr", "--device", "cpu", "--quiet", "--network"]
    where = ["--out", str(store / "networks")]
    for line in ([*words, "cnn@robust", *where], [*words, "cnn3", "--recipe", "robust", *where]):
        CliRunner().invoke(app, line)
    CliRunner().invoke(app, [*words, "cnn@robust"])  # the user's store has none, so the shipped one is next
    CliRunner().invoke(app, [*words, "cnn@published", *where])
    assert robust_starts[:2] == [plain, plain]
    assert robust_starts[2][0] == "cnn3"
    assert robust_starts[3] is None


def _times(value, item):
    return value * item


def test_work_is_shared_out_and_comes_back_whole():
    for workers in (1, 2):
        with Crew(workers, "verax.errors") as crew:
            assert dict(crew.over(_times, 3, [1, 2, 5])) == {1: 3, 2: 6, 5: 15}
            with pytest.raises(TypeError):
                list(crew.over(_times, None, [1]))


def test_commands_run_side_by_side_and_say_their_last_words(tmp_path):
    said = list(commands([["--version"], ["train", "textbox/nowhere"]], 2, tmp_path))
    assert __version__ in said[0]
    assert "nowhere" in said[1]


def test_presets_have_the_methods_of_the_paper():
    for name in ("smerf", "smerf-architectures", "smerf-robust", "smerf-backgrounds", "smerf-full"):
        found = specs.study(name)
        assert [method.label for method in found.methods] == list(paper_methods.SEVENTEEN)
        assert found.tasks == list(paper_methods.TASKS)
        assert found.samples == (10 if name == "smerf-full" else 20)  # each of five networks has its own


@pytest.mark.slow
def test_the_command_from_end_to_end(tmp_path):
    """Shipped networks, one picture a bucket; a second time everything comes from the store."""
    out = tmp_path / "out"
    words = ["reproduce", "smerf", "--quick", "--samples", "1", "--references", "2", "--sound-samples", "1"]
    for _ in range(2):
        result = CliRunner().invoke(app, [*words, "--device", "cpu", "--quiet", "--out", str(out)])
        assert result.exit_code == 0, result.output
    assert {path.stem for path in (out / "figures").glob("*.svg")} == {
        entry.file for entry in CATALOGUE if entry.draw and entry.needs in ((), (("plain", "black"),))
    }
    assert (out / "tables" / "table3.csv").is_file()
    page = (out / "index.html").read_text()
    assert "Figure 33b" in page
    assert 'src="http' not in page
    for text in (page, (out / "claims.html").read_text(), (out / "claims.md").read_text()):
        assert "A first look" in text
    assert page.count("<td>textbox/complex-cr4</td><td>cnn4</td>") == 1  # one certificate for both protocols
    manifest = json.loads((out / "runs" / "cnn4" / "manifest.json").read_text())
    assert manifest["reused_units"] == len(manifest["units"])
    assert set(pd.read_parquet(out / "scores.parquet")["background"]) == {"black"}
    claims = {claim["id"]: claim for claim in json.loads((out / "claims.json").read_text())["claims"]}
    assert "name the right reasoning" in claims["identifiability-measured"]["measured"]


def test_of_two_backgrounds_of_a_kind_claims_and_figures_take_the_first(evidence, tmp_path, monkeypatch):
    base = evidence.series[0]
    grounds = [replace(base, background=name) for name in ("black", "folder:photos", "texture")]
    grounds = [replace(s, scores=s.scores.assign(place=s.background)) for s in grounds]
    runs = [
        SimpleNamespace(
            manifest={"study": {"background": s.background}, "certificates": [{"task": s.background}]},
            identification=lambda: None,
        )
        for s in grounds
    ]
    given = {}
    monkeypatch.setattr(
        reproduction.page, "write", lambda out, scores, **options: given.update(options) or {}
    )
    gathered = study.Gathered(Evidence(tuple(grounds)), runs)
    reproduction.claims_page(gathered, study.Options(), tmp_path)
    assert set(given["backgrounds"]["real"]["place"]) == {"folder:photos"}
    assert gathered.evidence.find("plain", "real").background == "folder:photos"
    assert [row["task"] for row in given["certificates"]] == ["black", "folder:photos"]


def test_wrong_words_get_one_sentence(tmp_path):
    for words, sentence in (
        (["smurf"], "did you mean 'smerf'"),
        (["smerf", "--networks", "cnn5", "--out", str(tmp_path / "new")], "cnn5"),
        (["smerf", "--seeds", "x"], "whole numbers"),
        (["smerf", "--seeds", "-1"], "whole numbers from 0, not -1"),
        (["smerf", "--seeds", "1,1"], "seeds has 1 twice"),
        (["smerf", "--networks", "cnn4,cnn4"], "networks has 'cnn4' twice"),
        (["smerf", "--backgrounds", "black,black"], "backgrounds has 'black' twice"),
    ):
        result = CliRunner().invoke(app, ["reproduce", *words])
        assert sentence in str(result.exception)
