"""Evaluation: from a model, data and methods to results, in one call.

Every step leaves parts in a run directory, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.attribution import METHODS
from twinlens.data import open_data
from twinlens.engines import (
    ENGINES,
    UNTOUCHED,
    Job,
    Method,
    Progress,
    Quiet,
    describe_source,
    load_inputs,
)
from twinlens.exhibits import write_exhibits
from twinlens.images import DataError
from twinlens.imputation import ConstantImputer, Imputer, LinearImputer
from twinlens.maps import ArrayLike, spatial_shape
from twinlens.models import PRETRAINED, LoadedModel, load_model
from twinlens.performance import Protocol, find_protocol
from twinlens.planning import METRICS, Sweep, describe_imputer, imputers, plan_sweeps
from twinlens.probing import evaluating, find_device
from twinlens.ray_engine import choose_cluster, choose_devices
from twinlens.results import Evaluation, write_results
from twinlens.runs import FORMAT, Run, RunError, check_name, open_run, stored_execution
from twinlens.samples import Samples, Skipped, check, from_arrays, subset
from twinlens.stored_maps import check_stored, open_maps
from twinlens.tuning import Execution, tune, using_threads

Methods = Sequence[str] | Mapping[str, str | Callable[..., Tensor] | Mapping[str, Any]]
DEFAULT_METHODS = ("integrated_gradients", "gradcam", "saliency", "random")
_SHARD_VALUES = 2_500_000  # input values per shard: 16 images of 224 × 224 × 3, a minute's work on two cores


def evaluate(
    model: str | nn.Module | LoadedModel,
    data: str | Samples | tuple[ArrayLike, ArrayLike],
    methods: Methods = DEFAULT_METHODS,
    *,
    metrics: Sequence[str] = tuple(METRICS),
    maps: Mapping[str, str] | None = None,
    out: str | os.PathLike[str] | None = None,
    weights: str = PRETRAINED,
    classes: str | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
    protocol: str | Protocol = "paper",
    levels: Sequence[float] | None = None,
    epsilon: float = 0.01,
    performance: str = "accuracy",
    imputer: Imputer | None = None,
    seed: int = 0,
    resamples: int = 1000,
    show: Sequence[str] = (),
    batch_size: int | None = None,
    memory_format: str | None = None,
    compiled: bool = False,
    threads: int | None = None,
    shard_size: int | None = None,
    device: str | None = None,
    engine: str = "local",
    address: str | None = None,
    cpus_per_unit: float | None = None,
    gpus_per_unit: float | None = None,
    workers: int = 2,
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluates attribution methods on a model and data.

    Args:
        model: a spec such as "timm:resnet50" (see `twinlens.models.load_model`), or a module that returns logits.
        data: a spec such as a folder of images (see `twinlens.data.open_data`), or inputs with labels.
        methods: names in `METHODS`; or a mapping from names of your own to a name, a function of the same signature,
            or a dict with a "method" and its options.
        metrics: names in `METRICS`; none of them makes the maps alone.
        maps: from names to files or folders of maps made elsewhere (see `twinlens.stored_maps.open_maps`).
        out: the run directory, which may be on a file system of fsspec, such as "s3://bucket/run"; a temporary one
            where none is given.
        weights: a file of weights for a model that is given by its spec, "default" or "none".
        classes: a file with the index of each class name.
        preprocessing: fields of `Preprocessing` that replace the model's own.
        limit: evaluates this many samples, drawn by the seed.
        skip_bad: whether samples that cannot be read are left out; otherwise they are an error.
        protocol: "paper", "soco", or a `Protocol`.
        levels: shares removed in a soundness sweep, decreasing; those of the protocol where none are given.
        epsilon: the gain of performance below which a step of soundness adds false attribution.
        performance: the measure of performance; see `twinlens.performance.measure`.
        imputer: what stands in the place of removed features for soundness, completeness and ROAD; linear
            imputation for images, zero for tabular rows where none is given.
        seed: seed of all that is random.
        resamples: number of resamples behind intervals and comparisons.
        show: ids of samples that the report shows in any case, beside those that it chooses itself.
        batch_size: inputs per call of the model; by trial where none is given.
        memory_format: "contiguous" or "channels_last"; by trial where none is given.
        compiled: whether the model goes through torch.compile.
        threads: threads within one operation of torch on the CPU, which may change last bits; by trial, or as many as
            `cpus_per_unit`, where none is given.
        shard_size: samples per part of the run; by the size of an input where none is given.
        device: where a model that is given by its spec is put; a GPU where there is one.
        engine: where units of work run: "local", in this process, or "ray", on a cluster.
        address: of a running Ray cluster, such as "auto"; by default a cluster of this machine alone.
        cpus_per_unit: CPUs of each worker of a cluster; one where none is given.
        gpus_per_unit: GPUs of each worker of a cluster; shares such as 0.25 are possible.
        workers: threads that read images.
        progress: who is told how the work goes.

    Returns:
        The results, which are also in the run directory.
    """
    told = progress or Quiet()
    _check_choices(metrics, engine)
    cluster = choose_cluster(engine, address, cpus_per_unit, gpus_per_unit)
    here, elsewhere = choose_devices(device, cluster)
    rules, there = _rules(protocol, levels), stored_execution(out)
    everything = _as_samples(data, classes)
    subject = _as_model(model, weights, preprocessing, here if cluster is None or isinstance(model, str) else None)
    chosen = everything if limit is None else subset(everything, limit, seed)
    samples, skipped, content = check(chosen, skip_bad=skip_bad, workers=workers)
    example = load_inputs(samples.take([0]), subject, workers=1)
    _check_fit(subject, samples, example, classes)
    sources = _as_methods(methods, maps or {}, everything, samples, spatial_shape(example.shape))
    main = imputer or (LinearImputer() if example.dim() > 2 else ConstantImputer(0.0))
    threads = threads or (max(1, int(cluster.cpus_per_unit)) if cluster and not there else None)
    execution = _execution(subject.module, example, there, batch_size, memory_format, compiled, threads)
    where = elsewhere or str(find_device(subject.module, None)[0])

    wanted = _manifest(
        subject,
        samples,
        skipped,
        content,
        sources,
        metrics,
        options={
            "protocol": dataclasses.asdict(rules),
            "epsilon": epsilon,
            "performance": performance,
            "imputer": describe_imputer(main),
            "seed": seed,
        },
        execution=dataclasses.asdict(execution)
        | {"shard_size": shard_size or there.get("shard_size") or _shard_size(example), "device": where},
        source={
            "model": model if isinstance(model, str) else None,
            "weights": weights,
            "data": data if isinstance(data, str) else None,
            "classes": classes,
        },
    )
    with open_run(out or tempfile.mkdtemp(prefix="twinlens-"), wanted) as run:
        job = Job(
            run=run,
            model=subject,
            execution=execution,
            samples=samples,
            methods=sources,
            sweeps=_extend_sweeps(run, rules),
            imputers=imputers(main, spatial=example.dim() > 2),
            shard_size=run.manifest["execution"]["shard_size"],
            seed=seed,
            workers=workers,
            device=where,
            reload=partial(load_model, model, weights=weights, preprocessing=preprocessing)
            if isinstance(model, str)
            else None,
        )
        told.begin(job.rows(), execution)
        with using_threads(execution.threads):
            resources = cluster and dataclasses.replace(cluster, threads=execution.threads)
            failures, seconds = ENGINES[engine](job, job.units(), told, resources)
        if UNTOUCHED in failures:  # without which there are no results
            raise RunError(f"{run} is incomplete. {failures[UNTOUCHED]} What is done is kept.")
        evaluation = write_results(run, seconds=seconds, resamples=resamples)
        write_exhibits(job, evaluation, show)
    if failures:
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        first = next(iter(failures.values()))
        raise RunError(f"{run} is incomplete. {reasons} What is done is kept.") from first
    return evaluation


def _check_choices(metrics: Sequence[str], engine: str) -> None:
    for argument, given, known in (("metrics", metrics, METRICS), ("engine", [engine], ENGINES)):
        for name in given:
            if name not in known:
                raise ValueError(f"`{argument}` must be among {', '.join(known)}; got {name!r}.")


def _rules(protocol: str | Protocol, levels: Sequence[float] | None) -> Protocol:
    rules = find_protocol(protocol)
    if levels is None:
        return rules
    shares = tuple(float(level) for level in levels)
    if not shares or any(a <= b for a, b in pairwise(shares)) or not 0 < shares[-1] <= shares[0] < 1:
        raise ValueError(f"`levels` must decrease within (0, 1); got {shares}. Sort them in descending order.")
    return dataclasses.replace(rules, levels=shares)


def _as_model(
    model: str | nn.Module | LoadedModel, weights: str, preprocessing: Mapping[str, Any] | None, device: str | None
) -> LoadedModel:
    if isinstance(model, str):
        best = device or ("cuda" if torch.cuda.is_available() else "cpu")
        return load_model(model, weights=weights, preprocessing=preprocessing, device=best)
    if isinstance(model, nn.Module):
        find_device(model, device)
        model = LoadedModel(name=type(model).__qualname__, module=model)
    if not isinstance(model, LoadedModel):
        raise TypeError(f"`model` must be a spec such as 'timm:resnet50' or an nn.Module; got {type(model).__name__}.")
    return dataclasses.replace(model, preprocessing=model.preprocessing.changed(preprocessing or {}))


def _as_samples(data: str | Samples | tuple[ArrayLike, ArrayLike], classes: str | None) -> Samples:
    if isinstance(data, str):
        return open_data(data, classes=classes)
    if classes is not None:
        raise ValueError("`classes` belongs to data that is opened by its path; name the classes of your own samples.")
    return data if isinstance(data, Samples) else from_arrays(*data)


def _check_fit(model: LoadedModel, samples: Samples, example: Tensor, classes: str | None) -> None:
    """Calls the model once, and refuses labels that cannot be meant for it."""
    device, dtype = find_device(model.module, None)
    with evaluating(model.module), torch.inference_mode():
        try:
            answer = model.module(example.to(device=device, dtype=dtype or example.dtype))
        except Exception as error:
            raise ValueError(
                f"`model` {model.name} fails on an input of shape {tuple(example.shape)}: {error} Check the size and "
                "the channels that it expects."
            ) from error
    if not isinstance(answer, Tensor) or answer.dim() != 2:
        raise TypeError(f"`model` {model.name} must return logits (samples, classes); it returned something else.")
    outputs, folders = answer.shape[1], samples.classes
    if samples.name.startswith("folder:") and classes is None and folders is not None and len(folders) != outputs:
        raise DataError(
            f"`data` holds {len(folders)} class folders and the model knows {outputs} classes, so their numbers are "
            "unclear. Say which folder is which class with `classes`, a file of names and indices."
        )
    if (largest := int(samples.labels.max())) >= outputs:
        name = samples.ids[int(samples.labels.argmax())]
        raise DataError(f"`data` has label {largest} (sample '{name}'), and the model knows 0 to {outputs - 1}.")


def _as_methods(
    methods: Methods, maps: Mapping[str, str], everything: Samples, samples: Samples, spatial: tuple[int, ...]
) -> dict[str, Method]:
    found: dict[str, Method] = {}
    given = methods if isinstance(methods, Mapping) else {name: name for name in methods}
    for name, source in given.items():
        options = dict(source) if isinstance(source, Mapping) else {"method": source}
        function = options.pop("method", name)
        if isinstance(function, str) and function not in METHODS:
            raise ValueError(f"`methods` must be among {', '.join(METHODS)}; got {function!r}.")
        identity = describe_source(function) | ({"options": _described(options)} if options else {})
        found[check_name(name)] = Method(name=name, source=function, options=options, identity=identity)
    for name, path in maps.items():
        if check_name(name, "maps") in found:
            raise ValueError(f"`maps` and `methods` must have different names; {name!r} is in both.")
        stored = open_maps(path, everything)
        identity = {"maps": check_stored(stored, samples, spatial)}
        found[name] = Method(name=name, source=stored, identity=identity)
    if not found:
        raise ValueError(f"`methods` must name at least one of {', '.join(METHODS)}, or `maps` one set; got none.")
    return found


def _described(options: Mapping[str, Any]) -> dict[str, Any]:
    """Gives options as run.json can hold them; arrays by their content."""
    described: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Tensor | np.ndarray):
            array = np.ascontiguousarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
            described[name] = f"{array.shape} {hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()}"
        else:
            described[name] = value if isinstance(value, int | float | str | list | None) else repr(value)
    return described


def _execution(
    module: nn.Module,
    example: Tensor,
    there: Mapping[str, Any],
    batch_size: int | None,
    memory_format: str | None,
    compiled: bool,
    threads: int | None,
) -> Execution:
    """Chooses how to call the model; a run that is there has chosen already."""
    if there:
        return Execution(
            batch_size=batch_size or there["batch_size"],
            memory_format=memory_format or there["memory_format"],
            compiled=there["compiled"],
            threads=threads or there["threads"],
        )
    found = tune(
        module, example, batch_size=batch_size, memory_format=memory_format, compiled=compiled, threads=threads
    )
    # Written down even where nothing was tried: some gradients have other last bits with another number.
    on_cpu = find_device(module, None)[0].type == "cpu"
    return dataclasses.replace(found, threads=found.threads or torch.get_num_threads()) if on_cpu else found


def _manifest(
    model: LoadedModel,
    samples: Samples,
    skipped: Sequence[Skipped],
    content: str,
    methods: Mapping[str, Method],
    metrics: Sequence[str],
    *,
    options: dict[str, Any],
    execution: dict[str, Any],
    source: dict[str, Any],
) -> dict[str, Any]:
    """Says what is asked, as run.json holds it."""
    return {
        "format": FORMAT,
        "model": {
            "name": model.name,
            "digest": model.digest(),
            "preprocessing": dataclasses.asdict(model.preprocessing),
            "classes": model.classes or samples.classes,
        },
        "data": {
            "name": samples.name,
            "digest": content,
            "samples": len(samples),
            "skipped": [dataclasses.asdict(sample) for sample in skipped],
        },
        "options": options,
        "execution": execution,
        "source": source,
        "methods": {name: dict(method.identity) for name, method in methods.items()},
        "metrics": list(metrics),
        "sweeps": [],
        "versions": {package: version(package) for package in ("twinlens", "torch", "numpy")}
        | {"python": platform.python_version()},
    }


def _shard_size(example: Tensor) -> int:
    return max(8, min(512, _SHARD_VALUES // example.numel()))


def _extend_sweeps(run: Run, rules: Protocol) -> list[Sweep]:
    """Adds to a run the sweeps that its metrics still need."""
    there = [Sweep.from_json(sweep) for sweep in run.manifest["sweeps"]]
    sweeps = there + plan_sweeps(run.manifest["metrics"], rules, there)
    run.manifest["sweeps"] = [sweep.to_json() for sweep in sweeps]
    run.write_json("run.json", run.manifest)
    return sweeps


def reopen(evaluation: Evaluation) -> tuple[LoadedModel, Samples]:
    """Loads the model and opens the samples of a run again, if it was given both by their specs.

    The model must be the one that was evaluated; samples are found by their ids.
    """
    asked = evaluation.run.manifest
    source = asked["source"]
    if source["model"] is None or source["data"] is None:
        raise RunError(f"{evaluation.run} was made in Python from a model or data at hand, and cannot open them again.")
    fields = asked["model"]["preprocessing"]
    model = load_model(
        source["model"], weights=source["weights"], preprocessing=fields, device=asked["execution"]["device"]
    )
    if model.digest() != asked["model"]["digest"]:
        raise RunError(f"The model {source['model']!r} has changed since {evaluation.run} was made.")
    everything = open_data(source["data"], classes=source["classes"])
    place = {name: k for k, name in enumerate(everything.ids)}
    ids = evaluation.ids()
    if missing := [name for name in ids if name not in place]:
        raise DataError(f"`data` {source['data']!r} no longer has sample {missing[0]!r}, which {evaluation.run} has.")
    return model, everything.take([place[name] for name in ids])
