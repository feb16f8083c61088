"""Attribution by information bottlenecks: replace features by noise, and count the bits that the class still needs.

IBA fits a bottleneck behind a hidden layer to each sample. InputIBA carries it to the input and its resolution.

Shapes: B samples of one batch, n copies of each with other noise, C channels of the input, S = its spatial shape,
K channels of the hidden layer, s = its spatial shape, W units of a critic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from twinlens.attribution.feature_point import FeaturePoint, Moments
from twinlens.attribution.harness import Request
from twinlens.attribution.method import AttributionMethod, Explain
from twinlens.attribution.perturbation import blur
from twinlens.probing.maps import LINEAR
from twinlens.support.arrays import ArrayLike

_INITIAL = 5.0  # of the masks before the sigmoid: at first, nearly everything passes (Schulz et al. 2020)
_NEARLY_ONE = 1 - 1e-6  # the mask of a feature that passes; at 1 it would carry infinitely many bits

# Of the authors' code for Zhang et al. 2021: weight of the information at the layer; learning rates of the generator's
# noise mean, noise scale and mask, and of the critic, whose weights are clipped.
_FEATURE_BETA = 20.0
_NOISE_MEAN_LR, _NOISE_SCALE_LR, _MASK_LR, _CRITIC_LR, _CLIP = 0.1, 0.05, 0.003, 5e-5, 0.01
_BATCHES_BEHIND = 8  # batches of inputs whose numbers go through the few layers behind a bottleneck at a time
_CRITIC_WIDTH = 16  # with 64, maps are nearly the same (correlation 0.99) and cost twice as much


@AttributionMethod(title="IBA", inputs="spatial")
def iba(
    model: nn.Module,
    request: Request,
    *,
    layer: str | None = None,
    reference: ArrayLike | None = None,
    beta: float = 10.0,
    steps: int = 10,
    lr: float = 1.0,
    noise: int = 10,
    sigma: float = 1.0,
) -> Explain:
    """IBA (Schulz et al. 2020): the bits that each position of a hidden layer must transmit for the target.

    Features R of the layer become Z = λR + (1 - λ)ε, where ε has the mean and the standard deviation of the features.
    For each sample, λ minimises the cross-entropy of the target plus `beta` times the mean information in Z.

    Args:
        layer: dotted name of the layer; by default the end of the last stage but one, the last feature map of a higher
            resolution than the final one. The authors use similar layers: conv4_1 of VGG16 (`features.17`), and the
            second stage of ResNet-50.
        reference: inputs (M, C, *S) from which mean and standard deviation of each feature are estimated; 10 000 of
            the training set in the paper. By default `inputs`; all positions of a channel then share both, and maps
            depend on which inputs are explained in one call. Features that are zero for 99% of them carry no bits.
        beta: weight of the information; 10 in the paper. A larger one leaves fewer bits.
        steps: steps of Adam; 10 in the paper.
        lr: its learning rate; 1 in the paper.
        noise: copies of a sample with different noise at each step; 10 in the paper.
        sigma: width of the blur of λ, in positions of the layer; 1 in the paper.

    Returns:
        Maps (N, *S): bits per pixel; those of each position of the layer, summed over channels, are spread over its
        pixels by linear interpolation.
    """
    point = FeaturePoint.find(model, request, layer, reference)

    @torch.enable_grad()
    def explain(batch: Request) -> Tensor:
        features, share = _fit_features(point, batch, _Search(beta, steps, lr, noise, sigma), "iba")
        return _bits_per_pixel(point, features, share, batch.inputs)

    return explain


@AttributionMethod(title="InputIBA", inputs="spatial")
def input_iba(
    model: nn.Module,
    request: Request,
    *,
    layer: str | None = None,
    reference: ArrayLike | None = None,
    beta: float = 20.0,
    steps: int = 60,
    lr: float = 1.0,
    noise: int = 10,
    sigma: float = 1.0,
    feature_steps: int = 10,
    rounds: int = 40,
    critic_steps: int = 3,
    critic_noise: int = 2,
) -> Explain:
    """InputIBA (Zhang et al. 2021): the information bottleneck of a hidden layer, carried to the input.

    The bottleneck of `iba`, without blur, finds the features Z* that the target needs. A generative adversarial network
    for the sample finds a mask λ_G and the noise on the input whose hidden features have the distribution of Z*. The
    input becomes Z = ΛI + (1 - Λ)ε with standard normal noise. Λ minimises the cross-entropy of the target plus `beta`
    times the mean information in Z beyond that of an input masked with Λ·λ_G.

    Unlike the authors', the critic has one 1 × 1 convolution and one linear unit, and Z* is drawn anew at each step.

    Args:
        inputs: (N, C, *S), normalised to about mean 0 and standard deviation 1.
        layer: as in `iba`; the authors use features.17 of VGG16.
        reference: as in `iba`.
        beta: weight of the information at the input; 20 in the authors' code.
        steps: steps of Adam at the input; 60 in the authors' code.
        lr: learning rate of Adam, at both layers; 1 in the paper.
        noise: copies of a sample with different noise at each step of Adam; 10 in the paper.
        sigma: width of the blur of Λ, in features of the input; 1 in the authors' code.
        feature_steps: steps of Adam at the layer; 10 in the authors' code.
        rounds: steps of the generator; 40 in the authors' code, with 140 of the critic.
        critic_steps: steps of the critic before each of the generator's.
        critic_noise: copies of a sample in each of these steps; 32 in the authors' code, with nearly the same maps.

    Returns:
        Maps (N, H, W): Λ within [0, 1], the mean over channels.
    """
    point = FeaturePoint.find(model, request, layer, reference)

    @torch.enable_grad()
    def explain(batch: Request) -> Tensor:
        search = _Search(_FEATURE_BETA, feature_steps, lr, noise, 0.0)
        features, share = _fit_features(point, batch, search, "input_iba")
        game = _Game(point, batch, features, share, copies=critic_noise)
        for _ in range(rounds):
            for _ in range(critic_steps):
                game.train_critic()
            game.train_generator()
        logit = _fit(
            lambda mixed: model(mixed.flatten(0, 1)),
            batch,
            batch.inputs,
            Moments(batch.inputs.new_zeros(()), batch.inputs.new_ones(()), batch.inputs.new_ones(())),
            _Search(beta, steps, lr, noise, sigma),
            batch.generators("input_iba", "input"),
            free=game.mask.detach().sigmoid(),
        )
        return logit.sigmoid().mean(dim=1)

    return explain


class _Search(NamedTuple):
    """Settings of the search for a bottleneck; `iba` explains each."""

    beta: float
    steps: int
    lr: float
    noise: int
    sigma: float


def _fit_features(point: FeaturePoint, batch: Request, search: _Search, purpose: str) -> tuple[Tensor, Tensor]:
    """Return the features R (B, K, *s) and the share λ of them that passes the best bottleneck."""
    with torch.no_grad():
        features = point.read(batch.inputs).contiguous()  # as the noise is
    generators = batch.generators(purpose)
    logit = _fit(lambda mixed: point.answer(batch.inputs, mixed), batch, features, point.moments, search, generators)
    return features, _share(logit, search.sigma)


def _fit(
    answer: Callable[[Tensor], Tensor],
    batch: Request,
    values: Tensor,
    moments: Moments,
    search: _Search,
    generators: list[torch.Generator],
    *,
    free: Tensor | None = None,
) -> Tensor:
    """Find the share of values R (B, …) that keeps the targets with the least information, before sigmoid and blur."""
    logit = torch.full_like(values, _INITIAL, requires_grad=True)
    optimizer = torch.optim.Adam([logit], lr=search.lr)
    for _ in range(search.steps):
        share = _share(logit, search.sigma)
        ends = _mixture(share, values, moments.mean, moments.std)
        middle, spread = (end.detach().requires_grad_() for end in ends)
        to_middle, to_spread = torch.zeros_like(middle), torch.zeros_like(spread)
        for copies in _blocks(search.noise, batch, values):
            noise = _draw(generators, copies, values.shape[1:], values)
            logits = answer(_sample(middle, spread, noise))
            entropy = functional.cross_entropy(logits, batch.targets.repeat_interleave(copies), reduction="sum")
            gradients = torch.autograd.grad(entropy / search.noise, [middle, spread])
            to_middle, to_spread = to_middle + gradients[0], to_spread + gradients[1]
        # Summed over samples: each has its own optimum.
        nats = _information(values, share, moments, free=free)
        price = search.beta * nats.flatten(1).mean(dim=1).sum()
        (logit.grad,) = torch.autograd.grad([price, *ends], [logit], [None, to_middle, to_spread])
        optimizer.step()
    return logit.detach()


class _Game:
    """A generator and a critic for each sample: the features of masked inputs imitate those of the bottleneck."""

    def __init__(self, point: FeaturePoint, batch: Request, features: Tensor, share: Tensor, *, copies: int) -> None:
        self.point, self.batch, self.features, self.copies = point, batch, features, copies
        self.bottleneck = _mixture(share, features, point.moments.mean, point.moments.std)
        self.generators = batch.generators("input_iba", "game")
        # The generator starts with what the layer needs, as in the authors' code. The bits of a position are spread
        # over its pixels: their sum would open the mask everywhere, and it could not be trained any more.
        bits = _bits_per_pixel(point, features, share, batch.inputs)
        self.mask = bits[:, None].expand_as(batch.inputs).contiguous().requires_grad_()
        beside = (len(batch), batch.inputs.shape[1], *[1] * (batch.inputs.dim() - 2))
        self.noise_mean = batch.inputs.new_zeros(beside).requires_grad_()
        self.noise_scale = batch.inputs.new_ones(beside).requires_grad_()
        self.first = self._weights(features.shape[1])
        self.offset = self._weights(1)
        self.second = self._weights(math.prod(features.shape[2:]))
        self.generator_optimizer = torch.optim.RMSprop(
            [
                {"params": [self.noise_mean], "lr": _NOISE_MEAN_LR},
                {"params": [self.noise_scale], "lr": _NOISE_SCALE_LR},
                {"params": [self.mask], "lr": _MASK_LR},
            ]
        )
        self.critic_weights = [self.first, self.offset, self.second]
        self.critic_optimizer = torch.optim.RMSprop(self.critic_weights, lr=_CRITIC_LR)

    def _weights(self, columns: int) -> Tensor:
        drawn = _draw(self.generators, 1, (_CRITIC_WIDTH, columns), self.features)[:, 0]
        return (drawn * (_CLIP / 2)).clamp(-_CLIP, _CLIP).requires_grad_()

    def _criticise(self, features: Tensor) -> Tensor:
        """Score how real features (B, n, K, *s) look, summed over n and B."""
        flat = ((features - self.point.moments.mean) / self.point.moments.std).flatten(3).transpose(1, 2)
        hidden = functional.leaky_relu(torch.baddbmm(self.offset, self.first, flat.flatten(2)), 0.2)
        return (hidden.unflatten(2, flat.shape[2:]).sum(dim=2) * self.second).sum() / self.second.shape[-1]

    def _generate(self, copies: int) -> Tensor:
        """Return the features (B, n, K, *s) of masked inputs."""
        noise = _draw(self.generators, copies, self.batch.inputs.shape[1:], self.batch.inputs)
        share = self.mask.sigmoid()
        masked = _sample(*_mixture(share, self.batch.inputs, self.noise_mean, self.noise_scale), noise)
        return self.point.read(masked.flatten(0, 1)).unflatten(0, (len(self.batch), copies))

    def train_critic(self) -> None:
        """Train the critics for one step to distinguish the bottleneck from masked inputs."""
        self.critic_optimizer.zero_grad()
        for copies in _blocks(self.copies, self.batch, self.batch.inputs):
            with torch.no_grad():
                fake = self._generate(copies)
                noise = _draw(self.generators, copies, self.features.shape[1:], self.features)
                real = _sample(*self.bottleneck, noise) * self.point.moments.active
            ((self._criticise(fake) - self._criticise(real)) / self.copies).backward()
        self.critic_optimizer.step()
        with torch.no_grad():
            for weight in self.critic_weights:
                weight.clamp_(-_CLIP, _CLIP)

    def train_generator(self) -> None:
        """Train the masks and their noise for one step to deceive the critics."""
        self.generator_optimizer.zero_grad()
        for copies in _blocks(self.copies, self.batch, self.batch.inputs):
            (-self._criticise(self._generate(copies)) / self.copies).backward()
        self.generator_optimizer.step()


def _share(logit: Tensor, sigma: float) -> Tensor:
    return blur(logit.sigmoid(), sigma).clamp(max=_NEARLY_ONE)


def _mixture(share: Tensor, values: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation (B, …) of λR + (1 - λ)ε, for R and λ (B, …)."""
    return share * values + (1 - share) * mean, (1 - share) * std


def _sample(middle: Tensor, spread: Tensor, noise: Tensor) -> Tensor:
    """Scale standard normal numbers (B, n, …) to that mean and deviation (B, …)."""
    return torch.addcmul(middle[:, None], spread[:, None], noise)


def _information(values: Tensor, share: Tensor, moments: Moments, free: Tensor | None = None) -> Tensor:
    """Compute the nats in λR + (1 - λ)ε: its divergence from ε, or from what a free mask λ·λ_G leaves of R."""
    # Both are normal: means differ by λ(1 - λ_G)(R - μ), and standard deviations are (1 - λ)σ and (1 - λ·λ_G)σ.
    mask = 0.0 if free is None else free
    rest = 1 - share * mask
    shift = share * (1 - mask) * (values - moments.mean) / (rest * moments.std)
    ratio = ((1 - share) / rest).square()
    return 0.5 * moments.active * (shift.square() + ratio - ratio.log() - 1)


def _bits_per_pixel(point: FeaturePoint, features: Tensor, share: Tensor, inputs: Tensor) -> Tensor:
    """Compute the bits that pass, summed over channels, and spread those of each position over its pixels, (B, *S)."""
    nats = _information(features, share, point.moments)
    bits = nats.sum(dim=1, keepdim=True) / math.log(2)
    mode = LINEAR[bits.dim() - 2]
    enlarged = functional.interpolate(bits, size=inputs.shape[2:], mode=mode, align_corners=False)[:, 0]
    return enlarged * (bits[0].numel() / inputs[0, 0].numel())


def _draw(generators: list[torch.Generator], copies: int, shape: Sequence[int], like: Tensor) -> Tensor:
    """Draw standard normal numbers (B, n, *shape); drawn in blocks, copies are the same as drawn all at once."""
    size = math.prod(shape)
    # Whole groups of 16, because a generator draws the rest of a group differently.
    drawn = torch.empty(len(generators), copies, -(-size // 16) * 16)
    for one, generator in zip(drawn, generators, strict=True):
        one.normal_(generator=generator)
    return drawn[:, :, :size].unflatten(2, tuple(shape)).to(like)


def _blocks(copies: int, batch: Request, values: Tensor) -> list[int]:
    """Split copies of values (B, …) into blocks that fit one call of the model, at least one copy each."""
    batches = 1 if values is batch.inputs else _BATCHES_BEHIND
    block = max(1, batches * batch.batch_size * batch.inputs[0].numel() // values.numel())
    return [min(block, copies - start) for start in range(0, copies, block)]
