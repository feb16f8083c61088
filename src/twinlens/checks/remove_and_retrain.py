"""ROAR (Hooker et al. 2019): remove the features a method marks as relevant, retrain, and measure the accuracy left.

The most relevant pixels of training and test images are replaced by the mean of their channel. A retrained network may
read the label from which pixels were removed: see `twinlens.reproduction.retraining`.

Shapes: N samples, C channels, S = spatial shape, F features, L shares, R retrainings.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.attribution import METHODS
from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.result_store import ResultStore, digest_of
from twinlens.data.stored_maps import StoredMaps
from twinlens.errors import short_repr
from twinlens.imputation.imputers import MeanImputer
from twinlens.integrations.explanations import attribute
from twinlens.metrics.curves import loss_area
from twinlens.metrics.removal import SHARES
from twinlens.models.loading import LoadedModel
from twinlens.models.training import USUAL, Training, accuracy, retraining_seed, train
from twinlens.options import Methods
from twinlens.probing.maps import check_maps, spatial_shape
from twinlens.probing.model_call import Labels, best_device, check_inputs, check_labels, find_device
from twinlens.probing.ranking import check_levels, keep_features, rank_features
from twinlens.run.check_records import FOLDER, CheckColumn, MethodCheck
from twinlens.run.method_sources import Method, find_methods
from twinlens.support.arguments import checked, inside
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.code_digest import describe_function
from twinlens.support.estimate import Estimate
from twinlens.support.fields import check_count, to_json
from twinlens.support.progress import Progress, Quiet

_MOST = 10**6
_CHUNK = 512  # images that are ranked at once
_TASK = "networks"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoarCurve:
    """Test accuracy of networks that were retrained without the features one method marks as relevant."""

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
        """(L,) accuracy lost at each share, the mean over retrainings; higher is better."""
        return np.asarray(self.baseline.mean() - self.performance.mean(axis=0))

    def area(self) -> float:
        """Return the mean of the values over the range of the shares (trapezoidal rule)."""
        return float(loss_area(self.levels, self.values))


@checked
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
    device: str | None = None,
    progress: Progress | None = None,
) -> dict[str, RoarCurve]:
    """Measure ROAR. Trains one network for each method, share and retraining.

    Args:
        build: returns an untrained network.
        training_data: inputs (N, C, *S), as the network expects them, and labels (N,).
        test_data: the same for testing.
        methods: names in `METHODS`; or a table from your own names to a name, a function of the same signature, or a
            table with a "method" and its options.
        model: the trained network to explain; by default one is trained.
        levels: shares of pixels removed, increasing.
        retrainings: number of networks for each method and share, each with other initial weights.
        training: how networks are trained.
        seed: random seed.
        out: FILE.json that stores the accuracy of each network when it is trained. With it, an interrupted call
            resumes, and a later one reuses all networks that it needs as well.
        device: device for training: cpu, cuda, cuda:1, …; by default a GPU if there is one.
        progress: receives the progress; nothing is shown by default.

    Returns:
        A curve for each method, by its name.

    Example:
        >>> import torch
        >>> x = torch.randn(64, 1, 2, 2, generator=torch.Generator().manual_seed(0))
        >>> data = x, (x[:, 0, 0, 0] > 0).long()
        >>> def build():
        ...     return nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
        >>> curves = roar(build, data, data, ["saliency", "random"], levels=(0.25,),
        ...               training=Training(batch_size=8, rate=0.05))
        >>> bool(curves["saliency"].area() > curves["random"].area())
        True
    """
    shares = check_levels("levels", levels, decreasing=False)
    check_count("retrainings", retrainings, _MOST)
    sources = find_methods(methods)
    if not sources:
        raise ValueError(f"`methods` must name at least one of {', '.join(METHODS)}; got none.")
    networks = _Networks(
        build=build,
        explained=model,
        train=_check_split("train", training_data),
        test=_check_split("test", test_data),
        retrainings=retrainings,
        training=training,
        seed=seed,
        device=best_device(device),
        store=ResultStore(out),
        progress=progress or Quiet(),
    )
    how = f"Networks trained for {training.epochs} epochs in batches of {training.batch_size} on {networks.device}."
    networks.progress.begin({_TASK: retrainings * (1 + len(shares) * len(sources))}, how)
    baseline = networks.accuracies("nothing removed", None, (0.0,))[:, 0]
    return {
        name: RoarCurve(
            method=name,
            levels=np.array(shares),
            performance=networks.accuracies(name, method, shares),
            baseline=baseline,
        )
        for name, method in sources.items()
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class _Split:
    """Training or test data."""

    inputs: Tensor
    labels: Tensor
    ids: tuple[str, ...]

    def digest(self) -> str:
        values = (each.cpu().contiguous().numpy().tobytes() for each in (self.inputs, self.labels))
        return digest_of([str(self.inputs.dtype), *self.inputs.shape], *values)


def _check_split(kind: str, data: tuple[ArrayLike, Labels]) -> _Split:
    argument = {"train": "training_data", "test": "test_data"}[kind]
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise TypeError(f"`{argument}` must be inputs and labels, two arrays; got {short_repr(data)}.")
    with inside(argument):
        inputs, positions = check_inputs(data[0], None)
        names = tuple(f"{kind}-{position}" for position in positions)
        labels = check_labels(data[1], names)
    if labels.dtype.kind == "f" or inputs.dim() < 3:
        raise ValueError(
            f"`{argument}` must be inputs (samples, channels, *spatial) and integer labels; got shape "
            f"{tuple(inputs.shape)} and labels of {labels.dtype}."
        )
    return _Split(inputs=inputs, labels=torch.from_numpy(labels), ids=names)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Networks:
    """Trains networks and stores their accuracy."""

    build: Callable[[], nn.Module]
    explained: nn.Module | None
    train: _Split
    test: _Split
    retrainings: int
    training: Training
    seed: int
    device: str
    store: ResultStore
    progress: Progress

    @cached_property
    def model(self) -> nn.Module:
        """The network to explain."""
        return self._train(self.train.inputs, self.seed) if self.explained is None else self.explained

    @cached_property
    def digest(self) -> str:
        """Digest of what all networks depend on, except the number of threads, which affects only the last bits."""
        return digest_of(
            describe_function(self.build),
            None if self.explained is None else LoadedModel(name="", module=self.explained).digest(),
            self.train.digest(),
            self.test.digest(),
            to_json(dataclasses.replace(self.training, threads=None)),
            self.seed,
        )

    def accuracies(self, name: str, method: Method | None, levels: Sequence[float]) -> Floats:
        """Return the test accuracy (R, L) of networks trained without what a method marks; trains missing ones."""
        digest = digest_of(self.digest, to_json(method.record) if method else None)
        ranks: list[Tensor] | None = None
        values = np.empty((self.retrainings, len(levels)))
        for column, level in enumerate(levels):
            images: list[Tensor] | None = None
            for number in range(self.retrainings):
                key = f"{name} {level:g} {number} {digest}"
                result: Any = self.store.get(key)
                if not isinstance(result, float) or not 0 <= result <= 1:  # of a damaged file
                    if method is not None and ranks is None:
                        ranks = self._rank(name, method)
                    images = images or self._remove(ranks, level)
                    network = self._train(images[0], retraining_seed(self.seed, number))
                    result = accuracy(network, images[1], self.test.labels)
                    self.store.put(key, result)
                values[number, column] = result
                self.progress.advance(_TASK, 1, f"{name}, {level:.0%} removed")
        return values

    def _train(self, inputs: Tensor, seed: int) -> nn.Module:
        return train(self.build, inputs, self.train.labels, training=self.training, seed=seed, device=self.device)

    def _rank(self, name: str, method: Method) -> list[Tensor]:
        """Explain training and test images, and rank their features (N, F)."""
        self.progress.advance(_TASK, 0, f"maps of {name}")
        assert not isinstance(method.source, StoredMaps)  # `find_methods` returns none
        model, ranks = self.model.to(self.device), []
        for split in (self.train, self.test):
            maps = attribute(
                model, split.inputs, split.labels, method.source, ids=split.ids, seed=self.seed, **method.options
            )
            values = check_maps(maps, spatial_shape(split.inputs.shape), ids=split.ids).float()
            chunks = [slice(start, start + _CHUNK) for start in range(0, len(split.ids), _CHUNK)]
            ranked = [rank_features(values[chunk], ids=split.ids[chunk], seed=self.seed).rank for chunk in chunks]
            ranks.append(torch.cat(ranked))
        return ranks

    def _remove(self, ranks: Sequence[Tensor] | None, level: float) -> list[Tensor]:
        splits = (self.train.inputs, self.test.inputs)
        if ranks is None:
            return list(splits)
        # Both get the mean of the training images: a test image must not reveal how it was changed.
        mean = self.train.inputs.transpose(0, 1).flatten(1).mean(dim=1)
        return [remove_most_relevant(inputs, rank, level, mean) for inputs, rank in zip(splits, ranks, strict=True)]


def remove_most_relevant(inputs: Tensor, rank: Tensor, level: float, mean: Tensor) -> Tensor:
    """Replace the share `level` of the pixels with the highest ranks (N, F) by the mean (C,) of their channel."""
    removed = torch.full((len(rank),), round(rank.shape[1] * level), dtype=rank.dtype)
    keep = keep_features(rank, removed, "morf").reshape(-1, *spatial_shape(inputs.shape))
    return MeanImputer(mean)(inputs, keep, streams=())


@partial(
    CheckDefinition,
    title="ROAR: remove and retrain",
    source="Hooker et al. 2019, A benchmark for interpretability methods in deep neural networks",
    columns=(CheckColumn(title="accuracy lost, mean over shares", better="higher"),),
    step_title="share of pixels removed",
    course_title="test accuracy after retraining",
    options=("limit", "levels", "train", "epochs", "retrainings"),
)
def roar_check(run: CheckedRun) -> CheckResult:
    """Does a network lose accuracy when it is trained without the features a method marks as relevant?

    The more accuracy is lost, the better; compare with random. A retrained network may read the label from which pixels
    were removed, and a small loss does not prove much.
    """
    options, samples = run.options, len(run.samples)
    levels = options.levels or (0.1, 0.3, 0.5, 0.7, 0.9)

    def measure(name: str) -> MethodCheck:
        method, arguments = run.method(name)
        [curve] = roar(
            run.build,
            run.training_data,
            (run.inputs, run.samples.labels),
            {name: {"method": method, **arguments}},
            model=run.model,
            levels=levels,
            retrainings=options.retrainings,
            training=Training(epochs=options.epochs),
            seed=run.seed,
            out=run.evaluation.path / FOLDER / "roar" / "networks.json",
            device=str(find_device(run.model, None)[0]),
            progress=run.progress,
        ).values()
        means = (curve.baseline.mean(), *curve.performance.mean(axis=0))
        course = tuple(Estimate(value=float(mean), samples=samples) for mean in means)
        return MethodCheck(values=(Estimate(value=curve.area(), samples=samples),), course=course)

    notes = ["There are no intervals: what varies is the training. Pass --retrainings to average over several."]
    if seen := run.count_in_training():
        notes.append(f"{seen} of {samples} test samples are also in the training data: accuracy is too high.")
    return run.each_method(measure, steps=["0", *(f"{level:g}" for level in levels)], notes=notes)
