"""ROAR (Hooker et al. 2019): remove what a method calls relevant, train anew, and see what accuracy is left.

For each method and each share, the most relevant pixels of training and test images are replaced by the mean of their
channel; a network is trained on the former and measured on the latter. A retrained network knows what removed pixels
look like, but may read the label from which pixels were removed: see `twinlens.experiments.retraining`.

    RUN/
      run.json                          what was asked
      model.safetensors                 the network that is explained, where none was given
      maps/METHOD/00000.safetensors     maps of the training images, and of the test images in 00001
      roar/METHOD/0.3-0.json            what one retraining at one share led to

Shapes: N samples, C channels, S = spatial shape, L shares, R retrainings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from twinlens.attribution import METHODS, attribute
from twinlens.curves import loss_area
from twinlens.engines import ENGINES, UNTOUCHED, Cluster, Progress, Quiet, Unit, describe_source
from twinlens.files import at_hand, written_whole
from twinlens.imputation import MeanImputer
from twinlens.maps import ArrayLike, check_maps, spatial_shape
from twinlens.metrics import SHARES
from twinlens.models import LoadedModel
from twinlens.ordering import keep_features, rank_features
from twinlens.probing import Labels, check_inputs, check_labels
from twinlens.runs import FORMAT, Run, RunError, check_name, open_run
from twinlens.table import Floats
from twinlens.training import USUAL, Training, accuracy, retraining_seed, train
from twinlens.tuning import Execution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Methods = Sequence[str] | Mapping[str, str | Callable[..., Tensor]]
_CHUNK = 512  # images that are ranked at a time
_TRAIN, _TEST = 0, 1  # numbers of the parts that hold their maps


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoarCurve:
    """Test accuracy of networks that were trained without what one method calls relevant."""

    method: str
    """Name of the method."""

    levels: Floats
    """(L,) shares of pixels removed."""

    performance: Floats
    """(R, L) test accuracy of each retraining at each share."""

    baseline: Floats
    """(R,) test accuracy of networks trained in the same way with nothing removed."""

    def __repr__(self) -> str:
        return f"RoarCurve({self.method}, {len(self.levels)} levels, {len(self.baseline)} retrainings)"

    @property
    def values(self) -> Floats:
        """(L,) accuracy lost at each share, the mean over retrainings: the more, the better the method by ROAR."""
        return np.asarray(self.baseline.mean() - self.performance.mean(axis=0))

    def area(self) -> float:
        """Gives the mean of the values over the range of the shares (trapezoidal rule)."""
        return float(loss_area(self.levels, self.values))

    def to_frame(self) -> pd.DataFrame:
        """Gives one row per share and retraining."""
        retrainings, levels = self.performance.shape
        return pd.DataFrame(
            {
                "method": self.method,
                "level": np.tile(self.levels, retrainings),
                "retraining": np.repeat(np.arange(retrainings), levels),
                "performance": self.performance.ravel(),
                "loss": (self.baseline[:, None] - self.performance).ravel(),
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws test accuracy against the share removed; the lines of the retrainings lie behind their mean."""
        if ax is None:
            try:
                from matplotlib import pyplot  # noqa: PLC0415
            except ImportError as error:
                raise ImportError("Plotting needs matplotlib. Run: pip install 'twinlens[plot]'") from error
            ax = pyplot.subplots()[1]
        x = np.concatenate([[0.0], self.levels])
        every = np.concatenate([self.baseline[:, None], self.performance], axis=1)
        [line] = ax.plot(x, every.mean(axis=0), marker=".", label=self.method)
        if len(every) > 1:
            ax.plot(x, every.T, color=line.get_color(), alpha=0.3, linewidth=0.6)
        ax.set_xlabel("share of pixels removed")
        ax.set_ylabel("test accuracy after retraining")
        return ax


def roar(
    build: Callable[[], nn.Module],
    training_data: tuple[ArrayLike, Labels],
    test_data: tuple[ArrayLike, Labels],
    methods: Methods,
    *,
    model: nn.Module | None = None,
    levels: Sequence[float] = SHARES,
    retrainings: int = 1,
    training: Training = USUAL,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    engine: str = "local",
    cluster: Cluster | None = None,
    progress: Progress | None = None,
) -> dict[str, RoarCurve]:
    """Measures ROAR. A network is trained for each method, share and retraining: this takes its time.

    Args:
        build: makes the network, untrained.
        training_data: inputs (N, C, *S), as the network expects them, and labels (N,).
        test_data: the same for testing.
        methods: names in `METHODS`, or a mapping from names of your own to such a name or a function.
        model: the trained network that is explained; one is trained by the seed where none is given.
        levels: shares of pixels removed, increasing.
        retrainings: how often a network is trained for each method and share, each time from other initial weights.
        training: how networks are trained.
        seed: seed of all that is random.
        out: the run directory, which can be resumed, and extended by methods, levels and retrainings; a temporary one
            where none is given.
        device: where networks are trained.
        engine: where units of work run: a name in `ENGINES`.
        cluster: on what workers of the engine "ray" run.
        progress: who is told how the work goes.

    Returns:
        A curve for each method, by its name.

    Example:
        >>> x = torch.randn(64, 1, 2, 2, generator=torch.Generator().manual_seed(0))
        >>> data = x, (x[:, 0, 0, 0] > 0).long()
        >>> def build():
        ...     return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
        >>> curves = roar(build, data, data, ["saliency", "random"], levels=(0.25,),
        ...               training=Training(batch_size=8, rate=0.05))
        >>> bool(curves["saliency"].area() > curves["random"].area())
        True
    """
    told = progress or Quiet()
    shares = _check_levels(levels)
    if retrainings < 1:
        raise ValueError(f"`retrainings` must be at least 1; got {retrainings}.")
    if engine not in ENGINES:
        raise ValueError(f"`engine` must be among {', '.join(ENGINES)}; got {engine!r}.")
    sources, recipe = _as_methods(methods), describe_source(cast("Any", build))
    how = dataclasses.asdict(training)
    del how["threads"]  # which decide about the last bits alone
    parts = [_check_data(*training_data, "train"), _check_data(*test_data, "test")]
    wanted = {
        "format": FORMAT,
        "model": recipe if model is None else {"digest": LoadedModel(name="", module=model).digest()},
        "data": {name: part.digest() for name, part in zip(("train", "test"), parts, strict=True)},
        "options": {"roar": {"build": recipe, "training": how, "seed": seed}},
        "execution": {},
        "methods": {name: describe_source(source) for name, source in sources.items()},
        "metrics": ["roar"],
        "sweeps": [],
        "versions": {package: version(package) for package in ("twinlens", "torch", "numpy")}
        | {"python": platform.python_version()},
    }
    with open_run(out or tempfile.mkdtemp(prefix="twinlens-"), wanted) as run:
        job = RoarJob(
            run=run,
            build=build,
            model=model or _first_model(run, build, parts[_TRAIN], training, seed, device),
            train=parts[_TRAIN],
            test=parts[_TEST],
            methods=sources,
            levels=shares,
            retrainings=retrainings,
            training=training,
            seed=seed,
            device=device,
        )
        told.begin(job.rows(), Execution(batch_size=training.batch_size, threads=training.threads))
        failures, _ = ENGINES[engine](job, job.units(), told, cluster)
        if failures:
            reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
            first = next(iter(failures.values()))
            raise RunError(f"{run} is incomplete. {reasons} What is done is kept.") from first
        baseline = np.array([job.read(None, 0.0, number) for number in range(retrainings)])
        curves = {name: job.curve(name, baseline) for name in sources}
        content = {name: curve.to_frame().to_dict("records") for name, curve in curves.items()}
        run.write_json("roar.json", {"baseline": baseline.tolist(), "methods": content})
    return curves


@dataclass(frozen=True, kw_only=True, eq=False)
class Part:
    """Training or test images."""

    inputs: Tensor
    """(N, C, *S)."""

    labels: Tensor
    """(N,) int64."""

    ids: tuple[str, ...]
    """One name per image, by which ties are broken."""

    def digest(self) -> str:
        """Hashes inputs and labels."""
        found = hashlib.blake2b(f"{self.inputs.dtype} {tuple(self.inputs.shape)}".encode(), digest_size=16)
        for values in (self.inputs, self.labels):
            found.update(values.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class RoarJob:
    """Everything that the units have in common; a unit is one share with one method, or nothing removed."""

    run: Run
    build: Callable[[], nn.Module]
    model: nn.Module
    train: Part
    test: Part
    methods: Mapping[str, str | Callable[..., Tensor]]
    levels: tuple[float, ...]
    retrainings: int
    training: Training
    seed: int
    device: str

    def units(self) -> list[Unit]:
        """Lists all units: first nothing removed, then method by method, so that its maps are read once."""
        return [Unit(0), *(Unit(shard, name) for name in self.methods for shard in range(len(self.levels)))]

    def rows(self) -> dict[str, int]:
        """Counts the networks that are trained for each task."""
        each = dict.fromkeys(self.methods, len(self.levels) * self.retrainings)
        return {UNTOUCHED: self.retrainings} | each

    def describe(self, unit: Unit) -> str:
        """Names a unit for the person who has to look after it."""
        return "nothing removed" if unit.method is None else f"share {self.levels[unit.shard]:g}"

    def worker(self, progress: Progress) -> RoarWorker:
        """Makes one that does the units."""
        return RoarWorker(self, progress)

    def part(self, method: str | None, level: float, number: int) -> str:
        """Gives the file of one retraining, within the run."""
        return f"roar/{method or '_untouched'}/{level:g}-{number}.json"

    def read(self, method: str | None, level: float, number: int) -> float:
        """Reads the test accuracy of one retraining."""
        path = self.run.path / self.part(method, level, number)
        return float(json.loads(path.read_text(encoding="utf-8"))["accuracy"])

    def curve(self, method: str, baseline: Floats) -> RoarCurve:
        """Reads all that was measured for a method."""
        numbers = range(self.retrainings)
        performance = [[self.read(method, level, number) for level in self.levels] for number in numbers]
        return RoarCurve(
            method=method, levels=np.array(self.levels), performance=np.array(performance), baseline=baseline
        )


class RoarWorker:
    """Does units; holds the rankings of one method at a time."""

    def __init__(self, job: RoarJob, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.seconds: dict[str, float] = {}
        self._ranked: tuple[str, list[Tensor]] | None = None

    def do(self, unit: Unit) -> None:
        """Trains the networks of a unit that are not there yet."""
        job, task = self.job, unit.method or UNTOUCHED
        level = 0.0 if unit.method is None else job.levels[unit.shard]
        images: list[Tensor] | None = None
        for number in range(job.retrainings):
            part = job.part(unit.method, level, number)
            if not (job.run.path / part).exists():
                start = time.perf_counter()
                images = images or self._images(unit.method, level)
                seed = retraining_seed(job.seed, number)
                how, where = job.training, job.device
                network = train(job.build, images[_TRAIN], job.train.labels, training=how, seed=seed, device=where)
                job.run.write_json(part, {"accuracy": accuracy(network, images[_TEST], job.test.labels)})
                self.seconds[task] = self.seconds.get(task, 0.0) + time.perf_counter() - start
            self.progress.advance(task, 1, f"trained without {level:.0%}")

    def _images(self, method: str | None, level: float) -> list[Tensor]:
        parts = [self.job.train, self.job.test]
        if method is None:
            return [part.inputs for part in parts]
        # The mean of the training images, for both: a test image must not tell how it was changed.
        mean = self.job.train.inputs.transpose(0, 1).flatten(1).mean(dim=1)
        ranks = self._ranks(method)
        return [remove_most_relevant(p.inputs, rank, level, mean) for p, rank in zip(parts, ranks, strict=True)]

    def _ranks(self, method: str) -> list[Tensor]:
        if self._ranked is None or self._ranked[0] != method:
            self._ranked = None
            ranks = []
            for shard, part in ((_TRAIN, self.job.train), (_TEST, self.job.test)):
                if not self.job.run.maps_part(method, shard).exists():
                    self.progress.advance(method, 0, "maps")
                    self._explain(method, shard, part)
                ranks.append(_rank(self.job.run.load_maps(method, shard), part.ids, self.job.seed))
            self._ranked = method, ranks
        return self._ranked[1]

    def _explain(self, method: str, shard: int, part: Part) -> None:
        start = time.perf_counter()
        model = self.job.model.to(self.job.device)
        maps = attribute(model, part.inputs, part.labels, self.job.methods[method], ids=part.ids, seed=self.job.seed)
        checked = check_maps(maps, spatial_shape(part.inputs.shape), ids=part.ids)
        self.job.run.save_maps(method, shard, checked.float(), part.ids)
        self.seconds[f"{method}/maps"] = self.seconds.get(f"{method}/maps", 0.0) + time.perf_counter() - start


def _rank(maps: Tensor, ids: tuple[str, ...], seed: int) -> Tensor:
    """Ranks all features (N, F), some images at a time."""
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(ids), _CHUNK)]
    return torch.cat([rank_features(maps[chunk], ids=ids[chunk], seed=seed).rank for chunk in chunks])


def remove_most_relevant(inputs: Tensor, rank: Tensor, level: float, mean: Tensor) -> Tensor:
    """Replaces the share `level` of the pixels with the highest ranks (N, F) by the mean (C,) of their channel.

    Example:
        >>> x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
        >>> remove_most_relevant(x, torch.tensor([[3, 0, 1, 2]]), 0.5, torch.tensor([9.0]))
        tensor([[[9., 2., 3., 9.]]])
    """
    removed = torch.full((len(rank),), round(rank.shape[1] * level), dtype=rank.dtype)
    keep = keep_features(rank, removed, "morf").reshape(-1, *spatial_shape(inputs.shape))
    return MeanImputer(mean)(inputs, keep, streams=())


def _first_model(
    run: Run, build: Callable[[], nn.Module], part: Part, training: Training, seed: int, device: str
) -> nn.Module:
    """Trains the network that is explained, or reads it."""
    path = run.path / "model.safetensors"
    if path.exists():
        model = build()
        with at_hand(path) as file:
            model.load_state_dict(load_file(file))
        return model.eval()
    model = train(build, part.inputs, part.labels, training=training, seed=seed, device=device).cpu()
    with written_whole(path) as unfinished:
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, unfinished)
    return model


def _as_methods(methods: Methods) -> dict[str, str | Callable[..., Tensor]]:
    given: dict[str, str | Callable[..., Tensor]] = {}
    given.update(methods if isinstance(methods, Mapping) else {name: name for name in methods})
    for name, source in given.items():
        check_name(name)
        if isinstance(source, str) and source not in METHODS:
            raise ValueError(f"`methods` must be among {', '.join(METHODS)}; got {source!r}.")
    if not given:
        raise ValueError(f"`methods` must name at least one of {', '.join(METHODS)}; got none.")
    return given


def _check_levels(levels: Sequence[float]) -> tuple[float, ...]:
    given = tuple(float(level) for level in levels)
    if not given or list(given) != sorted(set(given)) or not 0 < given[0] <= given[-1] <= 1:
        raise ValueError(f"`levels` must increase within (0, 1]; got {given}.")
    return given


def _check_data(inputs: ArrayLike, labels: Labels, kind: str) -> Part:
    given, places = check_inputs(inputs, None)
    names = tuple(f"{kind}-{place}" for place in places)
    classes = check_labels(labels, names)
    if classes.dtype.kind == "f" or given.dim() < 3:
        raise ValueError(
            f"`{kind}` data must be inputs (samples, channels, *spatial) and integer labels; got shape "
            f"{tuple(given.shape)} and labels of {classes.dtype}."
        )
    return Part(inputs=given, labels=torch.from_numpy(classes), ids=names)
