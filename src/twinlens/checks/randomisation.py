"""Randomisation tests: does a map depend on what the model has learned?

Layers get random weights from the output down, or a network is trained on permuted labels (Adebayo et al. 2018). The
efficient variant (Hedström et al. 2023) randomises all layers at once; the complexity of a map should rise.

Shapes: N samples, F features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.stats import entropy
from torch import Tensor, nn

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.sample_scores import CORRELATION, SIMILARITIES, SampleScores, Similarity, flat_maps
from twinlens.models.training import USUAL, Training, accuracy, check_examples, train
from twinlens.probing.model_call import Labels, blaming, check_inputs, evaluating, find_device
from twinlens.run.check_records import CheckColumn, MethodCheck
from twinlens.support.arguments import checked
from twinlens.support.arrays import ArrayLike, Floats
from twinlens.support.randomness import stream

_BINS = 100


@checked
def model_randomisation(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    similarity: Similarity = "spearman",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> dict[str, SampleScores]:
    """Compare maps of a model with maps of a copy whose layers are randomised one by one, from the output down.

    A step is a layer with weights and the normalisation of its output. `reset_parameters` draws new weights; those of a
    module without it are drawn from a normal distribution with their own mean and standard deviation.

    Args:
        model: a module that returns logits; it is not changed.
        inputs: (N, C, *S), or (N, D) for tabular rows.
        targets: (N,) classes to explain.
        method: a name in `METHODS`, or a function of the same signature.
        similarity: a name in `SIMILARITIES`.
        ids: sample ids.
        seed: seed of the weights and of the method.
        **options: options of the method.

    Returns:
        The similarity of each sample's maps after each step, by the name of its layer; NaN if a map is constant.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> list(model_randomisation(model, torch.randn(20, 8), [0] * 20, "saliency"))
        ['2', '0']
    """
    batch, names = check_inputs(inputs, ids)
    network = copy.deepcopy(model)
    explain = partial(flat_maps, inputs=batch, targets=targets, method=method, ids=names, seed=seed, options=options)
    original, scores = explain(network), {}
    for name, parts in _steps(network, batch[:1]).items():
        _randomise(name, parts, seed)
        values = SIMILARITIES[similarity](original, explain(network))
        scores[name] = SampleScores(name=f"{similarity} similarity", values=values, ids=names, limits=CORRELATION)
    return scores


@checked
def data_randomisation(
    model: nn.Module,
    networks: Mapping[str, nn.Module],
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    similarity: Similarity = "spearman",
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> dict[str, SampleScores]:
    """Compare maps of a model with maps of networks trained on other labels (Adebayo et al. 2018).

    `networks` holds the networks to compare with, by name. `train_on_permuted_labels` trains one; a second one, trained
    again on the true labels, shows how much maps differ because of training alone. Other arguments as for
    `model_randomisation`.

    Returns:
        The similarity of each sample's maps, by the name of the network; NaN if a map is constant.

    Example:
        >>> x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
        >>> model, other = (nn.Sequential(nn.Linear(4, 2)) for _ in range(2))
        >>> list(data_randomisation(model, {"itself": model, "other": other}, x, [1] * 64))
        ['itself', 'other']
    """
    if not networks:
        raise ValueError("`networks` must hold at least one network to compare with; got none.")
    batch, names = check_inputs(inputs, ids)
    explain = partial(flat_maps, inputs=batch, targets=targets, method=method, ids=names, seed=seed, options=options)
    original = explain(model)
    values = {name: SIMILARITIES[similarity](original, explain(network)) for name, network in networks.items()}
    return {
        name: SampleScores(name=f"{similarity} similarity", values=row, ids=names, limits=CORRELATION)
        for name, row in values.items()
    }


@checked
def train_on_permuted_labels(
    build: Callable[[], nn.Module],
    inputs: ArrayLike,
    labels: Labels,
    *,
    training: Training = USUAL,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> tuple[nn.Module, float]:
    """Train a network on permuted labels; return it and the share of them that it learned.

    Adebayo et al. train until nearly all labels are learned. Arguments as for `twinlens.models.training.train`.
    """
    batch, targets = check_examples(inputs, labels)
    order = torch.from_numpy(np.random.default_rng(stream(seed, "permuted labels")).permutation(len(targets)))
    network = train(build, batch, targets[order], training=training, seed=seed, device=device)
    return network, accuracy(network, batch, targets[order])


@checked
def efficient_randomisation(
    model: nn.Module,
    inputs: ArrayLike,
    targets: Labels,
    method: str | Callable[..., Tensor] = "integrated_gradients",
    *,
    ids: Sequence[str | int] | None = None,
    seed: int = 0,
    **options: Any,
) -> SampleScores:
    """Measure how much more complex maps become when all weights are random: eMPRT (Hedström et al. 2023).

    Complexity is the entropy of the histogram of a map's values, with 100 bins of equal width between its smallest and
    largest value, as in Quantus. Other arguments as for `model_randomisation`.

    Returns:
        The relative rise of the entropy, (random - trained) / trained; NaN if the trained model's map is constant.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> efficient_randomisation(model, torch.randn(20, 8), [0] * 20, "random").values.max()
        np.float64(0.0)
    """
    batch, names = check_inputs(inputs, ids)
    explain = partial(flat_maps, inputs=batch, targets=targets, method=method, ids=names, seed=seed, options=options)
    network = copy.deepcopy(model)
    trained = _entropy(explain(network))
    for name, parts in _steps(network, batch[:1]).items():
        _randomise(name, parts, seed)
    random = _entropy(explain(network))
    rise = np.divide(random - trained, trained, out=np.full(len(names), np.nan), where=trained > 0)
    return SampleScores(name="relative rise of complexity", values=rise, ids=names)


def _entropy(maps: Floats) -> Floats:
    return np.array([entropy(np.histogram(row, bins=_BINS)[0]) for row in maps])


def _steps(model: nn.Module, example: Tensor) -> dict[str, list[nn.Module]]:
    """List the modules of each step by the name of its layer, the layer called last first."""
    called: dict[str, nn.Module] = {}

    def record(name: str) -> Callable[[nn.Module, Any], None]:
        return lambda part, _: called.update({name: called.get(name, part)})

    handles = [
        part.register_forward_pre_hook(record(name))
        for name, part in model.named_modules()
        if any(True for _ in part.parameters(recurse=False))
    ]
    device, dtype = find_device(model, None)
    try:
        with evaluating(model), torch.no_grad(), blaming("model"):
            model(example.to(device=device, dtype=dtype or example.dtype))
    finally:
        for handle in handles:
            handle.remove()
    steps: dict[str, list[nn.Module]] = {}
    waiting: list[nn.Module] = []
    for name, part in reversed(called.items()):
        waiting.append(part)
        # Modules with only scale and shift, such as batch normalisation, belong to the layer before.
        if any(weight.dim() > 1 for weight in part.parameters(recurse=False)):
            steps[name], waiting = waiting, []
    if not steps:
        raise ValueError("`model` must have layers with weights to randomise; it has none.")
    steps[next(reversed(steps))].extend(waiting)
    return steps


def _randomise(name: str, parts: Sequence[nn.Module], seed: int) -> None:
    """Draw new parameters for the modules of one step; torch's own generator keeps its state."""
    for number, part in enumerate(parts):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(stream(seed, "randomised layer", name, number))
            # A module with children may reset theirs as well, before their own step.
            if callable(reset := getattr(part, "reset_parameters", None)) and not any(True for _ in part.children()):
                device = next(part.parameters()).device
                part.cpu()  # the same weights on every device
                reset()
                part.to(device)
                continue
            for weight in part.parameters(recurse=False):
                values = weight.float()
                drawn = torch.randn(weight.shape) * values.std(correction=0).cpu() + values.mean().cpu()
                weight.copy_(drawn.to(weight))


@partial(
    CheckDefinition,
    title="Model randomisation",
    source="Adebayo et al. 2018, Sanity checks for saliency maps",
    columns=(CheckColumn(title="similarity in the end", better="lower"),),
    step_title="randomised down to",
    course_title="similarity",
    options=("limit", "similarity"),
)
def model_randomisation_check(run: CheckedRun) -> CheckResult:
    """Do maps change when the model's weights are randomised?

    Layers get random weights, from the output down; the similarity is to the trained model's maps. A method that ends
    near 0 depends on the weights; one near 1 shows something else, such as edges. Random maps, which ignore the model,
    stay at 1.
    """
    layers: list[str] = []

    def measure(name: str) -> MethodCheck:
        scores = run.test(model_randomisation, name, similarity=run.options.similarity)
        layers[:] = scores
        course = run.estimates(scores.values())
        return MethodCheck(values=course[-1:], course=course)

    return run.each_method(measure, steps=layers)


@partial(
    CheckDefinition,
    title="Efficient model randomisation (eMPRT)",
    source="Hedström et al. 2023, Sanity checks revisited: an exploration to repair the model parameter "
    "randomisation test",
    columns=(CheckColumn(title="relative rise", better="higher"),),
    options=("limit",),
)
def efficient_randomisation_check(run: CheckedRun) -> CheckResult:
    """Do maps become more complex when all weights are random?

    Complexity is the entropy of the histogram of a map's values, in nats. It should rise: a random model has no
    structure to explain. Random maps stay at 0. The test was published for maps with negative values, which stored maps
    do not have: compare methods, and do not read the sign as a verdict.
    """
    return run.each_method(lambda name: run.score(efficient_randomisation, name))


@partial(
    CheckDefinition,
    title="Data randomisation",
    source="Adebayo et al. 2018, Sanity checks for saliency maps",
    columns=(
        CheckColumn(title="permuted labels", better="lower"),
        CheckColumn(title="true labels", better="neither"),
    ),
    options=("limit", "similarity", "train", "epochs"),
)
def data_randomisation_check(run: CheckedRun) -> CheckResult:
    """Do maps depend on the labels that the model has learned?

    Similarity to maps of a network trained on permuted labels, and to maps of one trained in the same way on the true
    labels. The first should be clearly below the second, which shows what another training changes anyway.
    """
    inputs, labels = run.training_data
    training, seed, device = Training(epochs=run.options.epochs), run.seed, find_device(run.model, None)[0]
    permuted, learned = train_on_permuted_labels(run.build, inputs, labels, training=training, seed=seed, device=device)
    again = train(run.build, inputs, labels, training=training, seed=seed, device=device)
    networks = {"permuted": permuted, "true": again}

    def measure(name: str) -> MethodCheck:
        scores = run.test(data_randomisation, name, networks=networks, similarity=run.options.similarity)
        return MethodCheck(values=run.estimates(scores.values()))

    note = (
        f"The network with permuted labels has learned {learned:.1%} of them, the one with true labels "
        f"{accuracy(again, inputs, labels):.1%}. Adebayo et al. train until more than 95% are learned."
    )
    return run.each_method(measure, notes=[note])
