"""ROAR (Hooker et al. 2019): remove what a method calls relevant, train anew, and see what accuracy is left.

For each method and each share, the most relevant pixels of training and test images are replaced by the mean of their
channel; a network is trained on the former and measured on the latter. A retrained network knows what removed pixels
look like, but may read the label from which pixels were removed: see `twinlens.reproduction.retraining`.

    RUN/
      run.json                          the manifest: data, training, methods, versions
      model.safetensors                 the network that is explained, where none was given
      maps/METHOD/00000.safetensors     maps of the training images, and of the test images in 00001
      roar/METHOD/0.3-0.json            test accuracy of one retraining at one share
      roar.json                         all of them

Shapes: N samples, C channels, S = spatial shape, L shares, R retrainings.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import nn

from twinlens.attribution import METHODS
from twinlens.checks.roar_job import (
    FunctionRecord,
    RoarJob,
    RoarManifest,
    SplitsRecord,
    check_split,
    trained_model,
)
from twinlens.errors import RunError, short_repr, unknown
from twinlens.metrics.curves import loss_area
from twinlens.metrics.removal import SHARES
from twinlens.models.loading import LoadedModel
from twinlens.models.training import USUAL, Training
from twinlens.options import Methods
from twinlens.probing.model_call import Labels, best_device, blaming
from twinlens.probing.ranking import check_levels
from twinlens.run.directory import RunDirectory
from twinlens.run.engines import ENGINES
from twinlens.run.method_sources import Method, find_methods
from twinlens.run.ray_engine import choose_devices
from twinlens.run.units import Cluster
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.code_digest import describe_function
from twinlens.support.fields import JSON, to_json
from twinlens.support.plotting import new_axes
from twinlens.support.progress import Progress, Quiet
from twinlens.support.versions import environment

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        """Return the mean of the values over the range of the shares (trapezoidal rule)."""
        return float(loss_area(self.levels, self.values))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per share and retraining."""
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
        """Draw test accuracy against the share removed; the lines of the retrainings lie behind their mean."""
        axes = new_axes(ax)
        x = np.concatenate([[0.0], self.levels])
        every = np.concatenate([self.baseline[:, None], self.performance], axis=1)
        [line] = axes.plot(x, every.mean(axis=0), marker=".", label=self.method)
        if len(every) > 1:
            axes.plot(x, every.T, color=line.get_color(), alpha=0.3, linewidth=0.6)
        axes.set_xlabel("share of pixels removed")
        axes.set_ylabel("test accuracy after retraining")
        return axes


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
    engine: str = "local",
    cluster: Cluster | None = None,
    progress: Progress | None = None,
) -> dict[str, RoarCurve]:
    """Measure ROAR. A network is trained for each method, share and retraining, which takes its time.

    Args:
        build: builds the network, untrained.
        training_data: inputs (N, C, *S), as the network expects them, and labels (N,).
        test_data: the same for testing.
        methods: names in `METHODS`; or a table from names of your own to a name, a function of the same signature, or a
            table with a "method" and its options.
        model: the trained network that is explained; one trained by the seed by default.
        levels: shares of pixels removed, increasing.
        retrainings: how often a network is trained for each method and share, each time from other initial weights.
        training: how networks are trained.
        seed: seed of all that is random.
        out: the run directory, which can be resumed, and extended by methods, levels and retrainings; a temporary one
            by default.
        device: where networks are trained: cpu, cuda, cuda:1, …; a GPU where there is one by default.
        engine: where units of work run: a name in `ENGINES`.
        cluster: on what workers of the engine "ray" run.
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
    for name, value, (least, most) in (("retrainings", retrainings, (1, 10**6)), ("seed", seed, (-(2**63), 2**63))):
        if not least <= value <= most:
            raise ValueError(
                f"`{name}` must be at {f'least {least}' if value < least else f'most {most}'}; got {value}."
            )
    with torch.random.fork_rng(), blaming("build"):
        built = build()
    if not isinstance(built, nn.Module):
        raise TypeError(f"`build` must return an nn.Module; it returned {type(built).__name__}.")
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    sources = _find_methods(methods)
    for name, data in (("training_data", training_data), ("test_data", test_data)):
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise TypeError(f"`{name}` must be inputs and labels, two arrays; got {short_repr(data)}.")
    train, test = check_split(*training_data, "train"), check_split(*test_data, "test")
    resources = (cluster or Cluster()) if engine == "ray" else None
    here, elsewhere = choose_devices(device, resources)
    wanted = RoarManifest(
        build=FunctionRecord(**describe_function(build)),
        model=None if model is None else LoadedModel(name="", module=model).digest(),
        data=SplitsRecord(train=train.digest(), test=test.digest()),
        training=dataclasses.replace(training, threads=None),
        seed=seed,
        methods={name: method.record for name, method in sources.items()},
        versions=environment(),
    )
    with RunDirectory(out or tempfile.mkdtemp(prefix="twinlens-"), RoarManifest) as directory:
        run = directory.start(lambda _: wanted)
        job = RoarJob(
            run=run,
            build=build,
            model=model or trained_model(run, build, train, training, best_device(here)),
            train=train,
            test=test,
            methods=sources,
            levels=shares,
            retrainings=retrainings,
            training=training,
            seed=seed,
            device=elsewhere or best_device(here),
        )
        _train_all(job, engine, resources, progress or Quiet())
        return _write_curves(job)


def _find_methods(methods: Methods) -> dict[str, Method]:
    found = find_methods(methods)
    if not found:
        raise ValueError(f"`methods` must name at least one of {', '.join(METHODS)}; got none.")
    return found


def _train_all(job: RoarJob, engine: str, cluster: Cluster | None, progress: Progress) -> None:
    """Train every network that is not there yet; a method that fails does not stop the others."""
    training = job.training
    progress.begin(
        job.rows(),
        f"Networks trained for {training.epochs} epochs in batches of {training.batch_size} on {job.device}.",
    )
    failures, _ = ENGINES[engine](job, job.units(), progress, cluster)
    if failures:
        reasons = "; ".join(f"{name}: {error}" for name, error in failures.items())
        first = next(iter(failures.values()))
        raise RunError(f"{job.run} is incomplete. {reasons} What is done is kept.") from first


def _write_curves(job: RoarJob) -> dict[str, RoarCurve]:
    """Read the accuracy of all networks, and write roar.json."""
    baseline = np.array([job.read(None, 0.0, number) for number in range(job.retrainings)])
    curves = {name: read_curve(job, name, baseline) for name in job.methods}
    content: dict[str, JSON] = {name: to_json(curve.to_frame().to_dict("records")) for name, curve in curves.items()}
    job.run.write_json("roar.json", {"baseline": baseline.tolist(), "methods": content})
    return curves


def read_curve(job: RoarJob, method: str, baseline: Floats) -> RoarCurve:
    """Read the curve of one method, all of whose networks are trained."""
    numbers = range(job.retrainings)
    performance = [[job.read(method, level, number) for level in job.levels] for number in numbers]
    return RoarCurve(method=method, levels=np.array(job.levels), performance=np.array(performance), baseline=baseline)
