"""Imputers: functions that fill in removed features.

An imputer is called as `imputer(inputs, keep, streams)`. Only imputers depend on what a neighbour is.

Shapes: B rows, each a (sample, level) pair; C channels; S = spatial shape. Inputs are (B, C, *S), or (B, D) for
tabular rows, and keep is (B, *S), True where a feature stays. If each channel has features of its own, keep is
(B, C, *S).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from ctypes import CDLL
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twinlens.errors import RunError, short_repr, unknown
from twinlens.imputation.multigrid import solve
from twinlens.imputation.multigrid_compiled import add_noise, load_library
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, as_array, check_dense
from twinlens.support.code_digest import describe_function
from twinlens.support.fields import JSON, check_types, from_json, to_json

_WIDEST = 10_000.0  # largest sigma; wider kernels would fill memory
_STORED_MEANS = 4096  # numbers of a mean that run.json stores; of larger ones it stores a digest
_MOST_TOKENS = 2**31
REMOVED = -1
"""A removed token. As an id: its embedding is the mean of the vocabulary. In the attention mask: no token sees it."""


class Imputer(Protocol):
    """Anything that fills in removed features."""

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:
        """Fill in the removed features of each row; `streams` has a random seed for each row."""
        ...


@checked
def impute_linear(images: Tensor, keep: Tensor, *, tolerance: float = 1e-3, method: str = "auto") -> Tensor:
    """Fill in removed features with the weighted mean of their neighbours, without noise (Rong et al. 2022).

    `twinlens.imputation.multigrid.solve` takes the same arguments and also reports how each image was solved.

    Args:
        images: (N, C, H, W), or (N, C, T) for signals and (N, C, D, H, W) for volumes, floating-point.
        keep: (N, *S) bool, True where a feature stays; at least one feature of every image must be kept.
        tolerance: largest absolute error against the exact solution, in the units of the images.
        method: "auto", "multigrid", "torch" or "direct"; see `twinlens.imputation.multigrid.solve`.

    Returns:
        Images of the same shape, in which kept features are unchanged.

    Example:
        >>> image, keep = torch.zeros(1, 1, 3, 3), torch.ones(1, 3, 3, dtype=torch.bool)
        >>> image[0, 0, 0, 1], keep[0, 1, 1] = 6.0, False
        >>> impute_linear(image, keep)[0, 0, 1, 1]
        tensor(1.)
    """
    return solve(images, keep, tolerance=tolerance, method=method).values


def _check_numbers(imputer: object) -> None:
    """Check the fields of an imputer; numbers must fit into 32 bits, like inputs."""
    check_types(imputer)
    for name, value in vars(imputer).items():
        if isinstance(value, float) and abs(value) > torch.finfo(torch.float32).max:
            raise ValueError(f"`{name}` must be a number of 32 bits; got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class LinearImputer:
    """Noisy linear imputation (Rong et al. 2022): a removed feature is the weighted mean of its neighbours.

    Needs neighbours: images (B, C, H, W), signals (B, C, T) or volumes.

    Example:
        >>> imputer = LinearImputer(noise=0.0)
        >>> signal, keep = torch.tensor([[[0.0, 9.0, 9.0, 3.0]]]), torch.tensor([[True, False, False, True]])
        >>> imputer(signal, keep, streams=[0])
        tensor([[[0., 1., 2., 3.]]])
    """

    noise: float = 0.01
    """Standard deviation of the Gaussian noise added to imputed values, in the model's normalised units."""

    tolerance: float = 1e-3
    """Largest absolute error of the linear solve."""

    method: str = "auto"
    """How the system is solved; see `impute_linear`."""

    empty: float = 0.0
    """Fills an input of which no feature is kept, as for constant maps under removal by value. For normalised inputs, 0
    is the mean of the data."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        if not self.noise >= 0 or not self.tolerance > 0:
            raise ValueError(
                f"`noise` must be >= 0 and `tolerance` > 0; got noise={self.noise!r}, tolerance={self.tolerance!r}."
            )

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int], *, channels_last: bool = False) -> Tensor:
        """Solve for the removed features, then add the noise of each row's stream to them.

        With `channels_last`, images are returned in that memory format, for a model that is called with it.
        """
        _refuse_rows(inputs, "linear imputation")
        if keep.dim() == inputs.dim():
            return self._impute_channels(inputs, keep, streams)
        filled = solve(inputs, keep, tolerance=self.tolerance, method=self.method, empty=self.empty).values
        channels_last = channels_last and filled.dim() == 4
        library = _noise_library(filled) if filled.device.type == "cpu" else None
        if library is not None and (self.noise or channels_last):
            return add_noise(library, filled, keep, streams, self.noise, channels_last=channels_last)
        if self.noise:
            removed = (~keep.unsqueeze(1)).to(filled.dtype)
            filled = filled.addcmul_(_draw_noise(filled, streams), removed, value=self.noise)
        return filled

    def _impute_channels(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:
        """Solve for the removed values (B, C, *S) of each channel alone; the noise does not depend on that."""
        channels, kept = inputs.flatten(0, 1).unsqueeze(1), keep.flatten(0, 1)
        filled = solve(channels, kept, tolerance=self.tolerance, method=self.method, empty=self.empty).values
        if self.noise:
            filled = filled.reshape(inputs.shape)
            filled = filled.addcmul_(_draw_noise(filled, streams), (~keep).to(filled.dtype), value=self.noise)
        return filled.reshape(inputs.shape)


def _noise_library(filled: Tensor) -> CDLL | None:
    """Return the compiled library if it draws noise for such inputs; torch draws fewer than 16 values differently."""
    return load_library() if filled.dtype == torch.float32 and math.prod(filled.shape[1:]) >= 16 else None


def _draw_noise(filled: Tensor, streams: Sequence[int]) -> Tensor:
    """Draw standard normal noise on the CPU: it is the same for every device."""
    noise, library = torch.zeros(filled.shape, dtype=filled.dtype), _noise_library(filled)
    if library is not None:
        all_removed = torch.zeros(len(noise), math.prod(noise.shape[2:]), dtype=torch.bool)
        return add_noise(library, noise, all_removed, streams, 1.0, channels_last=False).to(filled.device)
    generator = torch.Generator()
    for row, seed in zip(noise, streams, strict=True):
        row.normal_(generator=generator.manual_seed(seed))
    return noise.to(filled.device)


def _refuse_rows(inputs: Tensor, imputation: str) -> None:
    if inputs.dim() == 2:
        raise ValueError(
            f"`imputer`: {imputation} needs neighbours, and inputs of shape {tuple(inputs.shape)} have none. "
            "For tabular rows pass tl.MeanImputer(mean) or tl.ConstantImputer(value)."
        )


@dataclass(frozen=True)
class ConstantImputer:
    """Imputation of one constant value.

    Example:
        >>> ConstantImputer(7.0)(torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]), streams=[0])
        tensor([[1., 7.]])
    """

    value: float = 0.0
    """The value, in the units of the model's inputs."""

    def __post_init__(self) -> None:
        _check_numbers(self)

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Replace the features that are not kept."""
        return torch.where(_over_channels(keep, inputs), inputs, self.value)


@dataclass(frozen=True, eq=False, repr=False)
class MeanImputer:
    """Imputation of the mean of the data.

    Example:
        >>> MeanImputer([0.5, 4.0])(torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]), streams=[0])
        tensor([[1., 4.]])
    """

    mean: float | Sequence[float] | ArrayLike | None = None
    """One number, one per channel (C,), one per channel and feature (C, *S); for tabular rows one per feature (D,).
    Compute it on training data, to reveal nothing about the sample. In `evaluate`, the default is the mean of the
    evaluated samples: one number per channel, or per feature of tabular rows."""

    def __post_init__(self) -> None:
        if self.mean is not None and not np.isfinite(self._values()).all():
            raise ValueError("`mean` must be finite; it holds NaN or infinity.")

    def __repr__(self) -> str:
        # Probe tables compare imputers by their repr, which must therefore depend on all numbers.
        if self.mean is None:
            return "MeanImputer()"
        mean = self._values()
        return f"MeanImputer({mean.tolist()})" if mean.size <= 4 else f"MeanImputer({self._digest()})"

    def _values(self) -> NDArray[np.float64]:
        assert self.mean is not None
        return as_array(self.mean, "mean").astype(np.float64)

    def _digest(self) -> str:
        mean = self._values()
        digest = hashlib.blake2b(np.ascontiguousarray(mean).tobytes(), digest_size=8).hexdigest()
        return f"{mean.shape} values {digest}"

    def described(self) -> JSON:
        """Return the mean as run.json stores it: its numbers, or a digest of many numbers."""
        if self.mean is None:
            return None
        values: JSON = self._values().tolist()
        return values if self._values().size <= _STORED_MEANS else self._digest()

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Replace the features that are not kept."""
        if self.mean is None:
            raise ValueError("`mean` is missing: pass tl.MeanImputer(mean), with the mean of your training data.")
        mean = torch.from_numpy(self._values()).to(inputs)
        if mean.dim() == 1 and inputs.dim() > 2 and mean.shape == inputs.shape[1:2]:
            mean = mean.reshape(-1, *[1] * (inputs.dim() - 2))
        elif mean.dim() > 0 and mean.shape != inputs.shape[1:]:
            raise ValueError(
                f"`mean` must be one number, one per channel, or shaped like one input {tuple(inputs.shape[1:])}; "
                f"got shape {tuple(mean.shape)}."
            )
        return torch.where(_over_channels(keep, inputs), inputs, mean)


@dataclass(frozen=True, kw_only=True)
class BlurImputer:
    """Imputation from a blurred copy of the input (Petsiuk et al. 2018, for insertion).

    Example:
        >>> spike, nothing = torch.tensor([[[0.0, 0.0, 4.0, 0.0, 0.0]]]), torch.zeros(1, 5, dtype=torch.bool)
        >>> BlurImputer(sigma=0.5)(spike, nothing, streams=[0]).round(decimals=2)
        tensor([[[0.0000, 0.4300, 3.1500, 0.4300, 0.0000]]])
    """

    sigma: float = 5.0
    """Standard deviation of the Gaussian, in features; the kernel ends at three standard deviations, and the
    border value continues outside."""

    def __post_init__(self) -> None:
        _check_numbers(self)
        if not 0 < self.sigma <= _WIDEST:
            raise ValueError(f"`sigma` must be > 0 and at most {_WIDEST:g}; got {self.sigma!r}.")

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Replace the features that are not kept."""
        _refuse_rows(inputs, "a blur")
        radius = max(1, math.ceil(3 * self.sigma))
        distance = torch.arange(-radius, radius + 1, dtype=inputs.dtype, device=inputs.device)
        kernel = torch.exp(-(distance**2) / (2 * self.sigma**2))
        blurred = inputs
        for axis in range(2, inputs.dim()):
            blurred = _convolve(blurred, kernel / kernel.sum(), axis)
        return torch.where(_over_channels(keep, inputs), inputs, blurred)


def _convolve(inputs: Tensor, kernel: Tensor, axis: int) -> Tensor:
    lines = inputs.movedim(axis, -1)
    flat = lines.reshape(-1, 1, lines.shape[-1])
    radius = len(kernel) // 2
    padded = torch.nn.functional.pad(flat, (radius, radius), mode="replicate")
    smooth = torch.nn.functional.conv1d(padded, kernel.reshape(1, 1, -1))
    return smooth.reshape(lines.shape).movedim(-1, axis)


def _over_channels(keep: Tensor, inputs: Tensor) -> Tensor:
    return keep if keep.dim() == inputs.dim() else keep.unsqueeze(1)


@dataclass(frozen=True)
class TokenImputer:
    """Removal of tokens: by a mask token or another one without meaning, or in one of three ways without such a token.

    Example:
        >>> tokens = torch.tensor([[101, 7, 8, 102]])
        >>> imputer = TokenImputer(103, special=(101, 102))
        >>> imputer(tokens, torch.tensor([[True, True, False, True]]), streams=[0]), imputer.segments(tokens)
        (tensor([[101,   7, 103, 102]]), tensor([[-1,  0,  1, -1]]))
        >>> packed = torch.stack([tokens, torch.ones_like(tokens)], dim=1)
        >>> TokenImputer(removal="delete")(packed, torch.tensor([[True, False, True, True]]), streams=[0])
        tensor([[[101,   8, 102,   0],
                 [  1,   1,   1,   0]]])
    """

    mask_id: int | None = None
    """Id of the token that replaces removed ones. In `evaluate`, the default is the tokenizer's mask token."""

    special: tuple[int, ...] = ()
    """Ids of tokens that always stay and are no features, such as a tokenizer's `all_special_ids`, which are the
    default in `evaluate` with a tokenizer."""

    removal: Literal["auto", "mask", "pad", "delete", "mean"] = "auto"
    """How a token is removed: "mask" replaces it by `mask_id`; "pad" hides it from all others, as padding is hidden;
    "delete" shortens the text; "mean" replaces its embedding by the mean of the vocabulary. All but "mask" need an
    attention mask. "auto" is "mask" with a `mask_id`, and "mean" without."""

    def __post_init__(self) -> None:
        check_types(self)
        for name, ids in (("mask_id", (self.mask_id,)), ("special", self.special)):
            for token in ids:
                if token is not None and not 0 <= token < _MOST_TOKENS:
                    raise ValueError(f"`{name}` must be token ids from 0 on; got {token}.")
        if self.removal == "mask" and self.mask_id is None:
            raise ValueError("`mask_id` is missing: pass the id of a mask token, or choose another `removal`.")

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Remove the tokens that are not kept."""
        if inputs.is_floating_point():
            raise TypeError(f"`imputer`: a token imputer needs token ids, which are integers; got {inputs.dtype}.")
        removal = self.removal if self.removal != "auto" else "mean" if self.mask_id is None else "mask"
        if inputs.dim() == keep.dim():
            if removal != "mask":
                raise ValueError(
                    f"`imputer`: removal {removal!r} needs ids with an attention mask, as a tokenizer returns them; "
                    f"got ids alone, of shape {tuple(inputs.shape)}. Pass both, or a `mask_id`."
                )
            return torch.where(keep, inputs, self.mask_id or 0)
        ids, attention = inputs[:, 0], inputs[:, 1]
        if removal == "mask":
            ids = torch.where(keep, ids, self.mask_id or 0)
        elif removal == "mean":
            ids = torch.where(keep, ids, REMOVED)
        elif removal == "pad":
            attention = torch.where(keep, attention, REMOVED * attention)
        else:
            order = (~keep).long().argsort(dim=1, stable=True)
            ids, attention = (torch.where(keep, each, 0).gather(1, order) for each in (ids, attention))
        return torch.cat([ids[:, None], attention[:, None], inputs[:, 2:]], dim=1)

    def segments(self, inputs: Tensor) -> Tensor:
        """Number the tokens (N, T) that are features; special ones and padding are -1."""
        ids = inputs if inputs.dim() == 2 else inputs[:, 0]
        stays = torch.isin(ids, torch.tensor(self.special, dtype=ids.dtype, device=ids.device))
        if inputs.dim() == 3:
            stays |= inputs[:, 1] == 0
        return torch.where(stays, -1, (~stays).long().cumsum(dim=1) - 1)


@dataclass(frozen=True, kw_only=True)
class UnavailableImputer:
    """An imputer of which a run stores only the description: a custom function, or a mean too large to store.

    Its probes can be read, but no more can be computed.
    """

    description: Mapping[str, JSON]
    """The result of `describe_imputer`."""

    def __call__(self, inputs: Tensor, keep: Tensor, streams: Sequence[int]) -> Tensor:  # noqa: ARG002
        """Refuse to impute."""
        raise RunError(f"`imputer` of this run is a custom one ({dict(self.description)}). Pass it again.")


IMPUTERS: dict[str, type[Imputer]] = {
    "linear": LinearImputer,
    "constant": ConstantImputer,
    "mean": MeanImputer,
    "blur": BlurImputer,
    "token": TokenImputer,
}
"""Every imputer by its name on the command line and in run.toml."""


def takes_tokens(imputer: Imputer) -> bool:
    """Return whether an imputer may accept token ids: `TokenImputer`, or a custom one."""
    return isinstance(imputer, TokenImputer) or type(imputer) not in IMPUTERS.values()


def check_imputed(imputed: object, inputs: Tensor) -> Tensor:
    """Return what an imputer made of inputs (B, C, *S), refused if it is anything else than inputs of this shape."""
    if not isinstance(imputed, Tensor) or imputed.shape != inputs.shape:
        what = f"shape {tuple(imputed.shape)}" if isinstance(imputed, Tensor) else type(imputed).__name__
        raise TypeError(f"`imputer` must return inputs of shape {tuple(inputs.shape)}; it returned {what}.")
    return check_dense(imputed, "imputer")


def find_imputer(imputer: str | Mapping[str, Any] | Imputer) -> Imputer:
    """Return an imputer by its name, from a table of its name and settings, or as it was passed."""
    if not isinstance(imputer, (str, Mapping)):
        if not callable(imputer):
            raise TypeError(
                f"`imputer` must be one of {', '.join(IMPUTERS)}, or a function; got {short_repr(imputer)}."
            )
        return imputer
    settings = {"name": imputer} if isinstance(imputer, str) else dict(imputer)
    name = settings.pop("name", None)
    if name not in IMPUTERS:
        raise unknown("imputer", name, IMPUTERS)
    return from_json(IMPUTERS[name], settings, f"imputer {name}")


def describe_imputer(imputer: Imputer) -> dict[str, JSON]:
    """Describe an imputer for run.json; `restore_imputer` restores those of `IMPUTERS`."""
    if isinstance(imputer, UnavailableImputer):
        return dict(imputer.description)
    name = next((name for name, kind in IMPUTERS.items() if type(imputer) is kind), None)
    if name is None:
        return {"name": "own", **describe_function(imputer)}
    if isinstance(imputer, MeanImputer):
        return {"name": name, "mean": imputer.described()}
    return {"name": name, **to_json(imputer)}


def restore_imputer(description: Mapping[str, JSON]) -> Imputer:
    """Return an imputer from its description; an `UnavailableImputer` for custom ones and means too large to store."""
    mean = description.get("mean")
    if description["name"] not in IMPUTERS or isinstance(mean, str):
        return UnavailableImputer(description=description)
    return MeanImputer(np.asarray(mean)) if isinstance(mean, list) else find_imputer(description)
