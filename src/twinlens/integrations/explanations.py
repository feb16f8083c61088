"""Explanations of other libraries, called as methods: Captum, pytorch-grad-cam, Quantus, shap, and custom functions.

None of these libraries is imported; their objects are recognised by the module of their class. By default their maps
are read like those of our own methods: channels summed, negative values dropped, coarse maps enlarged.

Shapes: N samples, C channels, S = spatial shape.
"""

from __future__ import annotations

import functools
import inspect
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.attribution import METHODS, plugin_method
from twinlens.probing.answers import answering_logits
from twinlens.probing.maps import (
    AS_IT_IS,
    Features,
    Reading,
    ReadingOptions,
    check_maps,
    feature_shape,
    spread_over_channels,
    to_float32,
)
from twinlens.probing.model_call import Labels, Model, blaming, check_inputs, evaluating, find_device
from twinlens.probing.shap_values import contributions_to_targets
from twinlens.probing.tokens import TokenModel, are_tokens, called_with_tokens, pack_tokens
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, as_tensor

AS_OUR_OWN = Reading(sign="positive", channels="sum", resize="bilinear")
"""How maps of other libraries are read."""


@dataclass(frozen=True)
class Explanation:
    """A custom function, or an explanation of another library, with the interface of a method."""

    explain: Callable[..., Any]
    """The callable as it was passed."""

    owner: Any
    """The object behind it, without options bound by functools.partial."""

    reading = AS_IT_IS

    def __call__(
        self,
        model: Model,
        inputs: ArrayLike,
        targets: Labels,
        *,
        ids: Sequence[str | int] | None = None,
        seed: int = 0,
        **options: Any,
    ) -> Tensor:
        """Explain inputs (N, C, *S) for targets (N,); the callable gets both as tensors on the model's device."""
        device, dtype = find_device(model, None)
        values, classes = as_tensor(inputs, "inputs").to(device), as_tensor(targets, "targets").to(device)
        if dtype is not None and not are_tokens(values):
            values = values.to(dtype)
        maps = self.run(model, values, classes, {"ids": ids, "seed": seed}, options)
        try:
            return as_tensor(maps, "maps").detach()
        except TypeError as error:
            raise TypeError(f"`method` returned maps that cannot be used: {error}") from None

    def run(
        self, model: Model, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Any], options: Mapping[str, Any]
    ) -> ArrayLike:
        """Call a function `(model, inputs, targets, …)`, with `ids` and `seed` if it takes them."""
        parameters = inspect.signature(self.explain).parameters
        anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        keywords = {name: value for name, value in drawn.items() if anything or name in parameters}
        maps: ArrayLike = self.explain(model, inputs, targets, **keywords, **options)
        return maps

    def split_options(self, options: Mapping[str, Any], fallback: ReadingOptions) -> tuple[Reading, dict[str, Any]]:
        """Return how its maps are read, and its own options; `fallback` counts where the options do not say."""
        own, reading = dict(options), asdict(self.reading)
        signature = {} if self.explain is self.owner else inspect.signature(self.explain).parameters
        for name in reading:
            value = getattr(fallback, name, None)
            if name in own and name not in signature:
                reading[name] = own.pop(name)
            elif value != getattr(AS_IT_IS, name):
                reading[name] = value
        return Reading(**reading), own

    @property
    def reads_answers(self) -> bool:
        """Whether it reads the model's output directly, as a custom function does."""
        return True

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Detach it from the model while others call the model."""
        yield


class CaptumMethod(Explanation):
    """An attribution of Captum, or its method `attribute`; options are those of `attribute`."""

    reading = AS_OUR_OWN

    @property
    def reads_answers(self) -> bool:
        """Whether it calls the model through a custom function."""
        return not isinstance(getattr(self.owner, "forward_func", None), nn.Module)

    def run(
        self, model: Model, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Any], options: Mapping[str, Any]
    ) -> ArrayLike:
        """Return the attribution of the targets."""
        _check_same(getattr(self.owner, "forward_func", None), model)
        attribute = getattr(self.explain, "attribute", self.explain)
        own: Model = model
        arguments: dict[str, Any] = {"inputs": inputs}
        if isinstance(model, TokenModel):
            own, arguments = model.model, {"inputs": inputs[:, 0], "additional_forward_args": (inputs[:, 1],)}
        answering = nullcontext() if self.reads_answers else answering_logits(own)
        with evaluating(own), answering, torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*required_grads has been set automatically")
            torch.manual_seed(drawn["seed"])
            maps = attribute(**arguments, target=targets, **options)
        one: Tensor = maps[0] if isinstance(maps, tuple) else maps
        return one.transpose(1, 2) if are_tokens(inputs) and one.dim() == 3 else one  # of embeddings (N, T, D)


class GradCamMethod(Explanation):
    """An object of pytorch-grad-cam; options are those of its call."""

    reading, reads_answers = AS_OUR_OWN, False

    def run(
        self, model: Model, inputs: Tensor, targets: Tensor, _: Mapping[str, Any], options: Mapping[str, Any]
    ) -> ArrayLike:
        """Return the maps of the targets."""
        _check_same(self.owner.model, model)
        with self._hooked(), evaluating(model), answering_logits(model), torch.enable_grad():
            scores = [operator.itemgetter((..., target)) for target in targets.tolist()]  # one logit of each sample
            maps: ArrayLike = self.explain(input_tensor=inputs, targets=scores, **options)
        return maps

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Detach its hooks, which would keep the features of every probe in memory."""
        self._release()
        try:
            yield
        finally:
            self._hook()

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        resting = not self.owner.activations_and_grads.handles
        if resting:
            self._hook()
        try:
            yield
        finally:
            if resting:
                self._release()

    def _hook(self) -> None:
        watching, own = type(self.owner.activations_and_grads), self.owner
        own.activations_and_grads = watching(own.model, own.target_layers, own.reshape_transform)

    def _release(self) -> None:
        self.owner.activations_and_grads.release()
        self.owner.activations_and_grads.handles.clear()


class ShapMethod(Explanation):
    """An explainer of shap, which takes arrays of NumPy, or tensors if it is of a network; options are of its call."""

    reading = AS_OUR_OWN

    def run(
        self, _: Model, inputs: Tensor, targets: Tensor, drawn: Mapping[str, Any], options: Mapping[str, Any]
    ) -> ArrayLike:
        """Return the contributions to the targets."""
        network = getattr(getattr(self.owner, "explainer", None), "model", None)
        samples = inputs if isinstance(network, nn.Module) else inputs.cpu().numpy()
        before = np.random.get_state()  # noqa: NPY002 (explainers draw from it)
        np.random.seed(drawn["seed"] % 2**32)  # noqa: NPY002
        try:
            explanation = self.explain(samples, **options)
        finally:
            np.random.set_state(before)  # noqa: NPY002
        return contributions_to_targets(explanation, targets, inputs)


class QuantusMethod(Explanation):
    """`quantus.explain`, which takes and returns arrays of NumPy; options are those of its call."""

    reading, reads_answers = AS_OUR_OWN, False

    def run(
        self, model: Model, inputs: Tensor, targets: Tensor, _: Mapping[str, Any], options: Mapping[str, Any]
    ) -> ArrayLike:
        """Return the maps of the targets."""
        with answering_logits(model):
            maps: ArrayLike = self.explain(model, inputs.cpu().numpy(), targets.cpu().numpy(), **options)
        return maps


def adapt(explain: Callable[..., Any], argument: str = "methods") -> Explanation:
    """Return a custom function, or an explanation of another library, as a method; `argument` is named in errors.

    Example:
        >>> def brightness(model, inputs, targets):
        ...     return inputs.abs().sum(dim=1)
        >>> adapt(brightness)(nn.Linear(2, 2), torch.ones(1, 3, 2), [0], seed=5)
        tensor([[3., 3.]])
    """
    if not callable(explain) and not hasattr(explain, "attribute"):
        raise TypeError(f"`{argument}` must name a method or a function; got {type(explain).__name__}.")
    inner = explain
    while isinstance(inner, functools.partial):
        inner = inner.func
    owner = getattr(inner, "__self__", inner)
    libraries = {parent.__module__.partition(".")[0] for parent in type(owner).__mro__}
    if "captum" in libraries and hasattr(owner, "attribute"):
        return CaptumMethod(explain, owner)
    if "pytorch_grad_cam" in libraries and hasattr(owner, "activations_and_grads"):
        return GradCamMethod(explain, owner)
    if "shap" in libraries and callable(explain):
        return ShapMethod(explain, owner)
    if str(getattr(inner, "__module__", "")).partition(".")[0] == "quantus":
        return QuantusMethod(explain, owner)
    return Explanation(explain, owner)


def _check_same(own: object, model: Model) -> None:
    """Refuse an explanation of a model of the same kind with other weights."""
    if own is model or not isinstance(own, nn.Module) or not isinstance(model, nn.Module):
        return
    mine, its = own.state_dict(), model.state_dict()
    if mine.keys() == its.keys() and any(
        mine[k].shape != its[k].shape or not torch.equal(mine[k].cpu(), its[k].cpu()) for k in mine
    ):
        raise ValueError(
            "`methods` has an explanation of another model than the one being evaluated: their weights differ. Create "
            "it for this model."
        )


@checked
def attribute(
    model: Model,
    inputs: ArrayLike | Mapping[str, Any],
    targets: Labels,
    method: Any = "integrated_gradients",
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    features: Features = "positions",
    **options: Any,
) -> Tensor:
    """Explain why a model gives each input its target class.

    Args:
        model: an `nn.Module` that returns logits; for `kernel_shap` also a callable such as `predict_proba`.
        inputs: (N, C, *S), or (N, D) for tabular rows, as the model expects them; or what a tokenizer returns.
        targets: (N,) classes to explain.
        method: a name in `METHODS`; a function `(model, inputs, targets)`, which may also take `ids`, `seed` and
            options; an attribution of Captum, an object of pytorch-grad-cam, `quantus.explain`, an explainer of shap.
        ids: one name per sample; random draws derive from `seed` and the name.
        seed: random seed.
        features: what a feature is: a position with all of its channels, or with "channels" one channel of a position,
            in maps (N, C, *S). Methods that have no values for channels share theirs equally among them.
        **options: options of the method; `help(tl.METHODS[name])` explains them. For other methods, `sign`, `channels`
            and `resize` say how maps are read, as in `evaluate`.

    Returns:
        Maps (N, *S), float32, values >= 0 unless sign="signed". A map beyond the range of float32 is scaled by a power
        of two.

    Example:
        >>> import torch
        >>> linear = torch.nn.Linear(3, 2, bias=False)
        >>> linear.weight.data = torch.tensor([[1.0, -1.0, 0.0], [0.0, 2.0, 0.0]])
        >>> attribute(linear, torch.tensor([[5.0, 1.0, 7.0]]), [0], "integrated_gradients")
        tensor([[5., 0., 0.]])
    """
    if isinstance(inputs, Mapping):
        model, inputs = called_with_tokens(model), pack_tokens(inputs)
    if isinstance(method, str) and method not in METHODS:
        method = plugin_method("method", method, or_else=", or a function")
    if isinstance(method, str):
        return METHODS[method](model, inputs, targets, ids=ids, seed=seed, features=features, **options)
    explanation = adapt(method, "method")
    reading, own = explanation.split_options(options, AS_IT_IS)
    values, names = check_inputs(inputs, ids, tokens=True)
    with blaming("method"):
        maps = explanation(model, values, targets, ids=names, seed=seed, **own)
    try:
        if features == "channels":
            maps = spread_over_channels(maps, values.shape)
        return to_float32(check_maps(maps, feature_shape(values.shape, features), ids=names, reading=reading))
    except (ValueError, TypeError) as error:
        raise type(error)(f"`method` returned maps that cannot be used: {error}") from None
