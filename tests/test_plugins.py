"""Plugins: found when they are needed, reported when they are broken, never in the way."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import warnings
from pathlib import Path

import pytest
from torch import nn
from typer.testing import CliRunner

import verax
from verax import plugins
from verax.cli.main import app
from verax.errors import InvalidParameter, UnknownName, VeraxWarning
from verax.methods import METHODS
from verax.metrics import METRICS
from verax.networks import NETWORKS
from verax.registry import Registry
from verax.tasks import TASKS, is_builtin
from verax.tasks.alignment import DATA

ROOT = Path(__file__).parent.parent
GROUP = "verax.test-things"


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put distributions on the path: modules, and what an installer writes beside them."""
    plugins.forget()
    monkeypatch.syspath_prepend(str(tmp_path))

    def add(name, entries, group=GROUP, **modules):
        info = tmp_path / f"{name}-2.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.1\n")
        lines = [f"{word} = {target}" for word, target in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
        for module, code in modules.items():
            (tmp_path / f"{module}.py").write_text(textwrap.dedent(code))

    yield add
    plugins.forget()


def registry(**options):
    return Registry("thing", {"ours": "math:pi"}, group=GROUP, **options)


def test_nothing_is_scanned_before_an_unknown_name_is_asked_for():
    code = """
    import verax, verax.cli.main, verax.studies.running, verax.reports.html
    from verax import plugins
    from verax.methods import METHODS
    from verax.networks import NETWORKS

    METHODS.get("gradient"), "lrp-epsilon" in METHODS, METHODS.get("captum:Saliency")
    verax.task("textbox/simple-fr").network("cnn3")

    @verax.method("mine")
    def mine(model, inputs, targets): ...

    assert plugins.installed.cache_info().misses == 0
    "unknown" in METHODS
    assert plugins.installed.cache_info().misses == 1
    len(METHODS), list(METHODS), "another" in METHODS
    assert plugins.installed.cache_info().misses == 1
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)


def test_a_plugin_is_imported_when_its_name_is_asked_for(install):
    install("good", {"two": "good_things:two"}, good_things="two = 2")
    known = registry()
    assert known.get("ours") > 3
    assert "good_things" not in sys.modules
    assert known.get("two") == 2
    assert known.origin("two") == "good 2.1"
    assert known.origin("ours") == ""
    assert list(known) == ["ours", "two"]


FAULTS = {
    "zero": ("1 / 0", "ZeroDivisionError: division by zero"),
    "leaving": ("import sys; sys.exit(3)", "it ended the program (SystemExit 3)"),
    "odd": ("class Odd(BaseException): ...\nraise Odd('a\\nb')", "Odd: a"),
    "absent": (
        "import no_such_module_at_all",
        "ModuleNotFoundError: No module named 'no_such_module_at_all'",
    ),
    "syntax": ("def", "SyntaxError: invalid syntax (fault_syntax.py, line 1)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_plugin_is_reported_once_and_the_rest_goes_on(install, fault):
    code, reason = FAULTS[fault]
    module = f"fault_{fault}"
    install("broken", {"a": f"{module}:thing", "b": f"{module}:thing"}, **{module: code})
    install("fine", {"two": f"fine_{fault}:two"}, **{f"fine_{fault}": "two = 2"})
    known = registry()
    with pytest.warns(VeraxWarning) as caught:
        assert known.get("two") == 2
    sentence = f"The module '{module}' of the plugin broken 2.1 was left out: {reason}."
    assert [str(entry.message) for entry in caught] == [sentence]
    assert plugins.reports() == [sentence]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(known) == ["ours", "two"]
        assert list(registry()) == ["ours", "two"]  # another registry does not import it again
    said = f"no thing named 'a': the plugin broken 2.1, which brings it, was left out: {reason}."
    with pytest.raises(UnknownName, match=re.escape(said)):
        known.get("a")
    with pytest.raises(UnknownName, match="no thing named 'c'; known: ours, two"):
        known.get("c")


def test_a_module_that_could_not_register_anything_is_named_unless_a_name_is_near(install):
    install("wild", {"anything": "wild_things"}, wild_things="import no_such_module_at_all")
    known = registry()
    with (
        pytest.warns(VeraxWarning),
        pytest.raises(UnknownName, match="which may bring it, was left out: ModuleNot"),
    ):
        known.get("something")
    with pytest.raises(UnknownName, match="did you mean 'ours'"):
        known.get("our")


def test_asking_for_a_method_of_a_broken_plugin_shows_why_it_is_not_there(installed, tmp_path):
    shutil.copytree(installed, tmp_path / "packages")
    (tmp_path / "packages/verax_example/methods.py").write_text("import no_such_module_at_all")
    words = ("verax", "run", "smerf-quick", "--methods", "positive-gradient", "--store", "store")
    done = command(*words, packages=tmp_path / "packages", cwd=tmp_path)
    assert done.returncode == 2
    assert "which brings it, was left out: ModuleNotFoundError" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_what_a_module_has_not_is_left_out_alone(install):
    install(
        "half", {"a": "half_things:absent", "b": "half_things:deep.pi"}, half_things="import math as deep"
    )
    known = registry()
    words = (
        "'a' .* of the plugin half 2.1 was left out: AttributeError: module 'half_things' has no attribute"
    )
    with pytest.warns(VeraxWarning, match=words):
        assert known.get("b") > 3
    assert "a" not in known


def test_half_a_module_registers_nothing(install):
    code = """
    import verax
    verax.method("half-method")(lambda model, inputs, targets: inputs)
    verax.metric("half-metric", higher_is_better=True)(lambda maps, truth: maps.sum((1, 2)))
    raise RuntimeError("later")
    """
    install("half", {"thing": "half_way"}, half_way=code)
    with pytest.warns(VeraxWarning, match="RuntimeError: later"):
        registry().names()
    assert not METHODS.here("half-method")
    assert not METRICS.here("half-metric")


def test_our_own_names_survive_a_plugin_that_had_them_imported(install, tmp_path):
    code = """
    import verax
    verax.method("x")(lambda model, inputs, targets: inputs)
    raise RuntimeError("later")
    """
    install("first", {"thing": "first_there:thing"}, group="verax.metrics", first_there=code)
    check = """
    import sys, warnings
    warnings.simplefilter("ignore")
    from verax.metrics import METRICS
    assert "verax.methods" not in sys.modules
    assert "thing" not in METRICS
    from verax.methods import METHODS
    assert METHODS.builtin("gradient") and not METHODS.origin("gradient") and "x" not in METHODS
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    subprocess.run([sys.executable, "-c", textwrap.dedent(check)], env=env, check=True, timeout=120)


def test_a_task_that_cannot_be_made_is_one_sentence():
    verax.register_task("my/broken")(lambda: 1 / 0)
    try:
        with pytest.raises(InvalidParameter, match="'my/broken' could not be made: ZeroDivisionError"):
            verax.task("my/broken")
        done = CliRunner().invoke(app, ["list", "tasks", "--json"])
        assert done.exit_code == 0
        assert "could not be made" in done.output
    finally:
        TASKS.unregister("my/broken")


def test_ctrl_c_is_no_fault_of_a_plugin(install, monkeypatch):
    install("slow", {"two": "slow_things:two"}, slow_things="two = 2")
    known, imported = registry(), plugins.Plugin.imported

    def stop(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(plugins.Plugin, "imported", stop)
    with pytest.raises(KeyboardInterrupt):
        known.names()
    monkeypatch.setattr(plugins.Plugin, "imported", imported)
    assert known.get("two") == 2


def test_a_plugin_cannot_take_a_name(install):
    install("thief", {"ours": "thief_things:three"}, thief_things="three = 3")
    install("zz-late", {"taken": "late_things:three"}, late_things="three = 3")
    install("early", {"taken": "early_things:two"}, early_things="two = 2")
    known = registry()
    with pytest.warns(VeraxWarning) as caught:
        assert known.get("taken") == 2
    found = [str(entry.message) for entry in caught]
    end = "and is not replaced."
    assert found == [
        f"'ours' ({GROUP}) of the plugin thief 2.1 was left out: "
        f"a thing of that name is there already, {end}",
        f"'taken' ({GROUP}) of the plugin zz-late 2.1 was left out: "
        f"a thing of that name is one of early 2.1, {end}",
    ]
    assert known.get("ours") > 3.1


def test_code_of_a_plugin_cannot_take_a_name_either(install):
    code = """
    from plugin_registry import known
    known.register("ours", 3, replace=True)
    """
    module = type(sys)("plugin_registry")
    module.known = registry()
    sys.modules["plugin_registry"] = module
    install("sly", {"more": "sly_things:more"}, sly_things=code)
    with pytest.warns(VeraxWarning, match="The thing 'ours' exists already"):
        assert list(module.known) == ["ours"]
    del sys.modules["plugin_registry"]


def test_a_module_registers_what_it_likes(install):
    code = """
    import verax
    for name in ("own-one", "own-two"):
        verax.method(name)(lambda model, inputs, targets: inputs)
    """
    install("many", {"all": "many_things"}, group="verax.methods", many_things=code)
    METHODS._waiting = None  # look again
    try:
        assert METHODS.get("own-two").name == "own-two"
        assert METHODS.origin("own-one") == "many 2.1"
        assert "all" not in METHODS
    finally:
        for name in ("own-one", "own-two"):
            METHODS.unregister(name)


@pytest.mark.parametrize(
    ("group", "known", "code", "reason"),
    [
        ("verax.methods", METHODS, "thing = 3", "A method must be callable, not int"),
        ("verax.methods", METHODS, "thing = lambda x: x", "must be callable as (model, inputs, targets)"),
        ("verax.networks", NETWORKS, "from torch import nn\nthing = nn.ReLU()", "not one network"),
        ("verax.tasks", TASKS, "thing = 3", "a function that makes it, is no int"),
        (
            "verax.tasks",
            TASKS,
            "import verax\nthing = verax.task('worlds/xor')",
            "it is called 'worlds/xor' and its entry point 'wrong'",
        ),
        ("verax.datasets", DATA, "thing = 3", "a data set is a function that makes images, not int"),
        ("verax.metrics", METRICS, "def thing(m, t): ...", "@verax.metric('wrong', higher"),
    ],
)
def test_what_is_none_of_its_kind_is_left_out(install, group, known, code, reason):
    module = f"wrong_{abs(hash((group, code)))}"
    install("wrong", {"wrong": f"{module}:thing"}, group=group, **{module: code})
    known._waiting = None
    with pytest.warns(VeraxWarning) as caught:
        assert "wrong" not in known
    assert reason in str(caught[0].message)


def test_tasks_of_ones_own():
    @verax.register_task("my/made")
    def made(level=1):
        return verax.TextBox("my/made", "box1 -> 1; otherwise -> 0")

    try:
        assert verax.task("my/made?level=2").name == "my/made"
        assert not is_builtin("my/made")
        with pytest.raises(InvalidParameter, match="cannot be made with these options"):
            verax.task("my/made", renderer="sound")
        verax.register_task("my/made")(lambda: verax.task("worlds/xor"))
        with pytest.raises(InvalidParameter, match="'my/made' calls itself 'worlds/xor'"):
            verax.task("my/made")
        with pytest.raises(InvalidParameter, match="a task of verax itself"):
            verax.register_task("worlds/xor")(made)
        with pytest.raises(InvalidParameter, match="must have the members of"):
            verax.register_task(nn.ReLU())
    finally:
        TASKS.unregister("my/made")


def test_networks_and_data_sets_of_ones_own():
    @verax.network("my-net")
    def net(classes=2):
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, classes))

    @verax.dataset("my-faces")
    def faces():
        return DATA.get("faces")({0: 2, 3: 2})

    try:
        found = verax.align(net(), "my-faces", method="gradient")
        assert len(found.scores) == 4
        with pytest.raises(InvalidParameter, match="cannot be made by its name alone"):
            verax.align(net(), "faces")
        with pytest.raises(UnknownName, match="did you mean 'my-faces'"):
            verax.align(net(), "my-face")
        for decorator, name in ((verax.network, "cnn4"), (verax.dataset, "faces")):
            with pytest.raises(InvalidParameter, match="of verax itself; choose another name"):
                decorator(name)(net)
        with pytest.raises(InvalidParameter, match="stands its recipe"):
            verax.network("a@b")(net)
        with pytest.raises(InvalidParameter, match="not one network"):
            verax.network("a")(net())
    finally:
        NETWORKS.unregister("my-net")
        DATA.unregister("my-faces")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example plugin, installed as its users do it, and where."""
    base = tmp_path_factory.mktemp("plugin")
    shutil.copytree(ROOT / "examples" / "plugin", base / "source")
    target = base / "packages"
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words, "--target", target, base / "source"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def command(*words, packages, cwd):
    path = os.pathsep.join([str(packages), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "120", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_the_example_plugin_is_studied_from_the_command_line(installed, tmp_path):
    study = ROOT / "examples" / "plugin" / "study.toml"
    done = command("verax", "run", study, "--out", "out", packages=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "middle-share" in done.stdout
    run = verax.Run(tmp_path / "out")
    assert set(run.scores["network"]) == {"example-cnn", "wired"}
    board = run.leaderboard(metric="middle-share").set_index("method")
    assert {"positive-gradient", "gradient", "oracle"} <= set(board.index)
    assert board["value"]["oracle"] > board["value"]["random"]
    assert all(entry["passed"] for entry in run.manifest["certificates"])
    # workers find all of it by themselves, and give the same scores
    words = ("--workers", "2", "--overwrite", "all")
    done = command("verax", "run", study, "--out", "out", *words, packages=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = verax.Run(tmp_path / "out")
    assert again.manifest["computed_units"] == again.manifest["total_units"]
    assert again.scores.equals(run.scores)


def test_the_example_plugin_conforms(installed, tmp_path):
    done = command(
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        ROOT / "examples/plugin/tests",
        packages=installed,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout


def test_listings_say_what_was_left_out(installed, tmp_path):
    shutil.copytree(installed, tmp_path / "packages")
    (tmp_path / "packages/verax_example/metrics.py").write_text("raise SystemExit('no licence')")
    done = command("verax", "list", "plugins", packages=tmp_path / "packages", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    states = {
        line.split()[1]: "left out" in line for line in done.stdout.splitlines() if "verax-example" in line
    }
    assert states["middle-share"]
    assert not states["positive-gradient"]
    assert (
        "of the plugin verax-example 1.0 was left out: it ended the program (SystemExit no licence)"
        in done.stderr
    )
    done = command("verax", "list", "metrics", "--json", packages=tmp_path / "packages", cwd=tmp_path)
    assert done.returncode == 0
    assert "middle-share" not in done.stdout
    assert done.stderr.count("left out") == 1


def test_a_data_set_of_a_plugin_is_aligned_from_the_command_line(installed, tmp_path):
    net = ("--model", "timm:test_resnet", "--weights", "none", "--outputs", "2", "--geometry", "stretch:32")
    words = ("verax", "align", "--dataset", "example-squares", *net, "--out", "out")
    done = command(*words, packages=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(verax.Alignment.load(tmp_path / "out").scores) == 16
    refused = CliRunner().invoke(
        app, ["align", "--dataset", "x", "--model", "timm:test_resnet", "--images", "x"]
    )
    assert "leave other data out" in str(refused.exception)


@pytest.mark.parametrize("name", ["own_method", "own_model", "own_reasoning"])
def test_examples_run(name, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / f"examples/{name}.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "FAIL" not in done.stdout


def test_the_example_plugin_lists_every_place_to_rename():
    """Whoever follows the list has a plugin in which nothing is called as in the example."""
    folder = ROOT / "examples" / "plugin"
    words = " ".join((folder / "README.md").read_text().partition("A plugin is")[0].split())
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    names = [name for group in project["entry-points"].values() for name in group]
    assert all(f"`{name}`" in words for name in (*names, "verax_example", "verax-example"))
    files = [path for path in folder.rglob("*") if path.suffix in (".py", ".toml")]
    for path in files:
        if any(name in path.read_text() for name in (*names, "verax_example", "verax-example")):
            place = path.relative_to(folder)
            assert str(place) in words or place.parts[:2] == ("src", "verax_example"), place
