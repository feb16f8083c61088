"""Fine-tuning: does the ranking hold for a model that knows inputs with removed features (Zheng et al. 2024)?

A copy of the model is trained further on inputs from which features are removed at random and filled in by the run's
imputer. It sees no explanation. For it, probes are inputs like those it was trained on, and the same maps are measured
again.

Shapes: N samples, B samples of one batch, C channels, S = spatial shape, F features.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from functools import partial

import torch
from torch import Tensor, nn

from twinlens.checks.check_definition import CheckDefinition, CheckResult
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.imputer_choice import accuracy_of
from twinlens.checks.rank_agreement import VerdictChanges, kendall
from twinlens.checks.remeasuring import NAMES, PAIR, areas_of, headline_pair, main_imputer, random_maps, remeasure
from twinlens.checks.result_store import digest_of
from twinlens.errors import DamagedError, first_line, short_repr
from twinlens.imputation.imputers import Imputer, LinearImputer, check_imputed, describe_imputer, find_imputer
from twinlens.models.training import Batches, Training, check_examples, train
from twinlens.probing.answers import CLASSIFICATION
from twinlens.probing.model_call import Labels, blaming, check_inputs, find_device
from twinlens.run.check_records import FOLDER, CheckColumn, MethodCheck
from twinlens.support.arguments import checked, inside
from twinlens.support.arrays import ArrayLike
from twinlens.support.fields import to_json
from twinlens.support.progress import Progress, Quiet
from twinlens.support.tensor_files import load_tensors, save_tensors

FURTHER = Training(epochs=10, rate=1e-3, schedule="one_cycle")
"""Ten epochs in small batches, with a learning rate that ends at zero."""

_TASK = "fine-tuning"
_SEEDS = 2**62


class _Masked(Batches):
    """Inputs from which a random share of the features is removed, drawn anew for each batch."""

    def __init__(self, inputs: Tensor, imputer: Imputer) -> None:
        self.inputs, self.imputer = inputs, imputer

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: Tensor) -> Tensor:
        batch = self.inputs[index.cpu()]
        spatial = batch.shape[2:] or batch.shape[1:]
        features = math.prod(spatial)
        # All draws are from torch's global generator, which `train` seeds. At least one feature stays.
        removed = (torch.rand(len(batch), 1) * features).long()
        keep = torch.rand(len(batch), features).argsort(dim=1).argsort(dim=1) >= removed
        streams = torch.randint(_SEEDS, (len(batch),)).tolist()
        with blaming("imputer"):
            imputed = self.imputer(batch, keep.reshape(len(batch), *spatial), streams)
        return check_imputed(imputed, batch)


@checked
def fine_tuned(
    model: nn.Module,
    train_data: tuple[ArrayLike, Labels],
    *,
    imputer: Imputer = LinearImputer(),
    training: Training = FURTHER,
    seed: int = 0,
    progress: Progress | None = None,
) -> nn.Module:
    """Train a copy of a model on inputs with features removed at random, and return it; the model does not change.

    Of each input, a share between none and all but one of the features is removed, drawn anew in each epoch.

    Args:
        model: a classifier, a module that returns logits.
        train_data: inputs (N, C, *S) or (N, D), as the model expects them, and labels (N,).
        imputer: fills in removed features.
        training: how it is trained.
        seed: random seed.
        progress: receives the progress; nothing is shown by default.

    Example:
        >>> from twinlens.imputation.imputers import ConstantImputer
        >>> x, model = torch.randn(256, 8, generator=torch.Generator().manual_seed(0)), nn.Linear(8, 2)
        >>> better = fine_tuned(model, (x, (x.sum(dim=1) > 0).long()), imputer=ConstantImputer(0.0))
        >>> better is model
        False
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be an nn.Module; got {short_repr(model)}.")
    if not isinstance(train_data, (tuple, list)) or len(train_data) != 2:
        raise TypeError(f"`train_data` must be inputs and labels, two arrays; got {short_repr(train_data)}.")
    imputer = find_imputer(imputer)
    with inside("train_data"):
        inputs, _ = check_inputs(train_data[0], None)
        _, labels = check_examples(inputs, train_data[1])
    shown = progress or Quiet()
    shown.begin({_TASK: training.epochs})
    with inside("model"):
        return train(
            lambda: copy.deepcopy(model),
            _Masked(inputs.cpu(), imputer),
            labels.numpy(),
            training=training,
            seed=seed,
            device=find_device(model, None)[0],
            advance=lambda done, total: shown.advance(_TASK, 1, f"epoch {done} of {total}"),
        )


def _fine_tuned_once(run: CheckedRun) -> nn.Module:
    """Return the fine-tuned model of a run, which is kept in RUN/checks/fine-tuned."""
    model, imputer = run.model, main_imputer(run)
    inputs, labels = run.training_data
    training = dataclasses.replace(FURTHER, epochs=run.options.epochs)
    digest = digest_of(
        run.opened[0].digest(run.inputs[:1]),
        [*inputs.shape],
        inputs.numpy().tobytes(),
        labels.tolist(),
        describe_imputer(imputer),
        to_json(training),
        run.seed,
    )
    path = run.evaluation.path / FOLDER / "fine-tuned" / f"{digest[:16]}.safetensors"
    if not path.exists():
        trained = fine_tuned(
            model, (inputs, labels), imputer=imputer, training=training, seed=run.seed, progress=run.progress
        )
        save_tensors(path, {name: value.clone() for name, value in trained.state_dict().items()})  # some may be shared
    network = copy.deepcopy(model)
    try:
        network.load_state_dict(load_tensors(path)[0])
    except RuntimeError as error:
        raise DamagedError(path, f"it holds the weights of another network: {first_line(error)}") from None
    return network.eval()


@partial(
    CheckDefinition,
    title="Ranking after fine-tuning",
    source="Zheng et al. 2024, F-Fidelity: a robust framework for faithfulness evaluation of explainable AI",
    columns=(
        CheckColumn(title="soundness", better="higher"),
        CheckColumn(title="soundness, fine-tuned", better="higher"),
        CheckColumn(title="completeness", better="higher"),
        CheckColumn(title="completeness, fine-tuned", better="higher"),
    ),
    options=("limit", "train", "epochs", "engine"),
)
def fine_tuned_check(run: CheckedRun) -> CheckResult:
    """Does the ranking hold for a model that was fine-tuned on inputs with features removed at random?

    The copy of the model never sees an explanation, and is measured with the same maps. Its probes are inputs like
    those it was trained on: what changes in the ranking was due to probes that the model did not know. Maps still
    explain the original model, and a copy that decides by other features changes the ranking for that reason, too.
    """
    manifest = run.evaluation.run.manifest
    if manifest.model.task != CLASSIFICATION or manifest.data.tokens:
        raise ValueError("`name` fine-tuned needs a classifier of inputs that are numbers.")
    metrics, (reference, extra) = headline_pair(run), random_maps(run)
    changed = dataclasses.replace(run.opened[0], module=_fine_tuned_once(run))
    before = remeasure(run, "fine-tuned", metrics, methods=extra)
    after = remeasure(run, "fine-tuned", metrics, methods=extra, model=changed)
    areas = [{metric: areas_of(inner, run.names, metric) for metric in PAIR} for inner in (before, after)]
    taus = [kendall(areas[0][metric], areas[1][metric]) for metric in PAIR]
    changes = VerdictChanges.between(*areas)

    removal = [accuracy_of(inner.curve(reference, PAIR[0]).table, run.seed).value for inner in (before, after)]
    tau = ", ".join(f"{NAMES[metric]} {value}" for metric, value in zip(PAIR, taus, strict=True))
    line = (
        f"After fine-tuning on inputs with features removed at random, {changes.describe(NAMES)}. Kendall's tau of the "
        f"rankings: {tau}."
    )
    notes = (
        f"Fine-tuned for {run.options.epochs} epochs on {len(run.training_samples):,} samples. Accuracy on the checked "
        f"samples: {before.results.accuracy:.1%} before, {after.results.accuracy:.1%} after; under random removal "
        f"{removal[0]:.1%} before, {removal[1]:.1%} after.",
        f"{run.count_in_training()} of {len(run.samples)} checked samples are also in the training data.",
    )
    rows = {name: MethodCheck(values=tuple(own[m][name].estimate for m in PAIR for own in areas)) for name in run.names}
    return CheckResult(methods=rows, samples=len(run.samples), notes=notes, line=line)
