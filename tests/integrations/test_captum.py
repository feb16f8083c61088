"""Scores of Captum's attributions, in the few lines that a person would write."""

import inspect

import pytest
import torch
from captum.attr import IntegratedGradients, LayerGradCam
from torch import nn

import twinlens as tl
from tests.integrations.conftest import FEW, LEVELS
from twinlens.integrations import captum

READ = {"sign": "positive", "channels": "sum"}
OURS = {
    "soundness": (captum.soundness, tl.Soundness(estimator="rank", **FEW), FEW),
    "completeness": (captum.completeness, tl.Completeness(estimator="share"), {}),
    "completeness (paper)": (
        captum.completeness,
        tl.Completeness(performance="probability"),
        {"estimator": "paper"},
    ),
    "road": (captum.road, tl.Road(performance="probability"), {}),
    "deletion": (captum.deletion, tl.Deletion(performance="probability"), {}),
    "insertion": (captum.insertion, tl.Insertion(performance="probability"), {}),
}


@pytest.fixture
def attributions(model, images, labels):
    return IntegratedGradients(model).attribute(images, target=labels)


@pytest.mark.parametrize("kind", OURS)
def test_scores_are_ours(model, images, labels, attributions, kind):
    function, metric, options = OURS[kind]
    scores = function(model, images, attributions, target=labels, **READ, **options)
    expected = tl.metrics.measure_metric(metric, model, images, labels, attributions, **READ).area_per_sample()
    assert scores.shape == (6,)
    assert scores.dtype == images.dtype
    torch.testing.assert_close(scores, torch.from_numpy(expected).float())


def test_what_signs_and_channels_mean_has_to_be_said(model, images, labels, attributions):
    with pytest.raises(ValueError, match=r"`maps` have 3 channels.*channels='sum'"):
        captum.soundness(model, images, attributions, target=labels)
    with pytest.raises(ValueError, match=r"negative.*sign='positive' drops them"):
        captum.soundness(model, images, attributions, target=labels, channels="sum")


def test_coarse_attributions_are_resized_where_that_is_said(model, images, labels):
    coarse = LayerGradCam(model, model[0]).attribute(images, target=labels)[:, :, ::2, ::2]
    with pytest.raises(ValueError, match="resize='bilinear'"):
        captum.deletion(model, images, coarse, target=labels, sign="positive")
    assert captum.deletion(model, images, coarse, target=labels, sign="positive", resize="bilinear").shape == (6,)


def test_a_score_depends_on_its_example_alone(model, images, labels, attributions):
    together = captum.soundness(model, images, attributions, target=labels, **READ, **FEW)
    few = slice(2, 4)
    apart = captum.soundness(model, images[few], attributions[few], target=labels[few], ids=[2, 3], **READ, **FEW)
    torch.testing.assert_close(apart, together[few])


def test_the_papers_accuracy_judges_the_examples_of_a_call_together(model, images, labels, attributions):
    scores = captum.soundness(model, images, attributions, target=labels, estimator="paper", **READ, **LEVELS)
    expected = tl.soundness(model, images, labels, attributions, **READ, **LEVELS).area_per_sample()
    torch.testing.assert_close(scores, torch.from_numpy(expected).float())


class Shifted(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.dropout = nn.Dropout(0.9)

    def forward(self, images, shift, scale):
        return self.dropout(scale * self.model(images) + shift)


def test_additional_arguments_go_with_their_example(model, images, labels, maps):
    """A shift of the logits by sample, as if each had a model of its own; in training mode, which is put back."""
    shift, shifted = torch.randn(6, 3), Shifted(model).train()
    scores = captum.completeness(
        shifted, images, torch.from_numpy(maps), target=labels, additional_forward_args=(shift, 2.0)
    )
    assert shifted.training
    for k in range(6):
        own = tl.completeness(
            lambda x, k=k: 2 * model(x) + shift[k],
            images[k : k + 1],
            labels[k : k + 1],
            maps[k : k + 1],
            ids=[k],
            estimator="share",
        )
        assert scores[k].item() == pytest.approx(own.area_per_sample()[0], abs=1e-6)


def test_one_class_for_all_and_tuples(model, images, maps):
    scores = captum.deletion(model, (images,), (torch.from_numpy(maps),), target=1)
    torch.testing.assert_close(scores, captum.deletion(model, images, torch.from_numpy(maps), target=[1] * 6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "`target` must be a class.*got None"),
        ({"target": [0, 1]}, "one class for each of the 6 examples"),
        ({"target": [(0, 1)] * 6}, "`target` must be a class"),
        ({"target": torch.rand(6)}, "`target` must be a class"),
        ({"target": [0, 0, 0, 0, 0, 0, None]}, "one class for each of the 6 examples"),
        ({"inputs": (torch.ones(6, 1), torch.ones(6, 1))}, "`inputs` must be one tensor.*a tuple of 2"),
        ({"additional_forward_args": torch.ones(5)}, r"`additional_forward_args` must have one row.*\(5,\)"),
        ({"performance": "balanced_accuracy"}, "`performance` must be one that each sample has.*'balanced_accuracy'"),
        ({"performance": lambda table: table.correct.mean(axis=0)}, "`performance` must be one that each sample has"),
        ({"level": (0.1,)}, "`options` must be one of .*Did you mean 'levels'"),
    ],
)
def test_refusals(model, images, labels, maps, change, message):
    call = {"inputs": images, "attributions": torch.from_numpy(maps), "target": labels, **change}
    with pytest.raises((ValueError, TypeError), match=message):
        captum.deletion(model, **call)


def test_help_lists_every_option():
    assert {"epsilon", "estimator", "sign", "channels", "seed", "ids"} <= set(
        inspect.signature(captum.soundness).parameters
    )
    assert inspect.signature(captum.soundness).parameters["estimator"].default == "rank"
    assert "epsilon: a step that gains less" in captum.soundness.__doc__
    assert "options" not in captum.soundness.__doc__
