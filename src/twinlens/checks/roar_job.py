"""The job of ROAR: networks to be trained, one share and one method at a time, in units that any engine runs.

Shapes: N samples, C channels, S = spatial shape, F features.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from twinlens.data.stored_maps import StoredMaps
from twinlens.imputation.imputers import MeanImputer
from twinlens.integrations.explanations import attribute
from twinlens.models.training import Training, accuracy, retraining_seed, train
from twinlens.probing.maps import check_maps, spatial_shape
from twinlens.probing.model_call import Labels, check_inputs, check_labels
from twinlens.probing.ranking import keep_features, rank_features
from twinlens.run.directory import Run, read_json
from twinlens.run.manifest import FORMAT, MethodRecord, differences, refuse_differences
from twinlens.run.method_sources import Method
from twinlens.run.units import ORIGINAL, Unit
from twinlens.support.arrays import ArrayLike
from twinlens.support.fields import JSON, to_json
from twinlens.support.progress import Progress
from twinlens.support.tensor_files import load_tensors, save_tensors

_CHUNK = 512  # images that are ranked at a time
_TRAIN, _TEST = 0, 1  # numbers of the parts that hold their maps


@dataclass(frozen=True, kw_only=True)
class FunctionRecord:
    """A function of the user's, told apart by its source."""

    function: str
    """Its name."""

    source: str
    """Hash of its source."""


@dataclass(frozen=True, kw_only=True)
class SplitsRecord:
    """The images of a run of ROAR."""

    train: str
    """Hash of the training images and labels."""

    test: str
    """Hash of the test images and labels."""


@dataclass(frozen=True, kw_only=True)
class RoarManifest:
    """What a run of ROAR is, by content. Levels and retrainings are not part of it: a run can be extended by both."""

    format: int = FORMAT
    """Version of the layout."""

    build: FunctionRecord
    """The function that builds the networks."""

    model: str | None
    """Hash of the network that is explained; None where it is trained by the seed."""

    data: SplitsRecord
    """The images."""

    training: Training
    """How networks are trained, without the number of threads, which decides about last bits alone."""

    seed: int
    """Seed of all that is random."""

    methods: Mapping[str, MethodRecord]
    """Where the maps of each method come from."""

    versions: Mapping[str, str]
    """Versions of the packages that made it."""

    def joined(self, there: RoarManifest, where: str) -> RoarManifest:
        """Return the manifest of a run that goes on with this one, refusing what would make it another run.

        Args:
            there: the manifest of the run.
            where: the directory, for the error.
        """
        different = differences(self.identity(), there.identity())
        for name, method in self.methods.items():
            if name in there.methods:
                different += differences(to_json(method), to_json(there.methods[name]), f"methods.{name}")
        refuse_differences(different, where)
        return dataclasses.replace(self, methods={**there.methods, **self.methods}, versions=there.versions)

    def identity(self) -> dict[str, JSON]:
        """Return what two calls have to agree in to work on one run."""
        return {name: to_json(getattr(self, name)) for name in ("format", "build", "model", "data", "training", "seed")}


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """Training or test images."""

    inputs: Tensor
    """(N, C, *S)."""

    labels: Tensor
    """(N,) int64."""

    ids: tuple[str, ...]
    """One name per image, by which ties are broken."""

    def digest(self) -> str:
        """Hash inputs and labels."""
        found = hashlib.blake2b(f"{self.inputs.dtype} {tuple(self.inputs.shape)}".encode(), digest_size=16)
        for values in (self.inputs, self.labels):
            found.update(values.cpu().contiguous().numpy().tobytes())
        return found.hexdigest()


def check_split(inputs: ArrayLike, labels: Labels, kind: str) -> Split:
    """Check the images and labels of the split `kind`, "train" or "test", and name the images."""
    given, places = check_inputs(inputs, None)
    names = tuple(f"{kind}-{place}" for place in places)
    classes = check_labels(labels, names)
    if classes.dtype.kind == "f" or given.dim() < 3:
        raise ValueError(
            f"`{kind}` data must be inputs (samples, channels, *spatial) and integer labels; got shape "
            f"{tuple(given.shape)} and labels of {classes.dtype}."
        )
    return Split(inputs=given, labels=torch.from_numpy(classes), ids=names)


@dataclass(frozen=True, kw_only=True, eq=False)
class RoarJob:
    """Everything that the units have in common; a unit is one share with one method, or nothing removed."""

    run: Run[RoarManifest]
    build: Callable[[], nn.Module]
    model: nn.Module
    train: Split
    test: Split
    methods: Mapping[str, Method]
    levels: tuple[float, ...]
    retrainings: int
    training: Training
    seed: int
    device: str

    def units(self) -> list[Unit]:
        """List all units: first nothing removed, then method by method, so that its maps are read once."""
        return [Unit(0), *(Unit(shard, name) for name in self.methods for shard in range(len(self.levels)))]

    def rows(self) -> dict[str, int]:
        """Count the networks that are trained for each task."""
        each = dict.fromkeys(self.methods, len(self.levels) * self.retrainings)
        return {ORIGINAL: self.retrainings} | each

    def describe(self, unit: Unit) -> str:
        """Name a unit for the person who has to look after it."""
        return "nothing removed" if unit.method is None else f"share {self.levels[unit.shard]:g}"

    def worker(self, progress: Progress) -> RoarWorker:
        """Create a worker for this job."""
        return RoarWorker(self, progress)

    def part(self, method: str | None, level: float, number: int) -> str:
        """Return the file of one retraining, within the run."""
        return f"roar/{method or '_untouched'}/{level:g}-{number}.json"

    def read(self, method: str | None, level: float, number: int) -> float:
        """Read the test accuracy of one retraining."""
        return float(read_json(self.run.path / self.part(method, level, number))["accuracy"])


class RoarWorker:
    """Does units; holds the rankings of one method at a time."""

    def __init__(self, job: RoarJob, progress: Progress) -> None:
        self.job, self.progress = job, progress
        self.seconds: dict[str, float] = {}
        self._ranked: tuple[str, list[Tensor]] | None = None

    def do(self, unit: Unit) -> None:
        """Train the networks of a unit that are not there yet."""
        job, task = self.job, unit.method or ORIGINAL
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
                self._add_seconds(task, start)
            self.progress.advance(task, 1, f"trained without {level:.0%}")

    def _images(self, method: str | None, level: float) -> list[Tensor]:
        splits = [self.job.train, self.job.test]
        if method is None:
            return [split.inputs for split in splits]
        # The mean of the training images, for both: a test image must not tell how it was changed.
        mean = self.job.train.inputs.transpose(0, 1).flatten(1).mean(dim=1)
        ranks = self._ranks(method)
        return [remove_most_relevant(s.inputs, rank, level, mean) for s, rank in zip(splits, ranks, strict=True)]

    def _ranks(self, method: str) -> list[Tensor]:
        if self._ranked is None or self._ranked[0] != method:
            self._ranked = None
            ranks = []
            for shard, split in ((_TRAIN, self.job.train), (_TEST, self.job.test)):
                if not self.job.run.maps_shard(method, shard).exists():
                    self.progress.advance(method, 0, "maps")
                    self._explain(method, shard, split)
                ranks.append(_rank(self.job.run.load_maps(method, shard), split.ids, self.job.seed))
            self._ranked = method, ranks
        return self._ranked[1]

    def _explain(self, name: str, shard: int, split: Split) -> None:
        start, job, method = time.perf_counter(), self.job, self.job.methods[name]
        model = job.model.to(job.device)
        source = method.source
        assert not isinstance(source, StoredMaps)  # which only `find_maps` makes
        maps = attribute(model, split.inputs, split.labels, source, ids=split.ids, seed=job.seed, **method.options)
        checked = check_maps(maps, spatial_shape(split.inputs.shape), ids=split.ids)
        job.run.save_maps(name, shard, checked.float(), split.ids)
        self._add_seconds(f"{name}/maps", start)

    def _add_seconds(self, what: str, start: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - start


def _rank(maps: Tensor, ids: tuple[str, ...], seed: int) -> Tensor:
    """Rank all features (N, F), some images at a time."""
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(ids), _CHUNK)]
    return torch.cat([rank_features(maps[chunk], ids=ids[chunk], seed=seed).rank for chunk in chunks])


def remove_most_relevant(inputs: Tensor, rank: Tensor, level: float, mean: Tensor) -> Tensor:
    """Replace the share `level` of the pixels with the highest ranks (N, F) by the mean (C,) of their channel.

    Example:
        >>> x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
        >>> remove_most_relevant(x, torch.tensor([[3, 0, 1, 2]]), 0.5, torch.tensor([9.0]))
        tensor([[[9., 2., 3., 9.]]])
    """
    removed = torch.full((len(rank),), round(rank.shape[1] * level), dtype=rank.dtype)
    keep = keep_features(rank, removed, "morf").reshape(-1, *spatial_shape(inputs.shape))
    return MeanImputer(mean)(inputs, keep, streams=())


def trained_model(
    run: Run[RoarManifest], build: Callable[[], nn.Module], split: Split, training: Training, device: str
) -> nn.Module:
    """Train the network that is explained by the run's seed, or read it where it is there already."""
    path = run.path / "model.safetensors"
    if path.exists():
        model = build()
        model.load_state_dict(load_tensors(path)[0])
        return model.eval()
    seed = run.manifest.seed
    model = train(build, split.inputs, split.labels, training=training, seed=seed, device=device).cpu()
    save_tensors(path, model.state_dict())
    return model
