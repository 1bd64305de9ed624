"""Protocols against references written with numpy, scipy and matplotlib."""

import matplotlib
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.ndimage import uniform_filter

from verax.errors import InvalidInput, InvalidParameter, UnknownName
from verax.protocols import PROTOCOLS, published, sound

FEW = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 1.0])
ANY = st.floats(-100, 100, allow_subnormal=False)
WILD = st.one_of(FEW, st.sampled_from([np.nan, np.inf, -np.inf]))


def batches(elements):
    shapes = st.tuples(*(st.integers(1, top) for top in (3, 3, 9, 9)))
    return hnp.arrays(np.float64, shapes, elements=elements)


def spread(rng_seed=0, shape=(4, 3, 16, 16)):
    return np.random.default_rng(rng_seed).normal(size=shape)


# --- sound -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(batches(st.one_of(FEW, ANY)), st.sampled_from(sound.SIGNS))
def test_sound_map_is_the_channel_sum(maps, sign):
    prepared = sound.prepare(torch.from_numpy(maps), sign)
    for n, one in enumerate(maps):
        total = np.zeros(one.shape[1:])
        for channel in one:
            total += channel
        expected = {"magnitude": abs(total), "positive": np.maximum(total, 0), "signed": total}[sign]
        np.testing.assert_allclose(prepared.values[n].numpy(), expected, rtol=1e-13, atol=1e-12)
        values = prepared.values[n].numpy()
        assert bool(prepared.degenerate[n]) == bool((values == values.flat[0]).all())


def test_sound_sums_channels_before_the_sign():
    maps = torch.tensor([[[[1.0, 2.0]], [[-1.0, -5.0]]]])
    assert sound.prepare(maps).values.tolist() == [[[0.0, 3.0]]]
    assert sound.prepare(maps, "positive").values.tolist() == [[[0.0, 0.0]]]
    assert sound.prepare(maps, "signed").values.tolist() == [[[0.0, -3.0]]]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("protocol", ["sound", "published"])
def test_one_bad_number_makes_a_map_degenerate_and_no_other(protocol, bad):
    maps = torch.from_numpy(spread())
    maps[1, 2, 3, 4] = bad
    prepared = PROTOCOLS.get(protocol).prepare(maps)
    assert prepared.degenerate.tolist() == [False, True, False, False]
    assert prepared.values.isfinite().all()
    if protocol == "sound":
        assert (prepared.values[1] == 0).all()


def test_opposite_infinities_and_overflow_are_degenerate():
    maps = torch.zeros(2, 2, 4, 4, dtype=torch.float64)
    maps[0, 0, 0, 0], maps[0, 1, 0, 0] = torch.inf, -torch.inf
    maps[1, :, 0, 0] = 1.7e308
    for protocol in PROTOCOLS:
        prepared = PROTOCOLS.get(protocol).prepare(maps)
        assert prepared.degenerate.all(), protocol
        assert prepared.values.isfinite().all()


# --- the picture -----------------------------------------------------------------------------------------


def test_seismic_is_the_colour_map_of_matplotlib():
    expected = matplotlib.colormaps["seismic"].resampled(256)(np.arange(256))[:, :3]
    np.testing.assert_allclose(published.seismic().numpy(), expected, rtol=0, atol=1e-14)


def picture(maps, transfer):
    """One picture (H, W) after another, as in facts 3.3; `maps` is (N, C, H, W)."""
    maps = np.nan_to_num(maps, nan=0.0, posinf=0.0, neginf=0.0)
    low, high = np.percentile(maps, 1), np.percentile(maps, 99)
    colours = matplotlib.colormaps["seismic"].resampled(256)(np.arange(256))[:, :3]
    pictures = []
    for one in maps:
        if transfer == "gray":
            grey = np.abs(one).sum(0)
            grey = grey / grey.max() if grey.max() > 0 else grey
            result = (grey * 255).astype(int) / 255
        elif transfer == "heat":
            total = one.sum(0)
            top = np.abs(total).max()
            total = total / top if top > 0 else total
            result = 1 - colours[(127.5 * (total + 1)).astype(int)].mean(-1)
        elif transfer == "projection":
            cut = np.clip(one, low, high)
            top = np.abs(cut).max()
            cut = cut / top if top > 0 else cut
            result = ((cut + 1) / 2).max(0)
        elif transfer == "plain":
            result = one.max(0)
        elif transfer == "shap":
            span = one.max() - one.min()
            result = ((one - one.min()) / span if span > 0 else np.zeros_like(one)).max(0)
        else:
            result = 1 - one.mean(0)
        pictures.append(result)
    return np.stack(pictures)


@pytest.mark.parametrize("transfer", list(published.TRANSFERS))
def test_every_transfer_and_the_blur_match_the_reference(transfer):
    @settings(max_examples=40, deadline=None)
    @given(batches(WILD) | batches(FEW))
    def check(maps):
        expected = picture(maps, transfer)
        sharp = published.prepare(torch.from_numpy(maps), transfer, blur=False)
        np.testing.assert_allclose(sharp.values.numpy(), expected, rtol=0, atol=1e-12)
        smooth = published.prepare(torch.from_numpy(maps), transfer)
        reference = np.stack([uniform_filter(p, 7, mode="mirror") for p in expected])
        np.testing.assert_allclose(smooth.values.numpy(), reference, rtol=0, atol=1e-12)
        bad = ~np.isfinite(maps).all((1, 2, 3))
        flat = np.array([(p == p.flat[0]).all() for p in expected])
        # A blur can only make more maps constant (one row, periodic); it never spoils a constant one.
        assert (sharp.degenerate.numpy() == (bad | flat)).all()
        assert (smooth.degenerate.numpy() >= (bad | flat)).all()

    check()


@pytest.mark.parametrize("transfer", list(published.TRANSFERS))
def test_continuous_maps_match_the_reference(transfer):
    maps = spread(3, (5, 3, 64, 64))
    expected = np.stack([uniform_filter(p, 7, mode="mirror") for p in picture(maps, transfer)])
    np.testing.assert_allclose(
        published.prepare(torch.from_numpy(maps), transfer).values, expected, atol=1e-13
    )


def test_heat_saturates_and_forgets_the_sign():
    """The effective transfer of facts 3.3: 4/3 |a| up to a half; at most 0.833 and 0.900."""
    levels = torch.tensor([0.25, -0.25, 0.5, -0.5, 1.0, -1.0, 0.0]).reshape(1, 1, 1, -1)
    values = published.prepare(levels, "heat", blur=False).values.flatten().tolist()
    assert values == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3, 0.8333, 0.9, 0.0], abs=0.01)


def test_zero_becomes_one_half_under_projection_and_one_under_inverse():
    zero = torch.zeros(2, 3, 8, 8)
    assert (published.prepare(zero, "projection").values == 0.5).all()
    assert (published.prepare(zero, "inverse").values == 1).all()
    for transfer in published.TRANSFERS:
        assert published.prepare(zero, transfer).degenerate.all()


def test_projection_depends_on_the_batch_and_the_others_do_not():
    maps = torch.from_numpy(spread())
    maps[1:] *= 100
    for transfer in published.TRANSFERS:
        alone = published.prepare(maps[:1], transfer).values[0]
        together = published.prepare(maps, transfer).values[0]
        assert torch.equal(alone, together) == (transfer != "projection")
    full = published.prepare(maps, "projection", batch_quantiles=(0.0, 1.0)).values[0]
    assert torch.equal(full, published.prepare(maps[:1], "projection", batch_quantiles=(0.0, 1.0)).values[0])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 20])
def test_blur_reflects_images_of_any_size(size):
    values = spread(1, (2, size, 2 * size))
    expected = np.stack([uniform_filter(v, 7, mode="mirror") for v in values])
    np.testing.assert_allclose(published.blur(torch.from_numpy(values)), expected, atol=1e-14)


def test_blur_keeps_constant_maps_constant_to_the_last_bit():
    for value in (0.1, 1 / 3, 127.3):
        blurred = published.blur(torch.full((1, 33, 17), value, dtype=torch.float64))
        assert (blurred == blurred[0, 0, 0]).all()


# --- both ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("protocol", ["sound", "published"])
def test_inputs_stay_untouched_and_results_are_float64(protocol, dtype):
    maps = (torch.from_numpy(spread()) * 3).to(dtype)
    before = maps.clone()
    prepared = PROTOCOLS.get(protocol).prepare(maps)
    prepared.values.add_(1)  # must not be a view of the input either
    assert torch.equal(maps, before)
    assert prepared.values.dtype == torch.float64
    assert prepared.values.shape == (4, 16, 16)
    assert prepared.degenerate.dtype == torch.bool


@pytest.mark.parametrize("sign", sound.SIGNS)
def test_one_channel_may_be_left_out(sign):
    maps = torch.from_numpy(spread(2, (3, 1, 8, 8)))
    assert torch.equal(sound.prepare(maps, sign).values, sound.prepare(maps[:, 0], sign).values)
    for transfer in published.TRANSFERS:
        both = (published.prepare(maps, transfer).values, published.prepare(maps[:, 0], transfer).values)
        assert torch.equal(*both)


def test_signed_single_channel_result_is_no_view_of_the_input():
    maps = torch.ones(1, 4, 4, dtype=torch.float64)
    sound.prepare(maps, "signed").values.zero_()
    published.prepare(maps, "plain", blur=False).values.zero_()
    assert (maps == 1).all()


def test_empty_batches_pass():
    for transfer in published.TRANSFERS:
        assert published.prepare(torch.zeros(0, 3, 8, 8), transfer).values.shape == (0, 8, 8)
    assert sound.prepare(torch.zeros(0, 3, 8, 8)).degenerate.shape == (0,)


def test_wrong_names_and_shapes_get_one_sentence():
    maps = torch.zeros(1, 3, 8, 8)
    with pytest.raises(InvalidParameter, match="did you mean 'positive'"):
        sound.prepare(maps, "positiv")
    with pytest.raises(InvalidParameter, match="did you mean 'projection'"):
        published.prepare(maps, "projektion")
    with pytest.raises(InvalidParameter, match="Quantiles"):
        published.prepare(maps, "projection", batch_quantiles=(0.9, 0.1))
    with pytest.raises(InvalidInput, match="shape"):
        sound.prepare(maps[0, 0])
    with pytest.raises(InvalidInput, match="complex"):
        sound.prepare(maps.to(torch.complex64))
    with pytest.raises(UnknownName, match="did you mean 'published'"):
        PROTOCOLS.get("publishd")


def test_registry_says_what_a_protocol_is():
    assert {"sound", "published", "faithfulness"} <= set(PROTOCOLS.names())
    for name in PROTOCOLS:
        protocol = PROTOCOLS.get(name)
        assert protocol.name == name
        assert protocol.description.endswith(".")
