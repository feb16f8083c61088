"""Scores of class activation maps, called as the metrics of pytorch-grad-cam are."""

import inspect

import numpy as np
import pytest
from pytorch_grad_cam import GradCAM
from pytorch_grad_cam.metrics.perturbation_confidence import PerturbationConfidenceMetric, RemoveMostRelevantFirst
from pytorch_grad_cam.metrics.road import NoisyLinearImputer
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget, SemanticSegmentationTarget

import twinlens as tl
from tests.integrations.conftest import FEW, LEVELS
from twinlens.integrations import grad_cam


@pytest.fixture
def targets(labels):
    return [ClassifierOutputTarget(label) for label in labels.tolist()]


OURS = [
    (grad_cam.Soundness(**FEW), tl.Soundness(estimator="rank", **FEW)),
    (grad_cam.Soundness(estimator="paper", **LEVELS), tl.Soundness(**LEVELS)),
    (grad_cam.Completeness(), tl.Completeness(estimator="share")),
    (grad_cam.Completeness(estimator="paper"), tl.Completeness(performance="probability")),
    (grad_cam.Road(), tl.Road(performance="probability")),
    (grad_cam.Road(order="lerf", performance="accuracy"), tl.Road(order="lerf")),
    (grad_cam.Deletion(), tl.Deletion(performance="probability")),
    (grad_cam.Insertion(), tl.Insertion(performance="probability")),
]


@pytest.mark.parametrize(("theirs", "ours"), OURS)
def test_scores_are_ours(model, images, labels, maps, targets, theirs, ours):
    scores = theirs(images, maps, targets, model)
    np.testing.assert_array_equal(
        scores, tl.metrics.measure_metric(ours, model, images, labels, maps).area_per_sample()
    )


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")  # in pytorch-grad-cam
def test_road_is_theirs_where_maps_have_no_ties_and_there_is_no_noise(model, images, maps, targets):
    """Most relevant first, one level, in logits: pytorch-grad-cam returns the change, which is the loss negated."""
    reference = PerturbationConfidenceMetric(RemoveMostRelevantFirst(75, NoisyLinearImputer(noise=0)))
    exact = tl.LinearImputer(noise=0.0, tolerance=1e-6)
    road = grad_cam.Road(levels=(0.25,), performance="logit", imputer=exact)
    np.testing.assert_allclose(road(images, maps, targets, model), -reference(images, maps, targets, model), atol=1e-5)


def test_hooks_of_cams_collect_nothing_meanwhile(model, images, targets):
    cam = GradCAM(model=model, target_layers=[model[0]])
    grayscale_cams = cam(input_tensor=images, targets=targets)
    kept = len(cam.activations_and_grads.activations)
    before = grad_cam.Deletion()(images, grayscale_cams, targets, model)
    assert len(cam.activations_and_grads.activations) == kept
    np.testing.assert_array_equal(cam(input_tensor=images, targets=targets), grayscale_cams)  # hooks are back
    cam.activations_and_grads.release()
    np.testing.assert_array_equal(grad_cam.Deletion()(images, grayscale_cams, targets, model), before)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "`targets` must hold one target for each of the 6 images.*got None"),
        ([ClassifierOutputTarget(0)], "for each of the 6 images.*got 1 of them"),
        ([SemanticSegmentationTarget(0, np.ones((8, 8)))] * 6, "class of the whole image.*SemanticSegmentationTarget"),
        ([lambda output: output.sum()] * 6, "`targets` must each name a class"),
    ],
)
def test_targets_that_name_no_class_are_refused(model, images, maps, wrong, message):
    with pytest.raises((ValueError, TypeError), match=message):
        grad_cam.Deletion()(images, maps, wrong, model)


def test_classes_may_be_numbers_of_any_kind(model, images, labels, maps, targets):
    for kind in (list(labels), list(labels.numpy())):
        found = grad_cam.Deletion()(images, maps, [ClassifierOutputTarget(label) for label in kind], model)
        np.testing.assert_array_equal(found, grad_cam.Deletion()(images, maps, targets, model))


def test_options_are_listed_and_refused_by_name():
    assert "epsilon" in inspect.signature(grad_cam.Soundness).parameters
    assert "epsilon: a step that gains less" in grad_cam.Soundness.__doc__
    with pytest.raises(TypeError, match="Did you mean 'levels'"):
        grad_cam.Road(level=0.1)
    with pytest.raises(ValueError, match="`performance` must be one that each sample has"):
        grad_cam.Road(performance="balanced_accuracy")
