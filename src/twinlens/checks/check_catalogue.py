"""Checks: tests of other papers, made on the methods of a run, and stored beside its results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twinlens.checks import check_measures as measures
from twinlens.checks.check_setup import CheckOptions, CheckSubject, choose_methods
from twinlens.errors import unknown
from twinlens.outcome import Evaluation
from twinlens.run.check_records import Check, CheckColumn, CheckText, store_check
from twinlens.support.arguments import checked
from twinlens.support.fields import fields_of, to_json
from twinlens.support.progress import Progress, Quiet
from twinlens.support.versions import environment


@dataclass(frozen=True, kw_only=True)
class CheckKind(CheckText):
    """One check: what it asks, and how it is made."""

    options: tuple[str, ...]
    """The options that it has."""

    measure: Callable[[CheckSubject], measures.Measured]
    """Makes it."""


CHECKS = {
    "localisation": CheckKind(
        title="Localisation: Attr% and the pointing game",
        question="Does a map mark the object?",
        source="Attr%: Zhou et al. 2022, Do feature attribution methods correctly attribute features?; pointing game: "
        "Zhang et al. 2018, Top-down neural attention by excitation backprop",
        reading="Attr% is the share of a map's attribution inside the boxes, the pointing game the share of maps whose "
        "largest value is. Compare with the area of the boxes. A model may rightly look elsewhere: at the water below "
        "the boat.",
        columns=(CheckColumn(title="Attr%", better="higher"), CheckColumn(title="pointing game", better="higher")),
        options=("boxes", "any_label", "tolerance"),
        measure=measures.localisation,
    ),
    "model-randomisation": CheckKind(
        title="Model randomisation",
        question="Do maps change when the model forgets what it has learned?",
        source="Adebayo et al. 2018, Sanity checks for saliency maps",
        reading="Layers get random weights, from the output down; the similarity is to the trained model's maps. Near "
        "0 in the end, a method depends on the weights; near 1, it shows something else, such as edges. Random maps, "
        "which look at no model, stay at 1.",
        columns=(CheckColumn(title="similarity in the end", better="lower"),),
        step_title="randomised down to",
        course_title="similarity",
        options=("limit", "similarity"),
        measure=measures.model_randomisation,
    ),
    "efficient-randomisation": CheckKind(
        title="Efficient model randomisation (eMPRT)",
        question="Do maps become more complex when all weights are random?",
        source="Hedström et al. 2023, Sanity checks revisited: an exploration to repair the model parameter "
        "randomisation test",
        reading="Complexity is the entropy of the histogram of a map's values, in nats. It should rise: a random model "
        "has no structure to explain. Random maps stay at 0. Published for maps with "
        "negative values, which those of a run do not have: compare methods, and do not take the sign for a verdict.",
        columns=(
            CheckColumn(title="relative rise", better="higher"),
            CheckColumn(title="entropy, trained", better="neither"),
            CheckColumn(title="entropy, random", better="neither"),
        ),
        options=("limit",),
        measure=measures.efficient_randomisation,
    ),
    "data-randomisation": CheckKind(
        title="Data randomisation",
        question="Do maps depend on the labels that the model has learned?",
        source="Adebayo et al. 2018, Sanity checks for saliency maps",
        reading="The similarity is to maps of a network trained on permuted labels, and to those of one trained in the "
        "same way on the true labels. The first should be clearly below the second, which shows what another training "
        "changes anyway.",
        columns=(
            CheckColumn(title="permuted labels", better="lower"),
            CheckColumn(title="true labels", better="neither"),
        ),
        options=("limit", "similarity", "train", "epochs"),
        measure=measures.data_randomisation,
    ),
    "sensitivity-n": CheckKind(
        title="Sensitivity-n",
        question="Does the attribution of a set of features say how much the output needs them?",
        source="Ancona et al. 2018, Towards better understanding of gradient-based attribution methods for deep neural "
        "networks",
        reading="The correlation, over random sets of n features, of their attribution with the drop of the target's "
        "logit when they are removed: 1 for a perfect account, 0 for none.",
        columns=(CheckColumn(title="mean correlation", better="higher"),),
        step_title="n",
        course_title="correlation",
        options=("limit", "levels", "subsets", "imputer"),
        measure=measures.sensitivity_n,
    ),
    "null-player": CheckKind(
        title="Null player",
        question="Is what contributes nothing left out?",
        source="Khakzar et al. 2022, Do explanations explain? Model knows best",
        reading="The model itself generates inputs with two patches, one of which contributes nothing to the class "
        "that is explained. Of the attribution on both, the share on that one: 0 obeys the axiom, 0.5 tells nothing "
        "apart. Maps without negative values cannot cancel out, which counts against methods that do.",
        columns=(CheckColumn(title="share on the null feature", better="lower"),),
        options=("limit",),
        measure=measures.null_player,
    ),
    "class-sensitivity": CheckKind(
        title="Class sensitivity",
        question="Do maps of two classes with different evidence differ?",
        source="Khakzar et al. 2022, Do explanations explain? Model knows best",
        reading="The model itself generates inputs with two patches, each of which contributes to one class alone. The "
        "overlap of the two classes' maps on them: 0 where they have nothing in common, 1 for a method that shows "
        "every class the same.",
        columns=(CheckColumn(title="overlap", better="lower"),),
        options=("limit",),
        measure=measures.class_sensitivity,
    ),
    "max-sensitivity": CheckKind(
        title="Max-sensitivity at equal output",
        question="Do maps stay as they are when the model's answer does?",
        source="Yeh et al. 2019, On the (in)fidelity and sensitivity of explanations",
        reading="Inputs are perturbed so little that the model predicts the same class with the same probability; the "
        "value is the largest relative change of a map, |map' - map| / |map|: 0 for maps that stay as they are, above "
        "1 for maps that have little in common. Random maps, which look at no model, stay at 0: stable is not right.",
        columns=(CheckColumn(title="largest change", better="lower", beside="max-sensi-\ntivity"),),
        options=("limit", "radius", "change", "perturbations"),
        measure=measures.max_sensitivity,
    ),
    "class-similarity": CheckKind(
        title="Class similarity",
        question="Do maps of the same input change with the class that they explain?",
        source="Sixt et al. 2020, When explanations lie: why many modified BP attributions fail",
        reading="The correlation of the map of a sample's class with that of another class, drawn at random: 1 for a "
        "method that shows every class the same, and explains none. Some similarity is to be expected: what a model "
        "looks at first is shared by its classes.",
        columns=(CheckColumn(title="correlation with another class", better="lower", beside="class\nsimilarity"),),
        options=("limit", "similarity"),
        measure=measures.class_similarity,
    ),
    "ceiling": CheckKind(
        title="Share of what is attainable",
        question="How close does a method come to the best order of segments there is?",
        source="Wang & Wang 2024, Benchmarking deletion metrics with the principled explanations (TRACE)",
        reading="Orders of segments are searched for the one that scores best. The share is (method - chance) / "
        "(ceiling - chance): 0 for random orders, 1 for the best order that was found, which may not be the best there "
        "is, so that a method can exceed it. An order that scores best exploits the metric, inputs unlike any data "
        "among others: it is a ceiling, and no ideal explanation.",
        columns=(
            CheckColumn(title="share of the ceiling", better="higher", beside="of\nceiling"),
            CheckColumn(title="area", better="neither"),
        ),
        options=("limit", "metric", "segments", "width"),
        measure=measures.ceiling,
    ),
    "roar": CheckKind(
        title="ROAR: remove and retrain",
        question="Is accuracy lost when a network is trained without what a method calls relevant?",
        source="Hooker et al. 2019, A benchmark for interpretability methods in deep neural networks",
        reading="The more accuracy is lost, the better; compare with random. A retrained network may read the label "
        "from which pixels were removed, so that a small loss does not prove much.",
        columns=(CheckColumn(title="accuracy lost, mean over shares", better="higher"),),
        step_title="share of pixels removed",
        course_title="test accuracy after retraining",
        options=("limit", "levels", "train", "epochs", "retrainings", "out"),
        measure=measures.roar,
    ),
}
"""Every check by its name."""


@checked
def run_check(
    evaluation: Evaluation,
    name: str,
    *,
    methods: tuple[str, ...] | None = None,
    options: CheckOptions | None = None,
    model: str | None = None,
    allow_code: bool = False,
    progress: Progress | None = None,
) -> Check:
    """Make a check on a run and store it there; one of the same name is replaced.

    Args:
        evaluation: the run.
        name: a name in `CHECKS`.
        methods: names of the run's methods; all by default.
        options: what is asked; those that the check does not have must stay at their defaults.
        model: spec of the run's model, which is needed where that is code.
        allow_code: as in `load_model`.
        progress: receives the progress; nothing is shown by default.
    """
    if name not in CHECKS:
        raise unknown("name", name, CHECKS)
    kind, given = CHECKS[name], options or CheckOptions()
    for option in fields_of(CheckOptions):
        if option.name not in kind.options and getattr(given, option.name) != option.default:
            raise ValueError(
                f"`{option.name}` has no effect on the check {name}, which has "
                f"{', '.join(kind.options) or 'no options'}. Leave it out."
            )
    subject = CheckSubject(
        evaluation=evaluation,
        names=choose_methods(evaluation, methods),
        options=given,
        model_given=model,
        allow_code=allow_code,
        progress=progress or Quiet(),
    )
    found = kind.measure(subject)
    check = Check(
        name=name,
        **{text.name: getattr(kind, text.name) for text in fields_of(CheckText)},
        steps=found.steps,
        options={option: to_json(getattr(given, option)) for option in kind.options} | {"seed": subject.seed},
        samples=found.samples,
        methods=found.methods,
        notes=found.notes,
        versions=environment(),
    )
    store_check(evaluation.run, check)
    return check
