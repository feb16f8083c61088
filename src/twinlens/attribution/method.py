"""The decorator behind every attribution method: what all of them share is declared and done once, here.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, D features of a tabular row.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Protocol, TypedDict, TypeVar

import torch
from torch import Tensor, nn

from twinlens.attribution.embeddings import EmbeddedModel
from twinlens.attribution.harness import (
    Request,
    check_numbers,
    in_batches,
    make_request,
    several_in_batches,
    undisturbed,
)
from twinlens.probing.model_call import Labels, Model, blaming
from twinlens.probing.tokens import are_tokens
from twinlens.support.arguments import check_arguments, kinds_of
from twinlens.support.arrays import ArrayLike
from twinlens.support.fields import Default, fields_of
from twinlens.support.signatures import arguments_of, with_all_arguments

Explain = Callable[[Request], Tensor]
"""From the request of one batch to attributions (B, C, *S) or maps (B, *S); channels are summed, negatives dropped."""

T = TypeVar("T")
Inputs = Literal["any", "spatial", "images"]

_SHAPES: Mapping[Inputs, tuple[tuple[int, ...], str, str]] = {
    "any": ((), "(N, C, *S), or (N, D) for tabular rows", ""),
    "spatial": ((3, 4, 5), "images (N, C, H, W) or signals (N, C, T)", " For tabular rows take occlusion or rise."),
    "images": ((4,), "images (N, C, H, W)", ""),
}
"""Kinds of inputs: their numbers of axes, what they are, and what to do with others."""

_OPTIONAL = ("reference", "layer", "segments")
"""What a method may need that is also an option of it, of the same name."""


class SharedOptions(TypedDict, total=False):
    """Options of every method."""

    ids: Annotated[Sequence[str | int] | None, Default(None)]
    """One name per sample, by which whatever is random is drawn; by default their numbers."""

    seed: Annotated[int, Default(0)]
    """Seed of whatever is random; a method without randomness has the same maps for all."""

    batch_size: Annotated[int | None, Default(None)]
    """Inputs per call of the model; by the size of an input and the device by default. It changes no map."""


@dataclass(frozen=True, kw_only=True)
class AttributionMethod:
    """Declare what a method needs; as a decorator, turn it into the function that people call.

    **How to write a method.** Write a function of the model and a `Request` that prepares what all batches share, and
    returns what explains one batch. Options of its own are keywords with defaults, and the section "Args" of its
    docstring explains these and no others:

        @AttributionMethod(inputs="images", layer=True)
        def gradcam(model: nn.Module, request: Request, *, layer: str | None = None) -> Explain:
            '''GradCAM (…): feature maps weighted by their mean gradients.'''

            def explain(part: Request) -> Tensor:
                ...  # attributions (B, C, *S) or maps (B, *S) of part.inputs for part.targets

            return explain

    Then put it into the tuple below `METHODS` in `attribution/__init__.py`. People call
    `gradcam(model, inputs, targets, *, layer=None, ids=None, seed=0, batch_size=None)`, and `help` lists all of these.

    Before your function runs, the types of all arguments, whole numbers (at least one), other numbers (neither negative
    nor beyond reason) and the shape of the inputs were checked; inputs are on the model's device and in the type of its
    weights. While it runs, and while it explains, the model is in evaluation mode, returns logits (B, K), and has no
    gradients of its weights; gradients are off, so say `torch.enable_grad()` where you need them. Modes, gradients and
    hooks are restored afterwards. Draw random numbers by `part.generators` or `part.normal` alone, so that neither
    batch size nor order changes a map. Raise `ValueError` with the argument's name in backquotes and a remedy.
    """

    inputs: Inputs = "any"
    """Kind of inputs that it can explain."""

    any_callable: bool = False
    """Whether it only calls the model, so that any function will do; otherwise the model must be an nn.Module."""

    model: str = "any differentiable module that returns logits"
    """What it asks of the model, in words."""

    reference: bool = False
    """Whether it compares inputs with others, in its option `reference`, which a run draws from its data."""

    layer: bool = False
    """Whether it reads a hidden layer, in its option `layer`."""

    segments: bool = False
    """Whether it explains segments instead of single features, in its option `segments`."""

    tokens: Literal["embeddings", "places"] | None = None
    """Whether it explains token ids: by their embeddings, or without a look at them; by default not at all."""

    control: bool = False
    """Whether it ignores the model, or was crafted to do well on a particular data set."""

    copies_of: str | None = None
    """Name of the explanation whose noisy copies it combines; methods with equal options share the copies."""

    combined: str | None = None
    """How it combines them, a name in `ENSEMBLES`; by default its option `ensemble` says it."""

    options_as: Callable[..., Tensor] | None = None
    """Another method, whose docstring explains the options that this one's does not."""

    def __call__(self, function: Callable[..., Explain]) -> Callable[..., Tensor]:
        """Turn a function `(model, request, *, …options) -> Explain` into one that people call."""

        @functools.wraps(function)
        def call(
            model: Model,
            inputs: ArrayLike,
            targets: Labels,
            *,
            ids: Sequence[str | int] | None = None,
            seed: int = 0,
            batch_size: int | None = None,
            **options: Any,
        ) -> Tensor:
            refuse_unknown(call, options)
            shared = {"ids": ids, "seed": seed, "batch_size": batch_size}
            return _explain(call, in_batches, model, inputs, targets, **shared, **options)

        call.declared = self  # type: ignore[attr-defined]
        call.__signature__ = self._signature(function)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in inspect.signature(call).parameters.values()}
        call.__doc__ = self._docstring(function, inspect.signature(call).parameters)
        return call

    def _signature(self, function: Callable[..., Explain]) -> inspect.Signature:
        hints = typing.get_type_hints(function)
        own = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        for need in _OPTIONAL:
            if getattr(self, need) != any(p.name == need for p in own):
                raise TypeError(
                    f"{function.__name__} must declare `{need}` if it has an option of that name, only then."
                )
        kinds = {"model": Model if self.any_callable else nn.Module, "inputs": ArrayLike, "targets": Labels}
        given = [
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=kind)
            for name, kind in kinds.items()
        ]
        shared = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
            for f in fields_of(SharedOptions)
        ]
        typed = [p.replace(annotation=hints[p.name]) for p in own]
        return inspect.Signature([*given, *typed, *shared], return_annotation=Tensor)

    def _docstring(self, function: Callable[..., Explain], parameters: Mapping[str, inspect.Parameter]) -> str:
        """Return the docstring with all arguments: what it says itself, else what is declared here or elsewhere."""
        written = inspect.getdoc(function) or ""
        known = {} if self.options_as is None else arguments_of(inspect.getdoc(self.options_as) or "")
        known |= {"model": f"{self.model}.", "inputs": f"{_SHAPES[self.inputs][1]}, as the model expects them."}
        known |= {"targets": "(N,) classes to explain."} | {f.name: f.help for f in fields_of(SharedOptions)}
        known |= arguments_of(written)
        return with_all_arguments(written, {name: known.get(name, "") for name in parameters})

    def describe(self) -> str:
        """Say what it explains and what it needs.

        Example:
            >>> AttributionMethod(inputs="images", reference=True).describe()
            'Explains images (N, C, H, W). Compares inputs with others, which a run draws from its data.'
        """
        said = [f"Explains {_SHAPES[self.inputs][1]}{', and token ids' if self.tokens else ''}."]
        said += ["Reads a hidden layer."] if self.layer else []
        said += ["Hides whole segments."] if self.segments else []
        said += ["Compares inputs with others, which a run draws from its data."] if self.reference else []
        said += ["Any function will do as a model."] if self.any_callable else []
        return " ".join(said)

    def check_shape(self, method: str, shape: Sequence[int]) -> None:
        """Refuse inputs of a shape that the method cannot explain."""
        axes, wanted, remedy = _SHAPES[self.inputs]
        if axes and len(shape) not in axes:
            raise ValueError(f"`inputs` must be {wanted} for {method}; got shape {tuple(shape)}.{remedy}")


def declared(method: Callable[..., Tensor]) -> AttributionMethod:
    """Return what a method of ours declares.

    Example:
        >>> from twinlens.attribution import METHODS
        >>> declared(METHODS["gradcam"]).layer
        True
    """
    found: AttributionMethod = method.declared  # type: ignore[attr-defined]
    return found


def options_of(method: Callable[..., Tensor]) -> dict[str, inspect.Parameter]:
    """Return a method's options by name, without `ids` and `seed`, which belong to the samples and to a run."""
    parameters = inspect.signature(method).parameters
    return {name: p for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY and name not in ("ids", "seed")}


def refuse_unknown(method: Callable[..., Tensor], options: Iterable[str]) -> None:
    """Refuse an option that a method does not have."""
    known = options_of(method)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"`{name}` is no option of {method.__name__}; its options are {', '.join(known)}.{hint}")


class _Combined(Protocol):
    """What explains a batch in several ways from the same calls of the model."""

    def combined(self, part: Request, kinds: Sequence[str]) -> list[Tensor]: ...


def explain_copies(
    method: Callable[..., Tensor],
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    kinds: Sequence[str],
    **options: Any,
) -> dict[str, Tensor]:
    """Combine the noisy copies of a method in several ways, for the price of one; arguments as for the method.

    Args:
        method: one that declares `copies_of`.
        model: as for the method.
        inputs: as for the method.
        targets: as for the method.
        kinds: how they are combined, names in `ENSEMBLES`.
        **options: options of the method.
    """
    if declared(method).combined is None:
        options["ensemble"] = kinds[0]

    def run(model: nn.Module, request: Request, explain: _Combined) -> list[Tensor]:
        return several_in_batches(model, request, lambda part: explain.combined(part, kinds))

    return dict(zip(kinds, _explain(method, run, model, inputs, targets, **options), strict=True))


def _explain(
    method: Callable[..., Tensor],
    run: Callable[[Any, Request, Any], T],
    model: Model,
    inputs: ArrayLike,
    targets: Labels,
    **given: Any,
) -> T:
    """Check the arguments of a call, make its request, and explain it with the model undisturbed."""
    about, name, function = declared(method), method.__name__, inspect.unwrap(method)
    (model, inputs, targets), options = check_arguments(method, (model, inputs, targets), given)
    check_numbers(options, kinds_of(method))
    with blaming("model"):
        if are_tokens(inputs) and isinstance(model, nn.Module):
            model, inputs = _read_tokens(about, name, model, inputs)
        if isinstance(model, torch.jit.ScriptModule):
            model = _Program(model)
        shared = {option.name: options.pop(option.name, option.default) for option in fields_of(SharedOptions)}
        request = make_request(model, inputs, targets, **shared)
        about.check_shape(name, request.inputs.shape)
        with torch.no_grad(), undisturbed(model) if isinstance(model, nn.Module) else nullcontext():
            return run(model, request, function(model, request, **options))


class _Program(nn.Module):
    """A program of TorchScript, which takes no hooks, as a module that does."""

    def __init__(self, program: nn.Module) -> None:
        super().__init__()
        self.program = program

    def forward(self, inputs: Tensor) -> Any:
        """Run the program."""
        return self.program(inputs)


def _read_tokens(about: AttributionMethod, name: str, model: nn.Module, tokens: Any) -> tuple[nn.Module, Tensor]:
    """Put embeddings, or numbers, in the place of token ids."""
    if about.tokens is None:
        raise ValueError(
            f"`inputs` are token ids, which {name} cannot explain; saliency and integrated_gradients can, and so may a "
            "function of yours."
        )
    if about.tokens == "places":
        return model, tokens.float()
    embedded = EmbeddedModel(model, tokens)
    return embedded, embedded.embed(tokens)
