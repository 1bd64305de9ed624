"""Published metrics against loops over images, and against the numbers of the paper."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.ndimage import uniform_filter

from verax.cases import Cases, Role, Truth
from verax.errors import InvalidInput, InvalidParameter
from verax.metrics import published, scoring
from verax.protocols import published as protocol

TEXT, BOX1, BOX2 = (20, 39, 30, 43), (48, 58, 8, 18), (5, 9, 50, 54)


def truth_of(boxes, roles, size=64):
    """Truth with filled rectangles: `boxes` (N, K, 4), `roles` (N, K)."""
    boxes = torch.as_tensor(boxes, dtype=torch.int64)
    rows = torch.arange(size)
    inside = [(rows >= boxes[..., i, None]) & (rows < boxes[..., i + 1, None]) for i in (0, 2)]
    objects = inside[0][..., :, None] & inside[1][..., None, :]
    names = [f"o{k}" for k in range(boxes.shape[1])]
    return Truth.from_objects(objects, boxes, torch.as_tensor(roles, dtype=torch.int8), names)


def cases_of(truth, group=None):
    n, height, width = truth.focus.shape
    group = torch.zeros(n, dtype=torch.int64) if group is None else torch.as_tensor(group)
    inputs = torch.zeros(n, 3, height, width)
    return Cases(inputs, torch.zeros(n, dtype=torch.int64), truth, group, torch.arange(n))


def paint(*pairs, background=0.0, size=64):
    """A map with one value in each box."""
    values = torch.full((1, size, size), background, dtype=torch.float64)
    for (row0, row1, col0, col1), value in pairs:
        values[:, row0:row1, col0:col1] = value
    return values


# --- one image at a time, written after the facts ---------------------------------------------------------


def reference_afl(values, boxes, mean=False):
    if not boxes:
        return np.nan
    if values.max() == values.min():
        return 0.0
    density = (values - values.min()) / (values.max() - values.min())
    density = density / density.sum()
    pieces = [density[r0:r1, c0:c1].ravel() for r0, r1, c0, c1 in boxes]
    return np.concatenate(pieces).mean() if mean else sum(piece.sum() for piece in pieces)


def reference_threshold(values, count):
    counts, edges = np.histogram(values.ravel(), bins=10)
    seen = 0
    for number in range(9, -1, -1):
        seen += counts[number]
        if seen >= count:
            return edges[number]
    return edges[0]


def reference_iou(values, boxes, count):
    if not boxes:
        return np.nan
    strong = values >= reference_threshold(values, count)
    scores = []
    for row0, row1, col0, col1 in boxes:
        box = np.zeros(values.shape, dtype=bool)
        box[row0:row1, col0:col1] = True
        scores.append((strong & box).sum() / (strong | box).sum())
    return np.mean(scores)


def area(boxes):
    return sum((row1 - row0) * (col1 - col0) for row0, row1, col0, col1 in boxes)


LEVELS = st.one_of(
    st.sampled_from([-1.0, 0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0]),
    st.floats(-5, 5, allow_subnormal=False).map(lambda x: round(x, 6)),
)
BOX = st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(0, 5), st.integers(1, 4)).map(
    lambda b: (b[0], b[0] + b[1], b[2], b[2] + b[3])
)
ROLE = st.sampled_from([Role.ABSENT, Role.OTHER, Role.FOCUS, Role.AVOID])


@settings(max_examples=150, deadline=None)
@given(
    hnp.arrays(np.float64, (2, 10, 10), elements=LEVELS),
    st.lists(st.tuples(BOX, ROLE, ROLE), min_size=3, max_size=3),
    st.booleans(),
)
def test_all_metrics_match_the_reference(values, objects, blurred):
    if blurred:
        values = np.stack([uniform_filter(v, 7, mode="mirror") for v in values])
    boxes, *roles = zip(*objects, strict=True)
    truth = truth_of([boxes, boxes], roles, size=10)
    tensor = torch.from_numpy(values)
    for role in (Role.FOCUS, Role.AVOID):
        for n in range(2):
            mine = [b for b, r in zip(boxes, roles[n], strict=True) if r == role]
            first = [b for b, r in zip(boxes, roles[n], strict=True) if r == Role.FOCUS]
            expected = {
                "afl": reference_afl(values[n], mine),
                "mafl": reference_afl(values[n], mine, mean=True),
                "single": reference_iou(values[n], mine, area(first)),
                "multi": reference_iou(values[n], mine, area(mine)),
            }
            got = {
                "afl": published.afl(tensor, truth, role)[n].item(),
                "mafl": published.mafl(tensor, truth, role)[n].item(),
                "single": published.iou(tensor, truth, role)[n].item(),
                "multi": published.iou(tensor, truth, role, "multi")[n].item(),
            }
            assert got == pytest.approx(expected, abs=1e-11, nan_ok=True)


@settings(max_examples=150, deadline=None)
@given(hnp.arrays(np.float64, (6, 6), elements=LEVELS), st.integers(0, 36))
def test_threshold_is_an_edge_of_the_numpy_histogram(values, count):
    level = published.histogram_threshold(torch.from_numpy(values)[None], torch.tensor([count]))
    assert level.item() == reference_threshold(values, count)


def test_threshold_when_the_boxes_hold_more_than_the_image():
    values = torch.rand(1, 6, 6, dtype=torch.float64)
    assert published.histogram_threshold(values, torch.tensor([37])) == values.min()


@pytest.mark.parametrize("value", [0.0, 0.1, -0.3, 127.3])
def test_constant_maps_get_their_defined_score(value):
    truth = truth_of([[TEXT, BOX1]], [[Role.FOCUS, Role.AVOID]])
    values = torch.full((1, 64, 64), value, dtype=torch.float64)
    for metric in (published.afl, published.mafl):
        assert metric(values, truth, Role.FOCUS).item() == 0
        assert metric(values, truth, Role.AVOID).item() == 0
    # All 4096 pixels fall into the one bin that holds anything.
    assert published.iou(values, truth, Role.FOCUS).item() == 247 / 4096
    assert published.iou(values, truth, Role.AVOID).item() == 100 / 4096


def test_without_focus_objects_the_top_bin_decides():
    truth = truth_of([[TEXT, BOX1]], [[Role.ABSENT, Role.AVOID]])
    values = paint((BOX1, 1.0), (TEXT, 0.5))
    assert published.iou(values, truth, Role.AVOID).item() == 1
    assert published.iou(values, truth, Role.FOCUS).isnan().item()
    flat = torch.ones(1, 64, 64)
    assert published.iou(flat, truth, Role.AVOID).item() == 0  # the top bin of a constant map is empty
    assert published.iou(flat, truth, Role.AVOID, "multi").item() == 100 / 4096


def test_overlapping_boxes_count_twice():
    truth = truth_of([[BOX1, BOX1]], [[Role.FOCUS, Role.FOCUS]])
    values = paint((BOX1, 1.0))
    assert published.afl(values, truth).item() == pytest.approx(2)
    assert published.mafl(values, truth).item() == pytest.approx(1 / 100)


# --- numbers of the paper --------------------------------------------------------------------------------


def test_figure_14():
    truth = truth_of([[TEXT, BOX1]], [[Role.FOCUS, Role.AVOID]])
    values = paint((TEXT, 1.0), (BOX1, 0.8), background=0.001)
    scores = {name: value.item() for name, value in published.scores(values, truth).items()}
    assert round(scores["pafl"], 4) == 0.7554
    assert round(scores["safl"], 4) == 0.2446
    assert scores["piou"] == 1
    assert scores["siou"] == 0


def test_figure_16():
    primary = [0.985, 0.892, 0.805, 0.733, 0.673, 0.622, 0.578, 0.540, 0.507, 0.478, 0.451]
    secondary = [0.000, 0.108, 0.195, 0.267, 0.327, 0.378, 0.422, 0.460, 0.493, 0.522, 0.549]
    values = torch.cat([paint((TEXT, 1.0), (BOX1, 0.3 * i), background=0.001) for i in range(11)])
    truth = truth_of([[TEXT, BOX1]] * 11, [[Role.FOCUS, Role.AVOID]] * 11)
    assert published.afl(values, truth, Role.FOCUS).tolist() == pytest.approx(primary, abs=5e-4)
    assert published.afl(values, truth, Role.AVOID).tolist() == pytest.approx(secondary, abs=5e-4)


@pytest.mark.parametrize(("box", "ceiling"), [(BOX1, 0.687), (TEXT, 0.790), (BOX2, 16 / 49)])
def test_ceilings_of_pafl(box, ceiling):
    """The focus box itself as the map: the blur leaks (facts 4.6)."""
    truth = truth_of([[box]], [[Role.FOCUS]])
    table = scoring.score(truth.focus.double(), cases_of(truth), "published", transfer="plain")
    assert table["pafl"][0] == pytest.approx(ceiling, abs=1e-3)


@pytest.mark.parametrize(("negative", "expected"), [(0.05, 0.19), (0.1, 0.11), (0.3, 0.05), (1.0, 0.024)])
@pytest.mark.parametrize("transfer", ["projection", "shap"])
def test_a_negative_region_ruins_maps_whose_zero_is_not_zero(negative, expected, transfer):
    """Attribution lies in Box1 alone, left half negative (facts 3.3)."""
    truth = truth_of([[BOX1]], [[Role.FOCUS]])
    row0, row1, col0, _ = BOX1
    values = paint((BOX1, 1.0), ((row0, row1, col0, col0 + 5), -negative))
    table = scoring.score(values, cases_of(truth), "published", transfer=transfer)
    assert table["pafl"][0] == pytest.approx(expected, abs=0.01)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1, 2, 3]), st.booleans())
def test_n_disjoint_objects_score_at_most_one_nth(seed, count, oracle):
    """Proof (a) of facts 4.6, for any map."""
    truth = truth_of([[TEXT, BOX1, BOX2]], [[Role.FOCUS] * count + [Role.ABSENT] * (3 - count)])
    noise = torch.from_numpy(np.random.default_rng(seed).normal(size=(1, 64, 64)))
    values = truth.focus.double() + 0.1 * noise if oracle else noise
    for values_or_blurred in (values, protocol.blur(values)):
        assert published.iou(values_or_blurred, truth).item() <= 1 / count + 1e-12


def test_the_bound_is_nearly_reached_by_one_object_and_never_by_two():
    one, two = (
        truth_of([[BOX1, BOX2]], [roles]) for roles in ([Role.FOCUS, Role.ABSENT], [Role.FOCUS, Role.FOCUS])
    )
    assert published.iou(one.focus.double(), one).item() == 1
    assert published.iou(two.focus.double(), two).item() == pytest.approx((100 / 116 + 16 / 116) / 2)


# --- scoring ---------------------------------------------------------------------------------------------


def test_score_is_picture_then_metric():
    boxes = [[TEXT, BOX1, BOX2]] * 4
    roles = [[1, 2, 0], [1, 1, -1], [2, -1, 2], [0, 0, 0]]
    truth = truth_of(boxes, roles)
    maps = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3, 64, 64)))
    table = scoring.score(maps, cases_of(truth), "published", transfer="gray")
    names = ["pafl", "safl", "piou", "siou", "siou-multi", "pmafl", "smafl"]
    assert scoring.metric_names("published") == names
    assert list(table.columns) == ["sample", "group", "degenerate", "wrong", *names]
    for n in range(4):
        grey = maps[n].abs().sum(0).numpy()
        values = uniform_filter((grey / grey.max() * 255).astype(int) / 255, 7, mode="mirror")
        first, second = ([b for b, r in zip(boxes[n], roles[n], strict=True) if r == role] for role in (1, 2))
        expected = [
            reference_afl(values, first),
            reference_afl(values, second),
            reference_iou(values, first, area(first)),
            reference_iou(values, second, area(first)),
            reference_iou(values, second, area(second)),
            reference_afl(values, first, mean=True),
            reference_afl(values, second, mean=True),
        ]
        assert table.loc[n, names].astype(float).tolist() == pytest.approx(expected, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("transfer", list(protocol.TRANSFERS))
def test_degenerate_maps_are_counted_and_scored(transfer):
    truth = truth_of([[TEXT, BOX1]] * 4, [[Role.FOCUS, Role.AVOID]] * 4)
    maps = torch.rand(4, 3, 64, 64)
    maps[0] = 0
    maps[1] = torch.nan
    maps[2, 0, 5, 5] = torch.inf
    table = scoring.score(maps, cases_of(truth), "published", transfer=transfer)
    assert table["degenerate"].tolist() == [True, True, True, False]
    assert table[scoring.metric_names("published")].notna().all(axis=None)
    assert (table.loc[:1, ["pafl", "safl", "pmafl", "smafl"]] == 0).all(axis=None)


def test_wrong_predictions_are_flagged_and_scored():
    truth = truth_of([[TEXT, BOX1]] * 2, [[Role.FOCUS, Role.AVOID]] * 2)
    table = scoring.score(torch.rand(2, 64, 64), cases_of(truth), "published", predictions=[0, 1])
    assert table["wrong"].tolist() == [False, True]
    assert table["pafl"].notna().all()


def test_groups_are_the_batches_of_projection():
    truth = truth_of([[TEXT, BOX1]] * 6, [[Role.FOCUS, Role.AVOID]] * 6)
    group = torch.tensor([1, 0, 1, 0, 0, 1])
    cases = cases_of(truth, group)
    maps = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 3, 64, 64)))
    maps[group == 1] *= 50
    whole = scoring.score(maps, cases, "published", transfer="projection")
    for number in (0, 1):
        members = group == number
        part = scoring.score(maps[members], cases[members], "published", transfer="projection")
        assert part.equals(whole[whole["group"] == number].reset_index(drop=True))
        values = protocol.prepare(maps[members], "projection").values
        assert part["pafl"].tolist() == published.afl(values, cases[members].truth).tolist()


def test_samples_do_not_see_each_other():
    truth = truth_of([[TEXT, BOX1, BOX2]] * 8, [[1, 2, 1]] * 8)
    cases, maps = cases_of(truth), torch.rand(8, 3, 64, 64)
    for transfer in set(protocol.TRANSFERS) - {"projection"}:
        whole = scoring.score(maps, cases, "published", transfer=transfer)
        for n in range(8):
            alone = scoring.score(maps[n : n + 1], cases[n : n + 1], "published", transfer=transfer)
            assert alone.iloc[0].equals(whole.iloc[n])


def test_truth_without_objects_is_undefined():
    truth = truth_of(torch.zeros(2, 0, 4), torch.zeros(2, 0))
    for transfer in protocol.TRANSFERS:
        table = scoring.score(torch.rand(2, 64, 64), cases_of(truth), "published", transfer=transfer)
        assert table[scoring.metric_names("published")].isna().all(axis=None)


def test_bad_input_gets_one_sentence():
    truth = truth_of([[TEXT]], [[Role.FOCUS]])
    with pytest.raises(InvalidParameter, match="did you mean 'single'"):
        published.iou(torch.zeros(1, 64, 64), truth, threshold="singel")
    with pytest.raises(InvalidInput, match="2 maps, but the truth about 1"):
        published.afl(torch.zeros(2, 64, 64), truth)
    with pytest.raises(InvalidInput, match=r"\(N, H, W\)"):
        published.iou(torch.zeros(1, 1, 64, 64), truth)
