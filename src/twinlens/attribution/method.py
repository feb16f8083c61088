"""The decorator behind every attribution method: what all methods share is declared and done here.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, D features of a tabular row.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypedDict

import torch
from torch import Tensor, nn

from twinlens.attribution.embeddings import EmbeddedModel, MaskedModel
from twinlens.attribution.harness import Request, check_numbers, in_batches, make_request, undisturbed
from twinlens.probing.maps import Features, feature_shape, spread_over_channels
from twinlens.probing.model_call import Labels, Model, blaming, find_device
from twinlens.probing.tokens import are_tokens
from twinlens.support.arguments import check_arguments, kinds_of
from twinlens.support.arrays import ArrayLike
from twinlens.support.fields import Default, fields_of
from twinlens.support.signatures import arguments_of, with_all_arguments

Explain = Callable[[Request], Tensor]
"""From one batch to attributions (B, C, *S) or maps (B, *S); channels are summed, then `sign` applies."""

Inputs = Literal["any", "spatial", "flat", "images"]

_SHAPES: Mapping[Inputs, tuple[tuple[int, ...], str, str]] = {
    "any": ((), "(N, C, *S), or (N, D) for tabular rows", ""),
    "spatial": (
        (3, 4, 5),
        "images (N, C, H, W), signals (N, C, T) or volumes (N, C, D, H, W)",
        " For tabular rows use occlusion or rise.",
    ),
    "flat": ((3, 4), "images (N, C, H, W) or signals (N, C, T)", " For rows and volumes use occlusion or rise."),
    "images": ((4,), "images (N, C, H, W)", ""),
}
"""Kinds of inputs: their numbers of axes, what they are, and what to do with others."""


_NO_OPTIONS = ("ids", "seed", "features")
"""Arguments of every method that belong to the samples and to a run."""


class SharedOptions(TypedDict, total=False):
    """Options of every method."""

    ids: Annotated[Sequence[str | int] | None, Default(None)]
    """One name per sample, from which random draws derive; by default their numbers."""
    seed: Annotated[int, Default(0)]
    """Random seed; a method without randomness ignores it."""
    batch_size: Annotated[int | None, Default(None)]
    """Inputs per call of the model, by default chosen for the device; maps do not depend on it."""
    sign: Annotated[Literal["positive", "signed"], Default("positive")]
    """What becomes of negative values: "positive" drops them, "signed" keeps them."""
    features: Annotated[Features, Default("positions")]
    """What a feature is: a position, whose channels are summed, or with "channels" one channel of a position, in maps
    (N, C, *S). Methods that have no values for channels share theirs equally among them."""


@dataclass(frozen=True, kw_only=True)
class AttributionMethod:
    """Declare what a method needs; as a decorator, turn it into a public method.

    Write a function of the model and a `Request` that prepares what all batches share, and returns a function that
    explains one batch. Its options are keywords with defaults, which the section "Args" of its docstring explains:

        @AttributionMethod(title="GradCAM", inputs="images")
        def gradcam(model: nn.Module, request: Request, *, layer: str | None = None) -> Explain:
            '''GradCAM (…): feature maps weighted by their mean gradients.'''
            return lambda batch: ...  # attributions (B, C, *S) or maps (B, *S) of batch.inputs for batch.targets

    In a module of `_FAMILIES` in `attribution/__init__.py` it is then one of `METHODS`. A run passes the options
    `reference`, other inputs from its data, and `segments` to methods that have them.

    Arguments are checked before your function runs. While it runs, the model is in evaluation mode and returns logits
    (B, K). Gradients are off: use `torch.enable_grad()` where you need them. Modes, gradients and hooks are restored
    afterwards. Draw random numbers only from `batch.generators` or `batch.normal`: maps then depend neither on the
    batch size nor on the order.
    """

    title: str
    """Its name as papers write it."""
    inputs: Inputs = "any"
    """Kind of inputs that it can explain."""
    any_callable: bool = False
    """Whether it only calls the model, which may then be any function; otherwise the model must be an nn.Module."""
    model: str = "any differentiable module that returns logits"
    """What it requires of the model, in words."""
    tokens: Literal["embeddings", "masking", "positions"] | None = None
    """Whether it explains token ids: by their embeddings, by hiding tokens, or without reading them; by default not at
    all."""
    reference: Literal["any", "rows"] = "any"
    """The inputs for which it reads its option `reference`; a run passes it for these only."""
    baseline: bool = False
    """Whether it is a baseline method: it ignores the model, or was crafted for a particular data set."""
    copies_of: str | None = None
    """Name of the explanation whose noisy copies it combines; methods with equal options share the copies."""
    combined: str | None = None
    """How it combines them, a name in `ENSEMBLES`; by default its option `ensemble`."""
    options_as: Callable[..., Tensor] | None = None
    """Another method whose docstring explains shared options; `**options` of this one stands for all of them."""

    def __call__(self, function: Callable[..., Explain]) -> Callable[..., Tensor]:
        """Turn a function `(model, request, *, …options) -> Explain` into a public method."""

        @functools.wraps(function)
        def call(model: Model, inputs: ArrayLike, targets: Labels, **options: Any) -> Tensor:
            refuse_unknown(call, [name for name in options if name not in _NO_OPTIONS])
            return _explain(call, None, model, inputs, targets, **options)[0]

        call.declared = self  # type: ignore[attr-defined]
        call.__signature__ = signature = self._signature(function)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        call.__doc__ = self._docstring(function, signature.parameters)
        return call

    def _signature(self, function: Callable[..., Explain]) -> inspect.Signature:
        hints, written = typing.get_type_hints(function), inspect.signature(function).parameters.values()
        own = [p.replace(annotation=hints[p.name]) for p in written if p.kind is p.KEYWORD_ONLY]
        if self.options_as is not None and any(p.kind is p.VAR_KEYWORD for p in written):
            own += [p for p in options_of(self.options_as).values() if p.name not in ("batch_size", "sign")]
        kinds = {"model": Model if self.any_callable else nn.Module, "inputs": ArrayLike, "targets": Labels}
        first = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
            for name, kind in kinds.items()
        ]
        shared = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
            for f in fields_of(SharedOptions)
        ]
        return inspect.Signature([*first, *own, *shared], return_annotation=Tensor)

    def _docstring(self, function: Callable[..., Explain], parameters: Mapping[str, inspect.Parameter]) -> str:
        """Return the docstring with all arguments: explained in it, else here or by another method."""
        written = inspect.getdoc(function) or ""
        texts = {} if self.options_as is None else arguments_of(inspect.getdoc(self.options_as) or "")
        texts |= {"model": f"{self.model}.", "inputs": f"{_SHAPES[self.inputs][1]}, as the model expects them."}
        texts |= {"targets": "(N,) classes to explain."} | {f.name: f.help for f in fields_of(SharedOptions)}
        texts |= arguments_of(written)
        return with_all_arguments(written, {name: texts.get(name, "") for name in parameters})


def declared(method: Callable[..., Tensor]) -> AttributionMethod:
    """Return what a built-in method declares."""
    declaration: AttributionMethod = method.declared  # type: ignore[attr-defined]
    return declaration


def accepted_axes(method: Callable[..., Tensor]) -> tuple[int, ...]:
    """Return the numbers of axes of inputs that a built-in method explains; none if it explains all."""
    return _SHAPES[declared(method).inputs][0]


def describe_needs(method: Callable[..., Tensor]) -> str:
    """Describe what a built-in method explains and what it needs.

    Example:
        >>> from twinlens.attribution import METHODS
        >>> describe_needs(METHODS["gradcam"])
        'Explains images (N, C, H, W), signals (N, C, T) or volumes (N, C, D, H, W). Reads a hidden layer.'
    """
    needs, options = declared(method), options_of(method)
    kinds = "inputs" if needs.reference == "any" else "tabular rows"
    sentences = {
        f"Explains {_SHAPES[needs.inputs][1]}{', and token ids' if needs.tokens else ''}.": True,
        "Reads a hidden layer.": "layer" in options,
        "Hides whole segments.": "segments" in options,
        f"Compares {kinds} with others, which a run draws from its data.": "reference" in options,
        "Accepts any function as a model.": needs.any_callable,
    }
    return " ".join(sentence for sentence, applies in sentences.items() if applies)


def options_of(method: Callable[..., Tensor]) -> dict[str, inspect.Parameter]:
    """Return a method's options by name, without those that belong to the samples and to a run, such as `seed`."""
    parameters = inspect.signature(method).parameters
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY and name not in _NO_OPTIONS}


def refuse_unknown(method: Callable[..., Tensor], options: Iterable[str]) -> None:
    """Refuse an option that a method does not have."""
    names = list(options_of(method))
    for name in options:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"`{name}` is no option of {method.__name__}; its options are {', '.join(names)}.{hint}")


def explain_copies(
    method: Callable[..., Tensor],
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    kinds: Sequence[str],
    **options: Any,
) -> dict[str, Tensor]:
    """Combine the noisy copies of a method that declares `copies_of` in several ways (`ENSEMBLES`) at once."""
    if declared(method).combined is None:
        options["ensemble"] = kinds[0]
    return dict(zip(kinds, _explain(method, kinds, model, inputs, targets, **options), strict=True))


def _explain(
    method: Callable[..., Tensor],
    kinds: Sequence[str] | None,
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    **arguments: Any,
) -> list[Tensor]:
    """Check the arguments of a call, and return its maps, or those of each kind of ensemble."""
    needs, name = declared(method), method.__name__
    (model, inputs, targets), options = check_arguments(method, (model, inputs, targets), arguments)
    check_numbers(options, kinds_of(method))
    with blaming("model"):
        text = are_tokens(inputs) and isinstance(model, nn.Module)
        if are_tokens(inputs) and isinstance(model, nn.Module):
            model, inputs = _read_tokens(needs, name, model, inputs)
        if isinstance(model, torch.jit.ScriptModule):
            model = _Program(model)
        shared = {option.name: options.pop(option.name, option.default) for option in fields_of(SharedOptions)}
        sign, features = shared.pop("sign"), shared.pop("features")
        request = make_request(model, inputs, targets, **shared)
        request = replace(request, tokens=text and needs.tokens == "masking")
        shape = request.inputs.shape
        feature_shape(shape, features)  # refuses channels of inputs that have none
        if features == "channels" and needs.inputs == "any":
            model, request = _with_one_channel(model), replace(request, inputs=request.inputs[:, None])
        axes, expected, remedy = _SHAPES[needs.inputs]
        if axes and not text and request.inputs.dim() not in axes:
            raise ValueError(f"`inputs` must be {expected} for {name}; got shape {tuple(shape)}.{remedy}")
        with torch.no_grad(), undisturbed(model) if isinstance(model, nn.Module) else nullcontext():
            explain: Any = inspect.unwrap(method)(model, request, **options)
            if kinds is None:
                maps = in_batches(model, request, lambda batch: [explain(batch)], sign)
            else:
                maps = in_batches(model, request, lambda batch: explain.combined(batch, kinds), sign)
        return maps if features == "positions" else [spread_over_channels(each, shape) for each in maps]


class _OneChannel(nn.Module):
    """A model of inputs (B, 1, C, *S), whose channels are positions."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Any:
        """Call it on (B, C, *S)."""
        return self.model(inputs.squeeze(1))


def _with_one_channel(model: Model) -> Model:
    return _OneChannel(model) if isinstance(model, nn.Module) else lambda rows: model(rows[:, 0])


class _Program(nn.Module):
    """A TorchScript program, which does not take hooks, as a module that does."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program

    def forward(self, inputs: Tensor) -> Any:
        """Run it."""
        return self.program(inputs)


def _read_tokens(needs: AttributionMethod, name: str, model: nn.Module, tokens: Any) -> tuple[nn.Module, Tensor]:
    """Replace token ids by embeddings, or by floating-point numbers."""
    if needs.tokens is None:
        raise ValueError(
            f"`inputs` are token ids, which {name} cannot explain; saliency, integrated_gradients and occlusion can, "
            "and so may your own function."
        )
    if needs.tokens == "positions":
        return model, tokens.float()
    if needs.tokens == "masking":
        if find_device(model, None)[1] in (torch.float16, torch.bfloat16):
            raise ValueError(f"`model` must be in float32 for {name} on token ids, which half precision rounds.")
        return MaskedModel(model), tokens.float()
    embedded = EmbeddedModel(model, tokens)
    return embedded, embedded.embed(tokens)
