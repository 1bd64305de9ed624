"""Conditions of numbers that a device has not computed yet, and signs that are known without a look."""

import pytest
import torch
from torch import nn

import verax
from verax.engine import signs
from verax.engine.conditions import later, once, refuse
from verax.engine.operations import Operation
from verax.errors import InvalidInput, UnsupportedOperation
from verax.methods.inputs import check_inputs, check_targets

YES, NO = torch.tensor(True), torch.tensor(False)


def test_what_is_wrong_is_said_at_once_or_when_doubts_are_settled():
    refuse(NO, ValueError)
    with pytest.raises(ValueError, match="now"):
        refuse(YES, lambda: ValueError("now"))
    with later() as doubts:
        refuse(NO, lambda: ValueError("first"))
        refuse(YES, lambda: ValueError("second"))
        refuse(YES, lambda: ValueError("third"))
    with pytest.raises(ValueError, match="second"):
        doubts.settle()
    with pytest.raises(ValueError, match="now"):  # nobody collects any more
        refuse(YES, lambda: ValueError("now"))


def test_doubts_say_more_than_what_goes_wrong_after_them():
    def failing(wrong):
        with later():
            refuse(wrong, lambda: ValueError("reason"))
            raise RuntimeError("consequence")

    with pytest.raises(ValueError, match="reason"):
        failing(YES)
    with pytest.raises(RuntimeError, match="consequence"):
        failing(NO)


def test_numbers_are_looked_at_once_while_doubts_are_collected():
    looks = []
    tensor = torch.ones(3)

    def look():
        looks.append(float(tensor.sum()))
        return looks[-1]

    assert [once(tensor, "sum", look), once(tensor, "sum", look)] == [3, 3]
    assert len(looks) == 2  # nobody collects: arrays may share its memory
    with later():
        assert [once(tensor, "sum", look), once(tensor, "sum", look)] == [3, 3]
        assert len(looks) == 3
        tensor.mul_(2)
        assert once(tensor, "sum", look) == 6
        assert once(tensor, "other", lambda: 1) == 1


def test_inputs_and_targets_that_change_are_checked_again():
    inputs, targets = torch.ones(2, 3), torch.tensor([0, 1])
    with later():
        check_inputs(inputs)
        check_targets(targets, 2, 2)
        inputs[1, 1] = torch.nan
        targets[0] = 7
        with pytest.raises(InvalidInput, match="Sample 1"):
            check_inputs(inputs)
        with pytest.raises(InvalidInput, match="Target 7"):
            check_targets(targets, 2, 2)
        with pytest.raises(InvalidInput, match="Target 7"):
            check_targets(targets, 2, 3)


class Mixing(nn.Module):
    """Outputs depend on the other samples."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x + x.flip(0))


@pytest.mark.parametrize("method", ["lrp-epsilon", "deeplift-rescale"])
def test_networks_that_mix_samples_are_refused_every_time(method):
    inputs = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    model = Mixing()
    for _ in range(2):
        with later() as doubts:
            verax.explain(model, inputs, torch.zeros(5, dtype=torch.int64), method)
        with pytest.raises(UnsupportedOperation, match="other samples"):
            doubts.settle()
    with pytest.raises(UnsupportedOperation, match="other samples"):
        verax.explain(model, inputs, torch.zeros(5, dtype=torch.int64), method)


def test_rows_that_are_alike_say_nothing_about_others_of_their_shape():
    inputs = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    model, asked = Mixing(), torch.zeros(5, dtype=torch.int64)
    with later() as doubts:  # nobody can see here that samples mix
        verax.explain(model, inputs[:1].expand(5, -1), asked, "lrp-epsilon")
    doubts.settle()
    with later() as doubts:
        verax.explain(model, inputs, asked, "lrp-epsilon")
    with pytest.raises(UnsupportedOperation, match="other samples"):
        doubts.settle()


class Turned(nn.Module):
    """Keeps samples in the last dimension for a while, so that pairs cannot share rows; mixes none."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(48, 2)

    def forward(self, x):
        return self.layer(torch.relu(x.transpose(0, 2)).transpose(0, 2).flatten(1))


@pytest.mark.parametrize("before", [[], ["lrp-epsilon"]])
def test_who_has_an_answer_to_an_error_hears_of_it_at_once(before):
    drawn = torch.Generator().manual_seed(0)
    model, inputs = Turned(), torch.rand(1, 3, 4, 4, generator=drawn)
    inputs[:, :, 0] = 0  # as many rows as references, and the first one is the same
    references, asked = torch.zeros(4, 3, 4, 4), torch.zeros(1, dtype=torch.int64)
    wanted = verax.explain(model, inputs, asked, "deep-shap", references=references)
    assert wanted.abs().sum() > 0
    for method in before:
        with later() as doubts:
            verax.explain(model, inputs, asked, method)
        doubts.settle()
    with later() as doubts:
        found = verax.explain(model, inputs, asked, "deep-shap", references=references)
    doubts.settle()
    assert torch.equal(found, wanted)


class Loud(nn.Module):
    """Mixes samples only where one of them is loud."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        y = torch.relu(self.layer(x))
        return y / y.abs().amax().clamp_min(1)


def test_a_network_that_mixes_in_its_last_chunk_is_refused_every_time():
    inputs = 0.01 * torch.rand(8, 4, generator=torch.Generator().manual_seed(0))
    inputs[6] = 100
    model = Loud()
    with torch.no_grad():
        model.layer.weight.copy_(torch.eye(2, 4) + 0.1)
        model.layer.bias.fill_(0.1)
    for method in ("guided-backprop", "guided-backprop", "deconvnet"):
        with later() as doubts:
            verax.explain(model, inputs, torch.zeros(8, dtype=torch.int64), method, batch_size=4)
        with pytest.raises(UnsupportedOperation, match="other samples"):
            doubts.settle()


def noted(function, *args, **kwargs):
    made = function(*args, **kwargs)
    signs.note(Operation.parse(function, args, kwargs), made)
    return made


def test_signs_are_known_by_the_calls_that_made_them():
    drawn = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert not signs.known(drawn)
    positive = noted(torch.relu, drawn)
    assert signs.known(positive)
    for function, more in [
        (torch.nn.functional.max_pool2d, (2,)),
        (torch.nn.functional.adaptive_avg_pool2d, (2,)),
        (torch.flatten, (1,)),
    ]:
        kept = noted(function, positive, *more)
        assert signs.known(kept), function
        assert not signs.known(noted(function, drawn, *more)), function
        assert bool((kept >= 0).all())
    divided = noted(torch.nn.functional.avg_pool2d, positive, 2, divisor_override=-1)
    assert bool((divided < 0).any())
    assert not signs.known(divided)
    assert not signs.known(noted(torch.neg, positive))
    opened = noted(torch.relu, drawn)
    noted(torch.Tensor.detach, opened)  # who writes through it leaves no trace
    assert not signs.known(opened)
    opened = noted(torch.relu, drawn)
    noted(torch.Tensor.data.__get__, opened)
    assert not signs.known(opened)
    for opening in (torch.Tensor.__array__, torch.Tensor.__dlpack__):
        opened = noted(torch.relu, drawn)
        noted(opening, opened)
        assert not signs.known(opened), opening
    opened = noted(torch.relu, drawn)
    noted(torch.detach, input=opened)  # named arguments
    assert not signs.known(opened)
    older = positive._version
    positive.sub_(1)
    assert not signs.known(positive)
    assert signs.known(positive, older)


def part(y):
    noted(torch.Tensor.data.__get__, noted(torch.Tensor.__getitem__, y, (slice(None), slice(0, 1)))).neg_()
    return y


def whole(y):
    view = noted(torch.Tensor.reshape, y, (-1,))
    assert signs.known(view)
    noted(torch.Tensor.data.__get__, y).sub_(5)
    return view


def array(y):
    noted(torch.Tensor.numpy, noted(torch.Tensor.detach, noted(torch.Tensor.view, y, -1)))[:] = -1
    return y


def memory(y):
    noted(torch.Tensor.untyped_storage, y).fill_(255)
    return y


@pytest.mark.parametrize("write", [part, whole, array, memory])
def test_nothing_is_known_of_what_may_be_written_through_another_name(write):
    drawn = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    y = noted(torch.relu, drawn)
    assert signs.known(y)
    found = write(y)
    assert not bool((found >= 0).all())
    assert not signs.known(found)


def test_nothing_is_known_of_what_was_opened_before():
    h = torch.randn(2, 3)
    opened = noted(torch.Tensor.data.__get__, h)
    y = noted(torch.relu_, h)
    opened.sub_(5)
    assert not signs.known(y)


def test_named_arguments_and_results_that_are_no_tensor_tell_nothing():
    drawn = torch.randn(2, 3, 8, 8)
    noted(torch.flatten, input=drawn, start_dim=1)
    noted(torch.nn.functional.max_pool2d, drawn, 2, return_indices=True)


@pytest.mark.parametrize("method", ["lrp-alpha2beta1", "lrp-a@published", "lrp-b@published", "lrp-gamma"])
def test_rules_give_the_same_whether_signs_are_known_or_not(method, monkeypatch):
    """As on a GPU, which is not asked for signs that are not known."""
    drawn = torch.Generator().manual_seed(0)
    features = nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3), nn.ReLU()
    model = nn.Sequential(*features, nn.Flatten(), nn.Linear(80, 3))
    for weight in model.parameters():
        weight.data = torch.randn(weight.shape, generator=drawn)
    inputs = torch.randn(4, 3, 14, 14, generator=drawn)
    targets = torch.tensor([0, 1, 2, 0])
    usual = verax.explain(model, inputs, targets, method)
    kinds = []

    def both(call, positive, negative):
        kinds.append(signs.known(call.source, call.version))
        x = call.value
        return [(x.clamp_min(0), positive()), (x.clamp_max(0), negative())]

    monkeypatch.setattr("verax.engine.rules._signed", both)
    always = verax.explain(model, inputs, targets, method)
    torch.testing.assert_close(always, usual, rtol=1e-4, atol=1e-5 * float(usual.abs().max()))
    assert True in kinds  # behind a ReLU


@pytest.mark.parametrize("method", ["lrp-epsilon", "lrp-z", "deeplift-reveal-cancel"])
def test_numbers_beyond_the_precision_are_what_they_are_in_the_network(method):
    class Large(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            return (self.layer(x) + 1e39).clamp(-1, 1)

    found = verax.explain(Large(), torch.rand(2, 4), torch.tensor([0, 1]), method)
    assert found.shape == (2, 4)
