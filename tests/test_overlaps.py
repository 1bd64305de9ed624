"""What the page of an alignment says first: right answers whose maps lie beside what people marked."""

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape

from verax.reports import alignment as page
from verax.reports import overlaps
from verax.studies.alignments import Alignment

COVERAGES = ("iou", "ground-truth-coverage", "saliency-coverage")


def aligned(parts, right=True):
    """An alignment of parts: class, how many images, their three scores, and what their maps show."""
    rows = [
        {
            "id": f"{label}-{number}",
            "label": label,
            "prediction": label,
            "right": right,
            "target": label,
            "confidence": 0.9,
            "area": 0.1,
            "shown": shown,
            "empty": False,
            "flat": False,
            **dict(zip(COVERAGES, values, strict=True)),
            **{f"{name}/{chance}": 0.03 for name in COVERAGES for chance in ("random", "centre")},
        }
        for label, count, values, shown in parts
        for number in range(count)
    ]
    scores = pd.DataFrame(rows).astype({"right": "boolean"})
    facts = {
        "model": "net",
        "data": "pictures",
        "method": "grad-cam",
        "settings": {},
        "target": "predicted",
        "judging": {"binarisation": "threshold:0.5"},
        "classes": {"0": "circle", "1": "square"},
    }
    done = Alignment(scores, facts)
    done.sort_into_cases()
    return done


NONE, MOST = (0.0, 0.0, 0.0), (0.7, 0.8, 0.8)


def test_data_without_a_single_mark_are_said_to_be_compared_with_nothing():
    done = aligned([(0, 4, NONE, 0.1)])
    done.scores["empty"] = [True, True, True, False]
    assert not any("has a mark" in words for words in overlaps.warnings(done))
    done.scores["empty"] = True
    (warning,) = overlaps.warnings(done)
    assert warning.startswith("No image has a mark")


def test_skill_where_everything_is_marked_is_not_a_number(recwarn):
    scores = pd.DataFrame({"iou": [0.5, 0.4], "iou/random": [1.0, 1.0]})
    assert all(np.isnan(overlaps.skill(scores, "iou")[:2]))
    assert not [warning for warning in recwarn if warning.category is RuntimeWarning]


def test_a_class_that_is_right_for_the_wrong_reasons_is_named_first():
    """The mean over both classes is far above chance, and would say that all is well."""
    done = aligned([(0, 50, NONE, 0.1), (1, 50, MOST, 0.1)])
    said = page.verdict(done)
    assert "Of the 100 right answers, 50 (50 % [40, 60]) have hardly any overlap (IoU up to 0.20)" in said
    assert "all 50 called 'circle'" in said
    (warning,) = overlaps.warnings(done)
    assert warning.startswith("Right for the wrong reasons?")
    assert "in all 50 images that it rightly calls 'circle' (mean IoU 0.00)" in warning
    assert "square" not in warning
    assert str(escape(warning)) in page.page(done).partition("</header>")[0]


def test_a_large_share_is_a_warning_where_no_class_stands_out():
    done = aligned([(0, 12, NONE, 0.1), (0, 20, MOST, 0.1), (1, 12, NONE, 0.1), (1, 20, MOST, 0.1)])
    (warning,) = overlaps.warnings(done)
    assert "24 of 64 right answers (38 % [27, 50])" in warning
    assert "called" not in page.verdict(done)


def test_without_labels_nobody_knows_what_is_right():
    done = aligned([(0, 10, NONE, 0.1), (1, 10, MOST, 0.1)], right=None)
    (warning,) = overlaps.warnings(done)
    assert "right" not in warning.lower()
    assert "all 10 images that it calls 'circle'" in warning
    assert "Of the 20 images, 10 " in page.verdict(done)


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (MOST, 0.1),
        ((0.1, 0.1, 0.9), 0.1),  # a small map within the mark
        ((0.1, 0.9, 0.1), 0.9),  # the mark and all around it
        (NONE, 0.0),  # nothing passes the binarisation, which has a note of its own
    ],
)
def test_what_is_no_wrong_reason_gets_no_warning(values, shown):
    assert overlaps.warnings(aligned([(0, 20, values, shown), (1, 20, MOST, 0.1)])) == []


def test_few_images_of_a_class_say_nothing_about_it():
    assert overlaps.warnings(aligned([(0, 4, NONE, 0.1), (1, 50, MOST, 0.1)])) == []


def test_no_answer_with_little_overlap_is_said():
    said = page.verdict(aligned([(0, 3, MOST, 0.1)]))
    assert "None of the 3 right answers has as little overlap as an IoU of 0.20." in said


def test_the_page_explains_its_words_and_ranges_without_hovering():
    text = page.page(aligned([(0, 3, MOST, 0.1)]))
    for word, about in (("IoU", "overlap"), ("GTC", "share of what was marked"), ("SC", "share of what is")):
        assert f"{word}</strong> {about}" in text
    assert 'class="ranges">GTC 0.00 to 0.20, SC 0.65 to 1.00<' in text
    assert "shown on hover" not in text


def test_cases_are_left_out_where_nobody_knows_what_is_right():
    text = page.page(aligned([(0, 3, MOST, 0.1)], right=None))
    assert 'class="case ' not in text
    assert "Choose one to see its images" not in text
    assert "Nobody knows that here" in text
    assert page.data(aligned([(0, 3, MOST, 0.1)], right=None))["cases"] == []


@pytest.mark.parametrize(
    ("facts", "title"),
    [
        (
            {"model": "Sequential", "data": "folder", "weights": "own"},
            "Your network (Sequential) on a folder",
        ),
        ({"model": "Net", "data": "folder", "weights": "own"}, "Net on a folder of pictures"),
        ({"model": "timm:resnet18", "data": "pets", "weights": "none"}, "timm:resnet18 on pets"),
    ],
)
def test_titles_say_whose_network_it_is(facts, title):
    done = aligned([(0, 3, MOST, 0.1)])
    done.facts |= facts
    assert f"<h1>{title}" in page.page(done)


def test_shares_and_skill_have_intervals():
    """20 of 50 right, 15 of them with hardly any overlap; the confidence of what was seen is beside it."""
    done = aligned([(0, 15, NONE, 0.1), (1, 5, MOST, 0.1), (1, 30, MOST, 0.1)])
    done.scores.loc[20:, "right"] = False
    done.sort_into_cases()
    text = page.page(done)
    assert "<dd>40.0 % [27.6, 53.8]</dd>" in text  # Wilson, 20 of 50
    assert "<small>30 % [19, 44]</small>" in text  # Sufficient Context, 15 of 50
    value, low, high = overlaps.skill(done.scores, "iou")
    assert value == pytest.approx((0.49 - 0.03) / 0.97)
    assert low < value < high
    assert high - low == pytest.approx(2 * 1.96 * 0.3208 / 50**0.5 / 0.97, rel=0.15)
    assert f'{value:.2f} <span class="interval">[{low:.2f}, {high:.2f}]' in text


def test_the_terminal_says_it_too(capsys):
    from verax.cli.alignment import show

    show(aligned([(0, 50, NONE, 0.1), (1, 50, MOST, 0.1)]))
    said = " ".join(capsys.readouterr().out.split())
    assert "Right for the wrong reasons?" in said
    assert "Accuracy 100.0 % [96.3, 100.0]. " in said
    assert "Images without a mark: 0." in said
