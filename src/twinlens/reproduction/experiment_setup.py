"""The subject of an experiment: the model and the data that it is on, and the options that it refuses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from twinlens.data.samples import Samples, subset
from twinlens.data.sources import open_data
from twinlens.errors import unknown
from twinlens.models.loading import PRETRAINED, LoadedModel, load_model
from twinlens.probing.model_call import best_device
from twinlens.reproduction.outcome import ExperimentOptions
from twinlens.support.fields import fields_of
from twinlens.support.randomness import stream

T = TypeVar("T")

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
    """Whether both come inside packages, so that the experiment's small sizes fit them."""


@dataclass(frozen=True, kw_only=True)
class EmbeddedSubject:
    """What an experiment is on by default: a model and data that come inside packages."""

    model: str
    """A model as `load_model` takes it."""

    data: str
    """Data as `open_data` takes it."""

    limit: int | None = None
    """Number of samples; all by default."""

    preprocessing: Mapping[str, Any] | None = None
    """Fields of `Preprocessing` that replace the model's own."""


PHOTOGRAPHS = EmbeddedSubject(
    model="efficientnet-lite0", data="imagenet20", limit=12, preprocessing={"resize": 146, "crop": 128}
)
"""For claims about photographs: a dozen, shrunk, because the network takes three times as long at full size."""

FEW_LEVELS = tuple(percent / 100 for percent in range(98, 0, -4))
"""Steps of 4% where the paper takes 1%, for smoke runs: with larger steps nearly every one gains more than epsilon."""


_LAYERS = {"gradcam": "features.28", "iba": "features.17", "input_iba": "features.17"}  # of VGG16


def paper_options(method: str, module: nn.Module, noise: str) -> dict[str, Any]:
    """Return the options of a method in the paper and its authors' code; layers where the network has VGG16's names.

    Example:
        >>> paper_options("ig_sg", nn.Identity(), "deviation")
        {'steps': 50, 'variance': 0.09}
    """
    options: dict[str, Any] = {}
    if method in ("integrated_gradients", "ig_sg", "ig_sq", "ig_var"):
        options["steps"] = 50  # Captum's default
    if method in ("ig_sg", "ig_sq", "ig_var", "deepshap"):
        options["variance"] = {"variance": 0.3, "deviation": 0.09}[noise]
    if method == "extremal_perturbation":
        options["areas"] = 0.3
    if method == "iba":
        options["beta"] = 20.0  # of the code of InputIBA, whose first step it is; that of Schulz et al. has 10
    if method == "input_iba":
        options["rounds"] = 40
    if method in _LAYERS and _LAYERS["gradcam"] in dict(module.named_modules()):
        options["layer"] = _LAYERS[method]
    return options


def measured(methods: Mapping[str, T], options: ExperimentOptions, needed: Sequence[str] = ()) -> dict[str, T]:
    """Return the methods that are to be measured, without those that are left out.

    Example:
        >>> from pathlib import Path
        >>> options = ExperimentOptions(out=Path("here"), leave_out=("iba",))
        >>> measured({"gradcam": 1, "iba": 2}, options)
        {'gradcam': 1}
        >>> measured({"gradcam": 1, "iba": 2}, options, needed=["iba"])
        Traceback (most recent call last):
            ...
        ValueError: `leave_out` cannot name 'iba', which the experiment is about.
    """
    for name in options.leave_out:
        if name not in methods:
            raise unknown("leave_out", name, methods)
        if name in needed:
            raise ValueError(f"`leave_out` cannot name {name!r}, which the experiment is about.")
    return {name: method for name, method in methods.items() if name not in options.leave_out}


def find_subject(options: ExperimentOptions, default: EmbeddedSubject) -> Subject:
    """Load the model and open the data: the paper's, those of the options, or the embedded ones."""
    if options.paper and options.data is None:
        raise ValueError("`data` is missing: the paper's settings need a folder of ImageNet images. Pass --data DIR.")
    refuse_lonely(options, {"classes": "data", "weights": "model"})
    embedded = options.model is None and options.data is None
    spec = options.model or (PAPER_MODEL if options.paper else default.model)
    model = load_model(
        spec,
        weights=options.weights or PRETRAINED,
        preprocessing=default.preprocessing if embedded else None,
        device=best_device(options.device),
        allow_code=options.allow_code,
    )
    samples = open_data(options.data or default.data, classes=options.classes)
    if options.paper and options.limit is None:
        return Subject(model=model, samples=some_of_each_class(samples, _PER_CLASS, options.seed), embedded=False)
    limit = options.limit or (default.limit if options.data is None else None)
    return Subject(
        model=model, samples=samples if limit is None else subset(samples, limit, options.seed), embedded=embedded
    )


def some_of_each_class(samples: Samples, count: int, seed: int) -> Samples:
    """Draw `count` samples of each class, in their original order.

    Example:
        >>> import numpy as np
        >>> from twinlens.data.samples import from_arrays
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


def refuse_lonely(options: ExperimentOptions, belongs: Mapping[str, str]) -> None:
    """Refuse options that belong to others which are not given.

    Example:
        >>> from pathlib import Path
        >>> refuse_lonely(ExperimentOptions(out=Path("here"), weights="w.pt"), {"weights": "model"})
        Traceback (most recent call last):
            ...
        ValueError: `weights` belongs to model of yours, and none is given. Pass --model, too.
    """
    for name, whose in belongs.items():
        if getattr(options, name) is not None and getattr(options, whose) is None:
            raise ValueError(f"`{name}` belongs to {whose} of yours, and none is given. Pass --{whose}, too.")


def refuse_options(options: ExperimentOptions, unused: Iterable[str], because: str) -> None:
    """Refuse options that an experiment does not use, because they would have no effect.

    Args:
        options: those that were given.
        unused: names of the options that it does not use.
        because: why not, as the end of a sentence.

    Example:
        >>> from pathlib import Path
        >>> options = ExperimentOptions(out=Path("here"), data="mnist")
        >>> refuse_options(options, ["data", "model"], "it draws its own data")
        Traceback (most recent call last):
            ...
        ValueError: `data` is not used by this experiment, because it draws its own data; got 'mnist'. Leave it out.
    """
    defaults = {option.name: option.default for option in fields_of(ExperimentOptions)}
    for name in unused:
        if (given := getattr(options, name)) != defaults[name]:
            raise ValueError(
                f"`{name}` is not used by this experiment, because {because}; got {given!r}. Leave it out."
            )


def plain(values: Iterable[float]) -> list[float | None]:
    """Return numbers as JSON can hold them, None where they are not defined.

    Example:
        >>> plain([0.5, float("nan")])
        [0.5, None]
    """
    return [None if math.isnan(value) else round(float(value), 10) for value in values]
