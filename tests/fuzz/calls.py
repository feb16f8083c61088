"""Public functions and classes: one valid call of each, of which one or two arguments are replaced by nasty values.

Whoever adds a public name adds a valid call of it here; a test holds that.
"""

from __future__ import annotations

import inspect
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

import twinlens as tl
from tests.fuzz.values import ARRAYS, FUNCTIONS, MODELS, PLAIN, OwnError
from tests.tiny import TinyTransformer, tiny_model
from twinlens.models.training import Training

FEW = {"levels": (0.9, 0.5, 0.1)}
OPTIONS: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 3},
    "ig_sg": {"steps": 2, "samples": 2},
    "ig_sq": {"steps": 2, "samples": 2},
    "ig_var": {"steps": 2, "samples": 2},
    "deepshap": {"samples": 2},
    "smoothgrad": {"samples": 2},
    "gradient_shap": {"samples": 2},
    "attention_rollout": {"model": TinyTransformer()},
    "gradient_attention": {"model": TinyTransformer()},
    "attn_lrp": {"model": TinyTransformer()},
    "occlusion": {"window": 4, "stride": 4},
    "rise": {"masks": 10, "cells": 3},
    "extremal_perturbation": {"steps": 3},
    "iba": {"steps": 2, "noise": 2},
    "input_iba": {"steps": 2, "noise": 2, "rounds": 1, "critic_steps": 1, "critic_noise": 2, "feature_steps": 2},
    "kernel_shap": {"coalitions": 20, "model": nn.Linear(5, 3), "inputs": torch.arange(20.0).reshape(4, 5)},
}
"""Options of methods that would take long with their own."""


@dataclass(frozen=True)
class Call:
    """A valid call."""

    function: Callable[..., Any]
    given: Mapping[str, Any]
    then: Callable[[Any], Any] = field(default=lambda made: made)
    """Uses what was made, so that a mistake in it comes to light."""


class Subject:
    """What valid calls are made of: a model, samples, maps, tables, curves, and a run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run = folder, folder / "run"
        random = torch.Generator().manual_seed(5)
        self.model, self.inputs = tiny_model(), torch.randn(4, 3, 8, 8, generator=random)
        self.labels, self.maps = torch.tensor([0, 1, 2, 0]), torch.rand(4, 8, 8, generator=random)
        self.keep = self.maps > 0.4
        self.subject = {"model": self.model, "inputs": self.inputs, "labels": self.labels, "maps": self.maps}
        self.explained = {"model": self.model, "inputs": self.inputs, "targets": self.labels}
        self.table = tl.probe(**self.subject, schedule=self.schedule(FEW["levels"]))
        falling = tl.probing.Schedule(by="value", order="morf", levels=(1.0, 0.5, 0.1))
        self.by_value = tl.probe(**self.subject, schedule=falling)
        self.by_rank = tl.probe(
            **self.subject, schedule=tl.probing.Schedule(by="area", order="morf", levels=(0.0, 0.5, 0.9))
        )
        self.curve = tl.completeness_from_probes(self.by_value, performance="probability")
        exchanged = tl.probe(**self.subject | {"maps": self.maps.roll(1, 0)}, schedule=falling)
        self.other = tl.completeness_from_probes(exchanged, performance="probability")

    @staticmethod
    def schedule(levels):
        return tl.probing.Schedule(by="area", order="lerf", levels=levels)

    @cached_property
    def evaluation(self):
        return tl.open_evaluation(self.run)

    @cached_property
    def judged(self):
        """A run with a measure of soundness."""
        options = {"batch_size": 4, "memory_format": "contiguous", "resamples": 9, "progress": False}
        metrics = [tl.Soundness(estimator="rank", steps=4)]
        return tl.evaluate(self.model, (self.inputs, self.labels), ["random"], metrics=metrics,
                           out=self.folder / "judged", **options)  # fmt: skip

    def fresh_run(self) -> Path:
        """Copy the run to where a case may write."""
        shutil.rmtree(self.folder / "new", ignore_errors=True)
        return Path(shutil.copytree(self.run, self.folder / "new"))


def _fields(value: object) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(value)}


def _curve(s: Subject, metric: tl.Metric) -> Any:
    return tl.metrics.measure_metric(metric, **s.subject)


CALLS: dict[str, Callable[[Subject], Call]] = {
    # imputers
    "BlurImputer": lambda s: Call(tl.BlurImputer, {"sigma": 2.0}, lambda i: i(s.inputs, s.keep, range(4))),
    "TokenImputer": lambda s: Call(
        tl.TokenImputer, {"mask_id": 3, "special": (0, 1)}, lambda i: i((s.inputs[:, 0] > 0).long(), s.keep, range(4))
    ),
    "ConstantImputer": lambda s: Call(tl.ConstantImputer, {"value": 1.0}, lambda i: i(s.inputs, s.keep, range(4))),
    "LinearImputer": lambda s: Call(tl.LinearImputer, {"noise": 0.1}, lambda i: i(s.inputs, s.keep, range(4))),
    "MeanImputer": lambda s: Call(tl.MeanImputer, {"mean": s.inputs[0]}, lambda i: i(s.inputs, s.keep, range(4))),
    "impute_linear": lambda s: Call(tl.impute_linear, {"images": s.inputs, "keep": s.keep}),
    # metrics, and what they are made of
    "Soundness": lambda s: Call(tl.Soundness, FEW, lambda m: _curve(s, m)),
    "Completeness": lambda s: Call(tl.Completeness, {"thresholds": (0.5, 0.1)}, lambda m: _curve(s, m)),
    "Calibration": lambda s: Call(tl.Calibration, {"steps": 4}, lambda m: _curve(s, m)),
    "Road": lambda s: Call(tl.Road, {"levels": (0.5, 0.9)}, lambda m: _curve(s, m)),
    "RoadGain": lambda s: Call(tl.RoadGain, {"levels": (0.5, 0.9)}, lambda m: _curve(s, m)),
    "Deletion": lambda s: Call(tl.Deletion, {"levels": (0.5, 0.9)}, lambda m: _curve(s, m)),
    "Insertion": lambda s: Call(tl.Insertion, {"levels": (0.5, 0.9)}, lambda m: _curve(s, m)),
    "Schedule": lambda s: Call(
        tl.probing.Schedule,
        {"by": "area", "order": "morf", "levels": (0.5,)},
        lambda made: tl.probe(**s.subject, schedule=made),
    ),
    "Protocol": lambda s: Call(
        tl.metrics.Protocol,
        _fields(tl.metrics.PROTOCOLS["soco"]),
        lambda made: tl.soundness_from_probes(s.table, protocol=made),
    ),
    "soundness": lambda s: Call(tl.soundness, s.subject | FEW),
    "completeness": lambda s: Call(tl.completeness, s.subject | {"thresholds": (0.5, 0.1)}),
    "road": lambda s: Call(tl.road, s.subject | {"levels": (0.5, 0.9)}),
    "deletion": lambda s: Call(tl.deletion, s.subject | {"levels": (0.5, 0.9)}),
    "insertion": lambda s: Call(tl.insertion, s.subject | {"levels": (0.5, 0.9)}),
    "measure_metric": lambda s: Call(tl.metrics.measure_metric, {"metric": tl.Deletion(levels=(0.5,)), **s.subject}),
    "probe": lambda s: Call(tl.probe, s.subject | {"schedule": s.schedule((0.9, 0.5))}),
    "soundness_from_probes": lambda s: Call(tl.soundness_from_probes, {"table": s.table}),
    "completeness_from_probes": lambda s: Call(tl.completeness_from_probes, {"table": s.by_value}),
    "removal_from_probes": lambda s: Call(tl.removal_from_probes, {"table": s.by_rank}),
    # statistics
    "sparseness": lambda s: Call(tl.statistics.sparseness, {"maps": s.maps}, list),  # NaN for zeros
    "map_entropy": lambda s: Call(tl.statistics.map_entropy, {"maps": s.maps}, list),
    "bootstrap": lambda s: Call(tl.bootstrap, {"curve": s.curve, "resamples": 9}, lambda made: made.area()),
    "compare": lambda s: Call(
        tl.compare, {"compared": {"a": {"c": s.curve}, "b": {"c": s.other}}, "resamples": 9}, lambda made: made.pairs
    ),
    "skill": lambda s: Call(tl.skill, {"own": s.curve, "exchanged": s.other, "resamples": 9}),
    "diagnose": lambda s: Call(tl.statistics.diagnose, {"result": s.curve, "maps": s.maps}),
    # attribution
    "attribute": lambda s: Call(tl.attribute, s.explained | {"method": "saliency"}),
    "exchange_maps": lambda s: Call(tl.probing.exchange_maps, {"maps": s.maps, "labels": s.labels}),
    # laboratory
    "selftest": lambda s: Call(
        tl.laboratory.selftest,
        s.subject | {"shares": (0.0, 0.5, 1.0), "metrics": ["soundness_rank", "deletion"], "resamples": 9},
    ),
    "model_randomisation": lambda s: Call(tl.checks.model_randomisation, s.explained | {"method": "saliency"}, repr),
    "efficient_randomisation": lambda s: Call(tl.checks.efficient_randomisation, s.explained | {"method": "saliency"}),
    "data_randomisation": lambda s: Call(
        tl.checks.data_randomisation, s.explained | {"networks": {"other": tiny_model()}, "method": "saliency"}
    ),
    "train_on_permuted_labels": lambda s: Call(
        tl.checks.train_on_permuted_labels,
        {"build": tiny_model, "inputs": s.inputs, "labels": s.labels, "training": Training(epochs=1)},
    ),
    "random_removals": lambda s: Call(
        tl.checks.random_removals, s.explained | {"shares": (0.5,), "subsets": 3}, lambda made: made.correlate(s.maps)
    ),
    "sensitivity_n": lambda s: Call(
        tl.checks.sensitivity_n, s.explained | {"maps": s.maps, "shares": (0.5,), "subsets": 3}
    ),
    "max_sensitivity": lambda s: Call(
        tl.checks.max_sensitivity, s.explained | {"method": "saliency", "radius": 0.01, "perturbations": 2}
    ),
    "monotonicity": lambda s: Call(tl.checks.monotonicity, {"tables": [s.table], "resamples": 50}, repr),
    "Monotonicity": lambda s: Call(
        tl.checks.Monotonicity, _fields(tl.checks.monotonicity([s.table], resamples=50)), lambda made: made.shares
    ),
    "metric_agreement": lambda s: Call(
        tl.checks.metric_agreement, {"curves": {"a": {"c": s.curve}, "b": {"c": s.other}}, "resamples": 9}, repr
    ),
    "probe_distribution": lambda s: Call(
        tl.checks.probe_distribution,
        {name: s.subject[name] for name in ("model", "inputs", "labels")} | {"levels": (0.5,)},
    ),
    "fine_tuned": lambda s: Call(
        tl.checks.fine_tuned,
        {"model": s.model, "train_data": (s.inputs, s.labels), "training": Training(epochs=1)},
    ),
    "class_similarity": lambda s: Call(tl.checks.class_similarity, s.explained | {"method": "saliency"}),
    "run_check": lambda s: Call(
        tl.checks.run_check,
        {
            "evaluation": tl.open_evaluation(s.fresh_run()),
            "name": "sensitivity-n",
            "methods": ("random",),
            "options": tl.checks.CheckOptions(limit=4, subsets=3),
            "model": f"{s.folder}/tiny_model.py:build",
        },
    ),
    "CheckOptions": lambda s: Call(tl.checks.CheckOptions, {}),
    "introduce_attribution": lambda s: Call(tl.laboratory.introduce_attribution, {"maps": s.maps}),
    "remove_attribution": lambda s: Call(tl.laboratory.remove_attribution, {"maps": s.maps}),
    "attribution_inside": lambda s: Call(tl.checks.attribution_inside, {"maps": s.maps, "region": s.keep}),
    "pointing_game": lambda s: Call(tl.checks.pointing_game, {"maps": s.maps, "region": s.keep}),
    "roar": lambda s: Call(
        tl.checks.roar,
        {
            "build": tiny_model,
            "training_data": (s.inputs, s.labels),
            "test_data": (s.inputs, s.labels),
            "methods": ["random"],
            "levels": (0.5,),
            "training": Training(epochs=1),
            "out": s.folder / "new" / "networks.json",
        },
    ),
    # runs
    "Options": lambda s: Call(tl.Options, {"until": "decided:0.05"}),
    "Cluster": lambda s: Call(tl.run.Cluster, {}),
    "evaluate": lambda s: Call(
        tl.evaluate,
        {
            "model": s.model,
            "data": (s.inputs.numpy(), s.labels.numpy()),
            "methods": ["random"],
            "metrics": [tl.Deletion(levels=(0.5,))],
            "batch_size": 8,
            "memory_format": "contiguous",
            "resamples": 9,
            "out": s.folder / "new",
        },
    ),
    "open_evaluation": lambda s: Call(tl.open_evaluation, {"path": s.run, "results": None}),
    "format_table": lambda s: Call(
        tl.format_table,
        {
            "evaluations": [s.evaluation],
            "kind": "latex",
            "columns": ["all"],
            "digits": 3,
            "intervals": "inline",
            "names": {"random": "Noise"},
        },
    ),
    "write_figures": lambda s: Call(
        tl.write_figures, {"evaluations": [s.evaluation], "directory": s.folder / "new" / "figures"}
    ),
    "write_false_features": lambda s: Call(
        tl.report.write_false_features, {"evaluation": s.judged, "directory": s.folder / "new" / "false"}
    ),
    "write_sheet": lambda s: Call(
        tl.report.write_sheet, {"evaluation": s.evaluation, "path": s.folder / "new" / "sheet.png", "samples": 1}
    ),
    "ceiling": lambda s: Call(
        tl.checks.ceiling,
        {name: s.subject[name] for name in ("model", "inputs", "labels")}
        | {"metric": "deletion", "width": 1, "orders": 1, "segments": (s.maps > 0.5).long()},
        lambda made: made.share(made.measure(s.model, s.inputs, s.labels, s.maps), resamples=9),
    ),
    "Ceiling": lambda s: Call(
        tl.checks.Ceiling,
        _fields(tl.checks.ceiling(s.model, s.inputs, s.labels, width=1, orders=1, segments=(s.maps > 0.5).long())),
        lambda made: made.share(made.measure(s.model, s.inputs, s.labels, s.maps), resamples=9),
    ),
    "write_report": lambda s: Call(
        tl.write_report, {"evaluations": [s.evaluation], "path": s.folder / "new" / "page.html"}
    ),
    # models and data
    "load_model": lambda s: Call(tl.load_model, {"spec": f"{s.folder}/tiny_model.py:build"}),
    "open_data": lambda s: Call(tl.open_data, {"spec": str(s.folder / "images")}),
    "from_arrays": lambda s: Call(tl.data.from_arrays, {"inputs": s.inputs, "labels": s.labels}),
    "About": lambda s: Call(tl.metrics.About, {"title": "a", "heading": "b", "summary": "c", "across": "d"}),
    "Preprocessing": lambda s: Call(
        tl.models.Preprocessing,
        {"resize": 9, "crop": 8},
        lambda made: made(tl.open_data(str(s.folder / "images")).read(0)),
    ),
    **{name: lambda s, name=name: Call(getattr(tl, name), {"message": "x"}) for name in ("DataError",)},
    **{name: lambda s, name=name: Call(getattr(tl, name), {}) for name in ("ModelError", "RunError")},
    # what functions return: made by them, and by nobody else
    "Check": lambda s: Call(
        tl.checks.Check,
        {
            **dict.fromkeys(("name", "title", "question", "source", "reading"), "x"),
            "columns": (),
            "samples": 3,
            "methods": {},
            "versions": {},
        },
    ),
    "MetricAgreement": lambda s: Call(
        tl.checks.MetricAgreement,
        {"over_samples": {}, "with_others": {}, "together": tl.Estimate(value=1.0, samples=2)},
    ),
    "ProbeDistribution": lambda s: Call(
        tl.checks.ProbeDistribution,
        _fields(tl.checks.probe_distribution(s.model, s.inputs, s.labels, levels=(0.5,))),
    ),
    "RandomRemovals": lambda s: Call(
        tl.checks.RandomRemovals, _fields(tl.checks.random_removals(**s.explained, shares=(0.5,), subsets=3))
    ),
    "Bootstrap": lambda s: Call(tl.statistics.Bootstrap, _fields(tl.bootstrap(s.curve, resamples=3))),
    "Comparison": lambda s: Call(
        tl.statistics.Comparison, {"confidence": 0.9, "ranking": (), "pairs": (), "pareto": {}}
    ),
    "RunComparison": lambda s: Call(
        tl.statistics.RunComparison, {"confidence": 0.9, "runs": (), "pairs": (), "notes": ()}
    ),
    "CompletenessCurve": lambda s: Call(tl.CompletenessCurve, _fields(s.curve)),
    "Evaluation": lambda s: Call(tl.Evaluation, _fields(s.evaluation)),
    "Finding": lambda s: Call(tl.statistics.Finding, {"kind": "x", "value": 1.0}),
    "NewResult": lambda s: Call(
        tl.NewResult,
        {"estimate": tl.Estimate(value=0.5, samples=9), "samples": 9, "final": True}
        | dict.fromkeys(("method", "metric"), "x")
        | dict.fromkeys(("control", "skill")),
    ),
    "Estimate": lambda s: Call(tl.Estimate, {"value": 0.5, "low": 0.1, "high": 0.9, "samples": 9}),
    "LoadedModel": lambda s: Call(tl.models.LoadedModel, {"name": "x", "module": s.model}),
    "ProbeTable": lambda s: Call(tl.ProbeTable, _fields(s.table)),
    "RemovalCurve": lambda s: Call(tl.RemovalCurve, _fields(tl.removal_from_probes(s.by_rank))),
    "Results": lambda s: Call(tl.run.Results, _fields(s.evaluation.results)),
    "RoarCurve": lambda s: Call(
        tl.checks.RoarCurve,
        {"method": "a", "levels": np.ones(2), "performance": np.ones((1, 2)), "baseline": np.ones(1)},
    ),
    "Samples": lambda s: Call(tl.data.Samples, _fields(tl.data.from_arrays(s.inputs, s.labels))),
    "StepCurve": lambda s: Call(tl.StepCurve, _fields(_curve(s, tl.Calibration()))),
    "SoundnessCurve": lambda s: Call(tl.SoundnessCurve, _fields(tl.soundness_from_probes(s.table))),
    # methods of attribution, which are called by name, too
    **{
        f"METHODS[{name!r}]": lambda s, name=name: Call(tl.METHODS[name], s.explained | OPTIONS.get(name, {}))
        for name in tl.METHODS
    },
    **{
        f"attribute {name}": lambda s, name=name: Call(
            lambda **given: tl.attribute(method=name, **given), s.explained | OPTIONS.get(name, {})
        )
        for name in tl.METHODS
    },
}
"""From each public name to a valid call of it."""


def uncalled() -> list[str]:
    """List public names without a valid call; protocols are implemented, and not called."""
    called = {name for name in tl.__all__ if callable(getattr(tl, name))}
    called -= {name for name in called if getattr(getattr(tl, name), "_is_protocol", False)}
    return sorted(called - set(CALLS))


def parameters_of(name: str, call: Call) -> list[str]:
    """List the arguments that a call can have."""
    function = tl.METHODS[name.removeprefix("attribute ")] if name.startswith("attribute ") else call.function
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # of a builtin
        return list(call.given)
    return [p.name for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def bad_value(pick: Callable[[Any], Any], name: str, before: object) -> tuple[str, Any]:
    """Pick a nasty value for an argument, by its name and by what is valid there; return its label and the value."""
    if isinstance(before, torch.Tensor) and pick(range(5)):
        label = pick(list(ARRAYS))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that torch will not have such tensors for ever
                return label, ARRAYS[label](before)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):  # there is no such tensor of this type
            return "None", None
    kinds = [PLAIN]
    if name in ("model", "module"):
        kinds = [PLAIN, MODELS, MODELS, FUNCTIONS]
    elif name in ("imputer", "performance", "method", "build", "progress", "reader", "fingerprint"):
        kinds = [PLAIN, FUNCTIONS, FUNCTIONS]
    table = pick(kinds)
    label = pick(list(table))
    return label, table[label]()


def call_case(fuzzer) -> str:
    """One call with one or two arguments replaced."""
    name = fuzzer.pick(list(CALLS))
    call = CALLS[name](fuzzer.subject)
    known = parameters_of(name, call)
    if not known:
        return fuzzer.outcome("calls", name, lambda: 0)
    changed: dict[str, str] = {}
    given = dict(call.given)
    for _ in range(1 if fuzzer.rng.random() < 0.8 else 2):
        argument = fuzzer.pick(known)
        changed[argument], given[argument] = bad_value(fuzzer.pick, argument, call.given.get(argument))
    return fuzzer.outcome("calls", f"{name}({changed})", lambda: attempt(call, given, changed, known))


def attempt(call: Call, given: Mapping[str, Any], changed: Mapping[str, str], known: list[str]) -> int:
    """Do a call, and return 0 if it is accepted and 2 if it is refused clearly; raise whatever else happens."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = call.then(call.function(**given))
        except OwnError:
            return 2
        except (ValueError, TypeError, OSError) as error:
            paths = [repr(given[name])[1:-1] for name in changed if isinstance(given[name], (str, Path))]
            named = names_argument(str(error), changed, known) or any(path in str(error) for path in paths)
            if not named and not isinstance(error.__cause__, OwnError):
                raise AssertionError(f"no argument is named: {type(error).__name__}: {error}") from error
            raise
    if not inspect.isclass(call.function) and undefined(result) and not caught:
        raise AssertionError("NaN without a word")
    return 0


def names_argument(message: str, changed: Mapping[str, str], known: list[str]) -> bool:
    """Tell whether a message names the argument that was changed, or another one that has to fit it.

    Arrays and models have to fit all others; a number fits those that are mentioned beside it.
    """
    words = {word for quoted in re.findall("`([^`]+)`", message) for word in re.split(r"[ .]", quoted)}
    words |= {f"{word}s" for word in words} | ({"spec"} if words & {"model", "data"} else set())
    words |= {"data", "training_data", "test_data"} if words & {"inputs", "labels"} else set()
    together = any(label in ARRAYS or label in MODELS or label in FUNCTIONS for label in changed.values())
    mentioned = any(re.search(rf"\b{name}\b", message) for name in changed)
    return bool(words & set(known if together or mentioned or len(changed) > 1 else changed))


def undefined(result: object) -> bool:
    """Tell whether a result is NaN: a map anywhere, a curve or a number everywhere."""
    if isinstance(result, torch.Tensor):
        return result.is_floating_point() and bool(result.isnan().any())
    if isinstance(result, pd.DataFrame):
        numbers = result.select_dtypes("number")
        return bool(numbers.size and numbers.isna().all(axis=None))
    if is_dataclass(result):
        result = getattr(result, "values", getattr(result, "value", None))
    if isinstance(result, (float, np.ndarray)) and np.asarray(result).dtype.kind == "f":
        return bool(np.size(result) and np.isnan(result).all())
    return False
