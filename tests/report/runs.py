"""Runs so small that reports of them take moments."""

import base64
import dataclasses
import io
import json
import re
from functools import cache

import numpy as np
from PIL import Image

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.data.samples import from_arrays
from twinlens.evaluation import evaluate
from twinlens.models.loading import LoadedModel
from twinlens.models.preprocessing import Preprocessing
from twinlens.support.estimate import Estimate

LEVELS = (0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
OPTIONS = {
    "batch_size": 16,
    "memory_format": "contiguous",
    "shard_size": 4,
    "resamples": 60,
    "metrics": "all",
    "protocol": dataclasses.replace(tl.metrics.PROTOCOLS["paper"], levels=LEVELS),
}
METHODS = ("saliency", "sobel", "random")
EVIL = "<script>alert('x')</script>\u202e\u2028\"&\\ 🐈 \u05d0"


def image_samples(n=12, size=10, seed=0):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 120, size=(n, size, size, 3), dtype=np.uint8)
    labels = np.arange(n) % 3
    for i, k in enumerate(labels):
        pixels[i, ..., k] += 130
    return from_arrays(pixels, labels)


def loaded(name="tiny", module=None):
    preprocessing = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.25, 0.25, 0.25))
    return LoadedModel(name=name, module=module or tiny_model(), preprocessing=preprocessing)


def make_run(path, *, samples=None, model=None, methods=METHODS, **options):
    given_samples, subject = image_samples() if samples is None else samples, model or loaded()
    return evaluate(subject, given_samples, methods, out=path, **{**OPTIONS, **options})


@cache
def shared_run(folder):
    """One run for all tests of a session that only read it.

    Its performance is the probability, which differs from level to level where the tiny model's predictions stay.
    """
    return make_run(folder / "shared" / "run", performance="probability")


def changed(evaluation, **entries):
    """The same run with other entries in its results."""
    return dataclasses.replace(evaluation, results=dataclasses.replace(evaluation.results, **entries))


def with_curve(evaluation, method, metric, **entries):
    """The methods of a run with other entries in one curve."""
    methods = dict(evaluation.results.methods)
    curves = dict(methods[method].metrics)
    curves[metric] = dataclasses.replace(curves[metric], **entries)
    methods[method] = dataclasses.replace(methods[method], metrics=curves)
    return changed(evaluation, methods=methods)


SKILLS = {
    "saliency": {"soundness_rank": (0.21, 0.05), "completeness_share": (0.12, 0.04)},
    "sobel": {"soundness_rank": (0.14, 0.06), "completeness_share": (-0.03, 0.05)},
    "random": {"soundness_rank": (-0.00001, 0.02), "completeness_share": (-0.05, 0.03)},
}
SIGNS = {"better": "▲", "undecided": "≈", "worse": "▼"}


def direction(skill, reach):
    """What the interval of a skill says."""
    return "better" if skill > reach else "worse" if skill < -reach else "undecided"


def with_skills(evaluation, skills=SKILLS):
    """A run whose methods have these skills, each with the reach of its interval."""
    for method, own in skills.items():
        for metric, (skill, reach) in own.items():
            area = evaluation.results.area(method, metric)
            control = Estimate(value=area - skill, samples=5)
            estimate = Estimate(value=skill, low=skill - reach, high=skill + reach, p=0.25, samples=5)
            evaluation = with_curve(evaluation, method, metric, control=control, skill=estimate)
    return evaluation


def without_control(evaluation):
    """The same run without any exchanged maps."""
    for method, found in evaluation.results.methods.items():
        for metric in found.metrics:
            evaluation = with_curve(evaluation, method, metric, control=None, skill=None)
    return evaluation


def with_areas(evaluation, points, metrics=("soundness_rank", "completeness_share")):
    """A run whose methods have these areas of soundness and completeness, and no control."""
    [first, *_] = evaluation.results.methods.values()
    methods = {
        name: dataclasses.replace(
            first,
            metrics={
                metric: dataclasses.replace(
                    first.metrics[metric], area=Estimate(value=area, samples=10), control=None, skill=None
                )
                for metric, area in zip(metrics, areas, strict=False)
            },
        )
        for name, areas in points.items()
    }
    return changed(evaluation, methods=methods, advice={})


def content_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="content">(.*?)</script>', text, re.S)[1])


def decoded(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB"))


def on_the_plane(evaluation, points):
    """A run whose methods stand at these points of its plane, without control."""
    [first, *_] = evaluation.results.methods.values()
    made = changed(evaluation, methods=dict.fromkeys(points, first), advice={})
    for method, areas in points.items():
        for metric, area in zip(evaluation.results.plane, areas, strict=True):
            made = with_curve(made, method, metric, area=Estimate(value=area, samples=10), control=None, skill=None)
    return made
