"""What the fuzz suite found, and what a person can do about it: refused in one line that names the argument."""

import dataclasses
import sys

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.models.loading import load_model

INPUTS, LABELS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
MAPS = INPUTS[:, 0].abs()


def ending(*_, **__):
    sys.exit(7)


TABLE = tl.probe(
    tiny_model(), INPUTS, LABELS, MAPS, schedule=tl.probing.Schedule(by="area", order="lerf", levels=(0.9, 0.5))
)


CURVE = tl.completeness(tiny_model(), INPUTS, LABELS, MAPS, thresholds=(0.5,), performance="probability")


CEILING = tl.checks.ceiling(tiny_model(), INPUTS, LABELS, width=1, orders=1, segments=(MAPS > 0.5).long())
HUGE, ROWS = 10**40, (torch.nn.Linear(5, 3), torch.ones(4, 5))


class Complex(torch.nn.Module):
    """Answers with complex numbers."""

    def __init__(self):
        super().__init__()
        self.inner = tiny_model()

    def forward(self, x):
        return self.inner(x).to(torch.complex64)


def explain(method, **changed):
    return tl.METHODS[method](**{"model": tiny_model(), "inputs": INPUTS, "targets": LABELS} | changed)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        # options of methods: types, counts and numbers beyond reason, arrays of other shapes
        ("steps", lambda: explain("integrated_gradients", steps=HUGE)),
        ("steps", lambda: explain("integrated_gradients", steps=1.5)),
        ("samples", lambda: explain("ig_sg", samples=2**31)),
        ("variance", lambda: explain("ig_sg", variance="x")),
        ("baseline", lambda: explain("integrated_gradients", baseline="x")),
        ("baseline", lambda: explain("deeplift", baseline=float("inf"))),
        ("background", lambda: explain("deepshap", background=range(10**12))),
        ("sigma", lambda: explain("iba", sigma=1e300)),
        ("sigma", lambda: explain("iba", sigma=1e-300)),
        ("lr", lambda: explain("extremal_perturbation", lr=-1e300)),
        ("layer", lambda: explain("gradcam", layer=[])),
        ("ids", lambda: explain("random", ids=range(10**12))),
        ("ids", lambda: explain("random", ids=np.array(3))),
        ("seed", lambda: explain("random", seed={})),
        ("targets", lambda: explain("saliency", targets=LABELS[:1])),
        ("inputs", lambda: explain("sobel", inputs=INPUTS.double() * 1e300)),
        ("coalitions", lambda: explain("kernel_shap", model=ROWS[0], inputs=ROWS[1], coalitions="x")),
        ("background", lambda: explain("kernel_shap", model=ROWS[0], inputs=ROWS[1], background=[1, 2])),
        # models and functions of the caller's
        ("model", lambda: explain("saliency", model=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(7, 3)))),
        ("model", lambda: explain("ig_var", model=torch.nn.Module())),
        ("model", lambda: explain("rise", model=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(3)))),
        ("model", lambda: explain("random", model=tiny_model().to("meta"))),
        ("model", lambda: tl.deletion(lambda: None, INPUTS, LABELS, MAPS)),
        ("model", lambda: tl.checks.model_randomisation(tiny_model(), INPUTS[..., None], LABELS)),
        ("method", lambda: tl.attribute(tiny_model(), INPUTS, LABELS, lambda *_, **__: MAPS * torch.nan)),
        ("method", lambda: tl.checks.model_randomisation(tiny_model(), INPUTS, LABELS, lambda *_, **__: MAPS[:1])),
        ("imputer", lambda: tl.deletion(tiny_model(), INPUTS, LABELS, MAPS, imputer=lambda: None)),
        ("performance", lambda: tl.soundness_from_probes(TABLE, performance=ending)),
        ("performance", lambda: tl.soundness_from_probes(TABLE, performance=lambda a, b: a)),
        ("build", lambda: tl.checks.roar(lambda: 3, (INPUTS, LABELS), (INPUTS, LABELS), "random")),
        ("test_data", lambda: tl.checks.roar(tiny_model, (INPUTS, LABELS), 3, "random")),
        ("targets", lambda: tl.checks.sensitivity_n(tiny_model(), INPUTS, [-1] * 4, MAPS)),
        ("imputer", lambda: tl.checks.fine_tuned(tiny_model(), (INPUTS, LABELS), imputer=lambda *_: "x")),
        ("imputer", lambda: tl.checks.fine_tuned(tiny_model(), (INPUTS, LABELS), imputer=lambda x, *_: x.to("meta"))),
        ("imputer", lambda: tl.checks.fine_tuned(tiny_model(), (INPUTS, LABELS), imputer=lambda x, *_: x[0])),
        ("model", lambda: tl.checks.fine_tuned(tiny_model()[:1], (INPUTS, LABELS))),
        ("model", lambda: tl.checks.fine_tuned(Complex(), (INPUTS, LABELS))),
        ("build", lambda: tl.checks.roar(Complex, (INPUTS, LABELS), (INPUTS, LABELS), "random")),
        ("tokenizer", lambda: tl.data.from_arrays(INPUTS, LABELS, tokenizer={1: None})),
        ("ids", lambda: dataclasses.replace(CEILING, ids=("a",))),
        ("metrics", lambda: tl.laboratory.selftest(tiny_model(), INPUTS, LABELS, MAPS, metrics=[])),
        ("retrainings", lambda: tl.checks.roar(tiny_model, *[(INPUTS, LABELS)] * 2, "random", retrainings=2**64)),
        # imputers, schedules, protocols
        ("sigma", lambda: tl.BlurImputer(sigma="x")),
        ("sigma", lambda: tl.BlurImputer(sigma=1e300)),
        ("value", lambda: tl.ConstantImputer([1, 2])),
        ("value", lambda: tl.ConstantImputer(1e300)),
        ("noise", lambda: tl.LinearImputer(noise=HUGE)),
        ("mean", lambda: tl.MeanImputer(b"x")),
        ("mean", lambda: tl.MeanImputer(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))),
        ("keep", lambda: tl.impute_linear(INPUTS, (MAPS > 0).to_sparse())),
        ("levels", lambda: tl.probing.Schedule(by="area", order="lerf", levels=3)),
        ("mass_offset", lambda: dataclasses.replace(tl.metrics.PROTOCOLS["soco"], mass_offset=[1])),
        ("score", lambda: dataclasses.replace(tl.metrics.PROTOCOLS["soco"], score="x")),
        ("cpus_per_unit", lambda: tl.run.Cluster(cpus_per_unit="x")),
        ("steps", lambda: tl.Soundness(estimator="rank", steps=-HUGE)),
        # tables, curves and statistics
        ("table", lambda: tl.soundness_from_probes(None)),
        ("curve", lambda: tl.bootstrap(3)),
        ("resamples", lambda: tl.bootstrap(CURVE, resamples=HUGE)),
        ("exchanged", lambda: tl.skill(CURVE, None)),
        ("baselines", lambda: tl.compare({"a": {"c": CURVE}, "b": {"c": CURVE}}, baselines=np.array(3))),
        ("maps", lambda: tl.probing.exchange_maps(3.0, LABELS)),
        ("labels", lambda: tl.probing.exchange_maps(MAPS, LABELS * torch.nan)),
        ("maps", lambda: tl.laboratory.remove_attribution(MAPS.to(torch.complex64))),
        ("maps", lambda: tl.deletion(tiny_model(), INPUTS, LABELS, np.full((4, 8, 8), 2**64 - 1, dtype=np.uint64))),
        # models, data and runs
        ("preprocessing", lambda: load_model("mnist-cnn", weights="none", preprocessing=3.0)),
        ("data", lambda: tl.evaluate(tiny_model(), 3, ["random"])),
        ("ids", lambda: tl.data.from_arrays(INPUTS, LABELS, ids=len)),
        ("labels", lambda: tl.data.from_arrays(INPUTS, LABELS.float().to(torch.float8_e4m3fn))),
        ("path", lambda: tl.open_evaluation("\0")),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning", "ignore:Lazy modules:UserWarning")
def test_what_the_fuzz_suite_found(name, call):
    with pytest.raises((ValueError, TypeError), match=f"`{name}`") as raised:
        call()
    assert len(str(raised.value).splitlines()) == 1


class Branching(torch.nn.Module):
    """Runs one operation more for inputs than for a baseline of zeros."""

    def __init__(self):
        super().__init__()
        self.inner = tiny_model()

    def forward(self, x):
        answer = self.inner(x)
        return answer.relu() if x.any() else answer


class Padded(torch.nn.Module):
    """Attention over the places of a feature map, with a padding mask."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = torch.nn.MultiheadAttention(3, 1, batch_first=True), torch.nn.Linear(3, 3)

    def forward(self, x):
        places = x.flatten(2).transpose(1, 2)
        absent = torch.zeros(places.shape[:2], dtype=torch.bool)
        return self.head(self.attention(places, places, places, absent, need_weights=False)[0].mean(dim=1))


def regress(performance):
    return tl.deletion(lambda x: x.sum(dim=(1, 2, 3)), INPUTS, [1.5] * 4, MAPS, performance=performance)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: explain("deeplift", model=Branching()), "`model` must run the same operations for every input"),
        (lambda: explain("lrp", model=Padded()), r"attention with extra keys or a padding mask.* Use integrated_grad"),
        (lambda: explain("attention_rollout", model=Padded()), "attention with extra keys or a padding mask"),
        (lambda: explain("kernel_shap", model=ROWS[0], inputs=ROWS[1], targets=[0, 1, 2, 3]), "with class 3 among"),
        (lambda: tl.evaluate(tiny_model(), ({"attention_mask": LABELS[None]}, [0]), ["random"]),
         r"`inputs` must hold 'input_ids' and 'attention_mask'; got \['attention_mask'\]"),
        (lambda: tl.evaluate(tiny_model(), (INPUTS, LABELS), ["random"], maps={"random": MAPS}),
         "`maps` and `methods` must have different names; 'random' is in both"),
        (lambda: tl.evaluate(tiny_model(), (INPUTS, LABELS), ["random"], preprocessing={"center": 3}),
         "`preprocessing` must be one of resize, crop, .* got 'center'"),
        (lambda: regress("r2"), "'r2' and 'neg_mse' need labels that differ; all labels are equal"),
        (lambda: regress("neg_mse"), "'r2' and 'neg_mse' need labels that differ; all labels are equal"),
        (lambda: tl.deletion(tiny_model(), INPUTS, LABELS, MAPS, protocol="papre"),
         "`protocol` must be one of paper, soco, or a Protocol; got 'papre'. Did you mean 'paper'?"),
        (lambda: dataclasses.replace(tl.metrics.PROTOCOLS["soco"], count_offset=1.0),
         r"`count_offset` must lie within \[0, 1\); got 1.0"),
        (lambda: dataclasses.replace(tl.metrics.PROTOCOLS["soco"], mass_offset=-1e-9), "`mass_offset` must lie within"),
    ],
)  # fmt: skip
def test_what_a_person_can_do_about_it_is_said(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_numbers_of_unusual_types_are_taken():
    wide = MAPS.numpy().astype(np.longdouble)
    assert torch.equal(tl.probing.exchange_maps(wide, LABELS), tl.probing.exchange_maps(MAPS.double(), LABELS))
    assert tl.data.from_arrays(INPUTS.bfloat16(), LABELS).read(0).dtype == np.float32
    assert explain("integrated_gradients", steps=np.int8(3), baseline=0).shape == MAPS.shape
