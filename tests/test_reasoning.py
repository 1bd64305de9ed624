import pytest
from hypothesis import given
from hypothesis import strategies as st

from verax.errors import InvalidInput, ReasoningError, UnknownName
from verax.tasks.textbox import TEXTBOX, Kind, Look, Reasoning, TextBox, World
from verax.tasks.textbox.grammar import parse
from verax.tasks.textbox.settings import SETTINGS

SCENES = list(TEXTBOX.scenes())

# Table 1 of the SMERF paper, bucket by bucket: label 0, label 1, focus and avoid by bucket.
T, B1, B2 = {"text"}, {"box1"}, {"box2"}
TABLE = {
    "simple-fr": (
        {1, 2, 3, 4, 5, 6},
        {7, 8, 9, 10, 11, 12},
        {b: B1 for b in range(7, 13)},
        {2: T, 3: T, 8: T, 9: T, 4: B2, 10: B2, 5: B2 | T, 6: B2 | T, 11: B2 | T, 12: B2 | T},
    ),
    "simple-nr": (
        {2, 5, 8, 11},
        {3, 6, 9, 12},
        {b: T for b in (2, 3, 5, 6, 8, 9, 11, 12)},
        {5: B2, 6: B2, 8: B1, 9: B1, 11: B1 | B2, 12: B1 | B2},
    ),
    "complex-fr": (
        set(range(1, 10)),
        {10, 11, 12},
        {b: B1 | B2 for b in (10, 11, 12)},
        {b: T for b in (2, 3, 5, 6, 8, 9, 11, 12)},
    ),
    "complex-cr1": (
        {2, 4, 5, 6, 8},
        {3, 9, 10, 11, 12},
        {2: T, 3: T, 8: T, 9: T, 4: B2, 5: B2, 6: B2, 10: B1 | B2, 11: B1 | B2, 12: B1 | B2},
        {8: B1, 9: B1, 5: T, 6: T, 11: T, 12: T},
    ),
    "complex-cr2": (
        {2, 5, 7, 8, 9},
        {3, 6, 10, 11, 12},
        {2: T, 3: T, 5: T, 6: T, 7: B1, 8: B1, 9: B1, 10: B1 | B2, 11: B1 | B2, 12: B1 | B2},
        {5: B2, 6: B2, 8: T, 9: T, 11: T, 12: T},
    ),
    "complex-cr3": (
        {1, 2, 3, 5, 11},
        {6, 7, 8, 9, 12},
        {5: B2 | T, 6: B2 | T, 11: B2 | T, 12: B2 | T, 7: B1, 8: B1, 9: B1},
        {2: T, 3: T, 8: T, 9: T, 11: B1, 12: B1},
    ),
    "complex-cr4": (
        {1, 2, 3, 8, 11},
        {4, 5, 6, 9, 12},
        {4: B2, 5: B2, 6: B2, 8: B1 | T, 9: B1 | T, 11: B1 | T, 12: B1 | T},
        {2: T, 3: T, 5: T, 6: T, 11: B2, 12: B2},
    ),
}


def test_buckets_are_numbered_as_in_the_paper():
    words = ["", "A", "B", "2", "A2", "B2", "1", "A1", "B1", "12", "A12", "B12"]
    for number, (word, scene) in enumerate(zip(words, SCENES, strict=True), 1):
        wanted = {
            "text": next((c for c in "AB" if c in word), None),
            "box1": "1" in word,
            "box2": "2" in word,
        }
        assert TEXTBOX.bucket(wanted) == number == TEXTBOX.bucket(scene)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_seven_settings_equal_the_table(setting):
    reasoning = Reasoning.parse(SETTINGS[setting][1])
    zero, one, focus, avoid = TABLE[setting]
    for bucket, scene in enumerate(SCENES, 1):
        label = 0 if bucket in zero else 1 if bucket in one else None
        assert reasoning.label(scene) == label, bucket
        if label is not None:
            assert reasoning.focus(scene) == focus.get(bucket, set()), bucket
            assert reasoning.avoid(scene) == avoid.get(bucket, set()), bucket
        else:
            assert reasoning.focus(scene) == reasoning.avoid(scene) == set()
    assert set(reasoning.buckets()) == zero | one


def test_scenes_as_people_write_them():
    reasoning = Reasoning.parse("box2 and box1 -> 1; box2 and not box1 -> 0; text = A -> 0; text = B -> 1")
    assert reasoning.label({"text": "A", "box1": True, "box2": False}) == 0
    assert reasoning.label({"text": "B"}) == 1
    assert reasoning.label({"text": None, "box1": False}) is None
    assert reasoning.label({}) is None


@pytest.mark.parametrize(
    ("text", "words", "position"),
    [
        ("box3 -> 1", "no object named 'box3'; did you mean", 0),
        ("text = Z -> 1", "no state 'Z'", 7),
        ("box1 -> 1; box1 -> 0", "contradicts rule 1", 11),
        ("text = A and text = B -> 1", "contradicts itself", 0),
        ("box1 and not box1 -> 1", "contradicts itself", 0),
        ("box1 -> 1; box1 and box2 -> 1", "can never fire", 11),
        ("box1 -> 1; not box1 -> 0; otherwise -> 1", "can never fire", 26),
        ("otherwise -> 0; box1 -> 1", "must be the last", 0),
        ("box1", "found the end of the rule", 4),
        ("box1 ->", "a label", 7),
        ("box1 -> yes", "a label", 8),
        ("box1 -> -1", "a label", 8),
        ("-> 1", "the name of an object", 0),
        ("box1 and -> 1", "the name of an object", 9),
        ("(box1 -> 1", "')'", 6),
        ("box1 = -> 1", "a state of 'box1'", 7),
        ("box1 box2 -> 1", "'and', 'or' or '->'", 5),
        ("box1 -> 1 box2 -> 0", "';' or the end", 10),
        ("box1 $ -> 1", "'and', 'or' or '->'", 5),
        ("text == A -> 1", "Write '=' instead of '=='", 5),
        ("box1 => 1", "Write '->' instead of '=>'", 5),
        ("box1 & box2 -> 1", "Write 'and' instead of '&'", 5),
        ("box1 -> 1; otherwise 0", "Expected '->'", 21),
        ("", "at least one rule", 0),
        (" ;; \n", "at least one rule", 0),
        ("not " * 200 + "box1 -> 1", "nested too deeply", None),
        ("(" * 5000 + "box1", "nested too deeply", None),
    ],
)
def test_faults_get_one_sentence_with_their_position(text, words, position):
    with pytest.raises(ReasoningError) as caught:
        Reasoning.parse(text)
    sentence = str(caught.value)
    assert words in sentence
    assert "\n" not in sentence
    if position is not None:
        assert caught.value.position == position
        assert sentence.endswith(f"(at character {position + 1})")


def test_bad_scenes():
    reasoning = Reasoning.parse("box1 -> 1; otherwise -> 0")
    with pytest.raises(UnknownName, match="box9"):
        reasoning.label({"box9": True})
    with pytest.raises(UnknownName, match="no state 'Q'"):
        reasoning.label({"text": "Q"})
    with pytest.raises(InvalidInput, match="needs one of A, B"):
        reasoning.label({"text": True})
    with pytest.raises(InvalidInput, match="written as text"):
        Reasoning.parse(17)


# -- properties: random conditions against an independent evaluation in Python ---------------------------

ATOMS = {
    "box1": "(s['box1'] != 'none')",
    "box2": "(s['box2'] != 'none')",
    "text": "(s['text'] != 'none')",
    "text = A": "(s['text'] == 'A')",
    "text != B": "(s['text'] != 'B')",
    "text = none": "(s['text'] == 'none')",
}
conditions = st.recursive(
    st.sampled_from(sorted(ATOMS.items())),
    lambda inner: st.one_of(
        inner.map(lambda c: (f"not {c[0]}" if " " not in c[0] else f"not ({c[0]})", f"(not {c[1]})")),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda p: (f"({p[0][0]}) {p[1]} ({p[2][0]})", f"({p[0][1]} {p[1]} {p[2][1]})")
        ),
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(conditions, st.integers(0, 3)), min_size=1, max_size=4), st.booleans())
def test_rules_fire_in_order(rules, otherwise):
    text = "; ".join(f"{c[0]} -> {label}" for c, label in rules) + ("; otherwise -> 7" if otherwise else "")
    code = [compile(c[1], "rule", "eval") for c, _ in rules]

    def fires(scene):
        hits = [i for i, c in enumerate(code) if eval(c, {"s": scene})]
        return hits[0] if hits else (len(code) if otherwise else None)

    fired = [fires(scene) for scene in SCENES]
    reachable = set(fired) - {None}
    wanted = set(range(len(rules) + otherwise))
    if reachable != wanted:
        with pytest.raises(ReasoningError):
            Reasoning.parse(text)
        return
    reasoning = Reasoning.parse(text)
    for scene, index in zip(SCENES, fired, strict=True):
        present = {name for name, state in scene.items() if state != "none"}
        if index is None:
            assert reasoning.label(scene) is None
            continue
        assert reasoning.label(scene) == (7 if index == len(rules) else rules[index][1])
        named = {n for n in TEXTBOX.names if index < len(rules) and n in rules[index][0][0]}
        every = {n for n in TEXTBOX.names for c, _ in rules if n in c[0]}
        assert reasoning.focus(scene) == named & present
        assert reasoning.avoid(scene) == present - (every if index == len(rules) else named)
        assert not reasoning.focus(scene) & reasoning.avoid(scene)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_one_sentence(text):
    try:
        Reasoning.parse(text)
    except ReasoningError as error:
        assert 0 <= error.position <= len(text)


@given(st.text(alphabet="box12 textAB=andornot()->;01", max_size=40))
def test_near_misses_never_crash(text):
    try:
        parse(text, TEXTBOX)
    except ReasoningError as error:
        assert 0 <= error.position <= len(text)


def test_a_new_world_with_more_labels():
    world = World(
        "lamps",
        (
            Kind("lamp", {"red": Look.box(6, 6, (1, 0, 0)), "green": Look.box(6, 6, (0, 1, 0))}),
            Kind.plain("cross", Look([[0, 1, 0], [1, 1, 1], [0, 1, 0]])),
        ),
        canvas=(32, 48),
    )
    reasoning = Reasoning.parse("lamp = red -> 2; lamp = green and not cross -> 1; otherwise -> 0", world)
    assert reasoning.labels == (0, 1, 2)
    assert reasoning.label({"lamp": "red", "cross": True}) == 2
    assert reasoning.avoid({"lamp": "red", "cross": True}) == {"cross"}
    assert reasoning.label({"lamp": "green", "cross": True}) == 0
    assert world.describe({"lamp": "green", "cross": True}) == "green + cross"


@pytest.mark.parametrize("rules", ["box1 -> 1; otherwise -> 1", "box1 -> 1", "box1 -> 0; text = A -> 0"])
def test_a_task_needs_two_labels(rules):
    with pytest.raises(InvalidInput, match="gives every scene the label") as caught:
        TextBox("own/one", rules)
    assert str(caught.value).count(". ") == 0  # one sentence
    assert TextBox("own/two", "box1 -> 1; text = A -> 0").classes == 2
