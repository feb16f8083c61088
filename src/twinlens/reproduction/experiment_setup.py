"""The model, the data and the options of methods in experiments on a trained network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from twinlens.data.samples import Samples, subset
from twinlens.data.sources import open_data
from twinlens.errors import unknown
from twinlens.models.loading import PRETRAINED, LoadedModel, load_model
from twinlens.probing.model_call import best_device
from twinlens.reproduction.experiment import ExperimentOptions, require_both
from twinlens.support.randomness import stream

T = TypeVar("T")

PAPER_MODEL = "torchvision:vgg16"
_PER_CLASS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Setup:
    """The model and the data of an experiment."""

    model: LoadedModel
    """The network."""

    samples: Samples
    """The inputs."""

    embedded: bool
    """Whether both come with installed packages, and the small sizes of a smoke run apply."""


@dataclass(frozen=True, kw_only=True)
class EmbeddedSetup:
    """A model and data that come with installed packages: the default of an experiment."""

    model: str
    """A model, as `load_model` accepts it."""

    data: str
    """Data, as `open_data` accepts it."""

    limit: int
    """Number of samples."""

    preprocessing: Mapping[str, Any] | None = None
    """Fields of `Preprocessing` that replace the model's own."""


PHOTOGRAPHS = EmbeddedSetup(
    model="efficientnet-lite0", data="imagenet20", limit=12, preprocessing={"resize": 146, "crop": 128}
)
"""For claims about photographs: a dozen, reduced in size because the network is three times slower at full size."""

FEW_LEVELS = tuple(percent / 100 for percent in range(98, 0, -4))
"""Steps of 4% instead of the paper's 1%, for smoke runs; with larger steps nearly every one gains more than epsilon."""

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
        options["beta"] = 20.0  # as in the code of InputIBA, whose first step it is; Schulz et al. use 10
    if method == "input_iba":
        options["rounds"] = 40
    if method in _LAYERS and _LAYERS["gradcam"] in dict(module.named_modules()):
        options["layer"] = _LAYERS[method]
    return options


def without(methods: Mapping[str, T], options: ExperimentOptions, needed: Sequence[str]) -> dict[str, T]:
    """Return the methods without those that the options leave out.

    Example:
        >>> from pathlib import Path
        >>> options = ExperimentOptions(out=Path("here"), leave_out=("iba",))
        >>> without({"gradcam": 1, "iba": 2}, options, needed=[])
        {'gradcam': 1}
        >>> without({"gradcam": 1, "iba": 2}, options, needed=["iba"])
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


def find_setup(options: ExperimentOptions, default: EmbeddedSetup) -> Setup:
    """Load the model and open the data: the paper's, those of the options, or the embedded ones."""
    if options.paper and options.data is None:
        raise ValueError("`data` is missing: the paper's settings need a folder of ImageNet images. Pass --data DIR.")
    require_both(options, {"classes": "data", "weights": "model"})
    embedded = options.model is None and options.data is None
    model = load_model(
        options.model or (PAPER_MODEL if options.paper else default.model),
        weights=options.weights or PRETRAINED,
        preprocessing=default.preprocessing if embedded else None,
        device=best_device(options.device),
        allow_code=options.allow_code,
    )
    samples = open_data(options.data or default.data, classes=options.classes)
    limit = options.limit or (default.limit if options.data is None else None)
    if limit is not None:
        samples = subset(samples, limit, options.seed)
    elif options.paper:
        samples = some_of_each_class(samples, _PER_CLASS, options.seed)
    return Setup(model=model, samples=samples, embedded=embedded)


def some_of_each_class(samples: Samples, count: int, seed: int) -> Samples:
    """Draw `count` samples of each class, in their original order.

    Example:
        >>> import numpy as np
        >>> from twinlens.data.samples import from_arrays
        >>> some_of_each_class(from_arrays(np.eye(6), [0, 0, 0, 1, 1, 1]), 2, seed=0).labels
        array([0, 0, 1, 1])
    """
    order = sorted(range(len(samples)), key=lambda i: (stream(seed, "class", samples.ids[i]), samples.ids[i]))
    chosen: dict[int, list[int]] = {}
    for position in order:
        of_class = chosen.setdefault(int(samples.labels[position]), [])
        if len(of_class) < count:
            of_class.append(position)
    return samples.take(sorted(position for of_class in chosen.values() for position in of_class))
