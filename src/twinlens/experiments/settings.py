"""What experiments share: the model and the data that they are on, who is told of progress, and numbers as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from twinlens.data import open_data
from twinlens.engines import Quiet
from twinlens.experiments.outcome import Options, Tell
from twinlens.models import PRETRAINED, LoadedModel, load_model
from twinlens.ordering import stream
from twinlens.samples import Samples, subset
from twinlens.tuning import Execution

PAPER_MODEL = "torchvision:vgg16"
_PER_CLASS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """What an experiment is on."""

    model: LoadedModel
    """The network."""

    samples: Samples
    """The inputs."""

    embedded: bool
    """Whether both come inside packages, so that the sizes that go with them hold."""


@dataclass(frozen=True, kw_only=True)
class Embedded:
    """What an experiment is on by default."""

    model: str
    """A model as `load_model` takes it."""

    data: str
    """Data as `open_data` takes it."""

    limit: int | None = None
    """Number of samples; all where it is None."""

    preprocessing: Mapping[str, Any] | None = None
    """Fields of `Preprocessing` that replace the model's own."""


PHOTOGRAPHS = Embedded(model="efficientnet-lite0", data="imagenet20", preprocessing={"resize": 146, "crop": 128})
"""For claims about photographs: twenty of them, shrunk, because the network takes three times as long with its size."""

FEW_LEVELS = tuple(percent / 100 for percent in range(98, 0, -2))
"""Steps of 2% where the paper takes 1%; with larger ones nearly every step gains more than epsilon, and soundness is
near 1 whatever the map."""


def find_subject(options: Options, default: Embedded) -> Subject:
    """Loads the model and opens the data that were asked for: the paper's, somebody's own, or the embedded ones."""
    if options.paper and options.data is None:
        raise ValueError("`data` is missing: the paper's settings need a folder of ImageNet images. Pass --data DIR.")
    for name, whose in (("classes", "data"), ("weights", "model")):
        if getattr(options, name) is not None and getattr(options, whose) is None:
            raise ValueError(f"`{name}` belongs to {whose} of yours, and none is given. Pass --{whose}, too.")
    embedded = options.model is None and options.data is None
    spec = options.model or (PAPER_MODEL if options.paper else default.model)
    model = load_model(
        spec,
        weights=options.weights or PRETRAINED,
        preprocessing=default.preprocessing if embedded else None,
        device=options.device,
    )
    samples = open_data(options.data or default.data, classes=options.classes)
    if options.paper and options.limit is None:
        return Subject(model=model, samples=some_of_each_class(samples, _PER_CLASS, options.seed), embedded=False)
    limit = options.limit or (default.limit if options.data is None else None)
    return Subject(
        model=model, samples=samples if limit is None else subset(samples, limit, options.seed), embedded=embedded
    )


def some_of_each_class(samples: Samples, count: int, seed: int) -> Samples:
    """Draws as many samples of each class, in their original order.

    Example:
        >>> import numpy as np
        >>> from twinlens.samples import from_arrays
        >>> some_of_each_class(from_arrays(np.eye(6), [0, 0, 0, 1, 1, 1]), 2, seed=0).labels
        array([0, 0, 1, 1])
    """
    drawn = sorted(range(len(samples)), key=lambda i: (stream(seed, "class", samples.ids[i]), samples.ids[i]))
    taken: dict[int, list[int]] = {}
    for place in drawn:
        of_class = taken.setdefault(int(samples.labels[place]), [])
        if len(of_class) < count:
            of_class.append(place)
    return samples.take(sorted(place for places in taken.values() for place in places))


class Told(Quiet):
    """Passes the progress of an evaluation on to whoever is told about an experiment."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._done, self._total = tell, 0, 0

    def begin(self, rows: Mapping[str, int], execution: Execution) -> None:
        """Counts what is to do."""
        del execution
        self._done, self._total = 0, sum(rows.values())

    def advance(self, task: str, rows: int, stage: str) -> None:
        """Says what is being done."""
        self._done += rows
        self._tell(f"{task}, {stage}", self._done, self._total)


def refuse_options(options: Options, unused: Iterable[str], because: str) -> None:
    """Refuses options that an experiment does not use, so that nobody believes in their effect.

    Args:
        options: what was asked.
        unused: names of the options that it does not use.
        because: why not, as the end of a sentence.

    Example:
        >>> from pathlib import Path
        >>> refuse_options(Options(out=Path("here"), data="mnist"), ["data", "model"], "it draws its own data")
        Traceback (most recent call last):
            ...
        ValueError: `data` is not used by this experiment, because it draws its own data; got 'mnist'. Leave it out.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    for name in unused:
        if (given := getattr(options, name)) != defaults[name]:
            raise ValueError(
                f"`{name}` is not used by this experiment, because {because}; got {given!r}. Leave it out."
            )


def plain(values: Iterable[float]) -> list[float | None]:
    """Gives numbers as JSON can hold them, None where they are not defined.

    Example:
        >>> plain([0.5, float("nan")])
        [0.5, None]
    """
    return [None if math.isnan(value) else round(float(value), 10) for value in values]
