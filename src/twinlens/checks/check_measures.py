"""What each check measures of the methods of a run.

Shapes: N samples, K steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from twinlens.checks import generated_features, randomisation, stability
from twinlens.checks.ceiling import ceiling as search_ceiling
from twinlens.checks.check_setup import CheckSubject, original_sizes
from twinlens.checks.generated_features import AxiomTest, generate_features
from twinlens.checks.localisation import attribution_inside, pointing_game
from twinlens.checks.roar import roar as measure_roar
from twinlens.checks.sensitivity_n import SHARES, random_removals
from twinlens.checks.stability import MapChange
from twinlens.data.boxes import Box, boxes_of_samples, draw_regions, read_boxes
from twinlens.data.segments import find_segments
from twinlens.errors import DataError, RunError, first_line
from twinlens.imputation.imputers import find_imputer, restore_imputer
from twinlens.metrics.catalogue import METRICS, describe_metric
from twinlens.models.training import Training, accuracy, train
from twinlens.probing.answers import CLASSIFICATION
from twinlens.probing.model_call import find_device
from twinlens.run.check_records import FOLDER, MethodCheck
from twinlens.support.estimate import Estimate
from twinlens.support.fields import replaced


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a check found."""

    methods: Mapping[str, MethodCheck]
    """Of each method."""

    samples: int
    """Number of samples."""

    steps: tuple[str, ...] = ()
    """Names of the steps, where there are some."""

    notes: tuple[str, ...] = ()
    """What a reader has to know."""


def localisation(subject: CheckSubject) -> Measured:
    """Attr% and the pointing game, by boxes around objects; stored maps are all that is read."""
    evaluation, options, seed = subject.evaluation, subject.options, subject.seed
    manifest = evaluation.run.manifest
    if len(manifest.data.spatial) != 2 or not manifest.data.has_neighbours:
        raise ValueError(f"`boxes` need images; the run's inputs have shape {manifest.data.shape}.")
    ids = evaluation.ids()
    boxes = boxes_of_samples(read_boxes(options.needed("boxes")), ids)
    if not options.any_label:
        boxes = _of_own_class(boxes, evaluation.run.load_untouched(manifest.shards).labels, manifest.model.classes)
    height, width = manifest.data.spatial
    region = draw_regions(boxes, original_sizes(evaluation), manifest.model.preprocessing, (height, width))

    def measure(name: str) -> MethodCheck:
        maps = evaluation.maps(name)
        inside = attribution_inside(maps, region, ids=ids)
        pointing = pointing_game(maps, region, tolerance=options.tolerance, ids=ids)
        return MethodCheck(values=tuple(Estimate.of_mean(found.values, ids, seed=seed) for found in (inside, pointing)))

    methods, notes = subject.each(measure)
    seen = region.flatten(1).double().mean(dim=1).numpy()
    without = int((seen == 0).sum())
    area = f"Boxes cover {seen[seen > 0].mean():.1%} of an input on average: what a map without aim scores."
    missing = f"{without} of {len(ids)} samples have no box that the model sees, and no value."
    return Measured(methods=methods, samples=len(ids), notes=(area, *([missing] if without else []), *notes))


def model_randomisation(subject: CheckSubject) -> Measured:
    """Similarity of maps as ever more layers are random."""
    layers: list[str] = []

    def measure(name: str) -> MethodCheck:
        similarity = subject.options.similarity
        found = subject.measure(randomisation.model_randomisation, name, similarity=similarity)
        layers[:] = found.layers
        course = tuple(Estimate.of_mean(row, found.ids, seed=subject.seed) for row in found.values)
        return MethodCheck(values=course[-1:], course=course)

    methods, notes = subject.each(measure)
    return Measured(methods=methods, samples=len(subject.samples), steps=tuple(layers), notes=notes)


def efficient_randomisation(subject: CheckSubject) -> Measured:
    """Rise of complexity after all layers are random."""

    def measure(name: str) -> MethodCheck:
        found = subject.measure(randomisation.efficient_randomisation, name)
        columns = (found.values, found.before, found.after)
        return MethodCheck(values=tuple(Estimate.of_mean(column, found.ids, seed=subject.seed) for column in columns))

    methods, notes = subject.each(measure)
    return Measured(methods=methods, samples=len(subject.samples), notes=notes)


def data_randomisation(subject: CheckSubject) -> Measured:
    """Similarity to maps of a network trained on permuted labels, and of one trained again on the true ones."""
    inputs, labels = subject.training_data
    training, seed = Training(epochs=subject.options.epochs), subject.seed
    device = find_device(subject.model, None)[0]
    permuted, learned = randomisation.train_on_permuted_labels(
        subject.build, inputs, labels, training=training, seed=seed, device=device
    )
    again = train(subject.build, inputs, labels, training=training, seed=seed, device=device)

    def measure(name: str) -> MethodCheck:
        networks, similarity = {"permuted": permuted, "true": again}, subject.options.similarity
        found = subject.measure(randomisation.data_randomisation, name, networks=networks, similarity=similarity)
        return MethodCheck(values=tuple(Estimate.of_mean(row, found.ids, seed=seed) for row in found.values))

    methods, notes = subject.each(measure)
    trained = (
        f"The network with permuted labels has learned {learned:.1%} of them, the one with true labels "
        f"{accuracy(again, inputs, labels):.1%}. Adebayo et al. train until more than 95% are learned."
    )
    return Measured(methods=methods, samples=len(subject.samples), notes=(trained, *notes))


def sensitivity_n(subject: CheckSubject) -> Measured:
    """Correlation of removed attribution with the drop of the output; the model is asked once for all methods."""
    options, seed = subject.options, subject.seed
    removals = random_removals(
        subject.model,
        subject.inputs,
        subject.samples.labels,
        shares=options.levels or SHARES,
        subsets=options.subsets,
        imputer=find_imputer(options.imputer),
        ids=subject.samples.ids,
        seed=seed,
        batch_size=subject.evaluation.run.manifest.execution.batch_size,
    )

    def measure(name: str) -> MethodCheck:
        found = removals.correlate(subject.stored_maps(name))
        course = tuple(Estimate.of_mean(row, found.ids, seed=seed) for row in found.values)
        return MethodCheck(values=(Estimate.of_mean(found.mean_values, found.ids, seed=seed),), course=course)

    methods, notes = subject.each(measure)
    positive = "Stored maps have no negative values: what speaks against the target is missing from the sums."
    steps = tuple(map(str, removals.sizes))
    return Measured(methods=methods, samples=len(subject.samples), steps=steps, notes=(positive, *notes))


def null_player(subject: CheckSubject) -> Measured:
    """Share of attribution on the patch that contributes nothing."""
    return _on_generated_features(subject, generated_features.null_player)


def class_sensitivity(subject: CheckSubject) -> Measured:
    """Overlap of the maps of two classes that rest on different patches."""
    return _on_generated_features(subject, generated_features.class_sensitivity)


def _on_generated_features(subject: CheckSubject, test: Callable[..., AxiomTest]) -> Measured:
    count, seed = subject.options.limit, subject.seed
    features = generate_features(subject.model, subject.inputs, count=count, seed=seed)

    def measure(name: str) -> MethodCheck:
        method, options = subject.method(name)
        found = test(subject.model, features, method, seed=seed, **options)
        return MethodCheck(values=(Estimate.of_mean(found.values, found.ids, seed=seed),))

    methods, notes = subject.each(measure)
    made = f"{len(features.ids)} of {features.tried} pairs of features were found."
    return Measured(methods=methods, samples=len(features.ids), notes=(made, *notes))


def max_sensitivity(subject: CheckSubject) -> Measured:
    """Largest change of maps under perturbations that leave the model's answer as it is."""
    asked = subject.options
    return _on_samples(
        subject,
        stability.max_sensitivity,
        radius=asked.radius,
        change=asked.change,
        perturbations=asked.perturbations,
    )


def class_similarity(subject: CheckSubject) -> Measured:
    """Similarity of the maps of a sample's class and of another one."""
    return _on_samples(subject, stability.class_similarity, similarity=subject.options.similarity)


def _on_samples(subject: CheckSubject, test: Callable[..., MapChange], **asked: object) -> Measured:
    """Make a test with one value per sample, whose mean is what it says of a method."""

    def measure(name: str) -> MethodCheck:
        found = subject.measure(test, name, **asked)
        return MethodCheck(values=(Estimate.of_mean(found.values, found.ids, seed=subject.seed),))

    methods, notes = subject.each(measure)
    return Measured(methods=methods, samples=len(subject.samples), notes=notes)


def ceiling(subject: CheckSubject) -> Measured:
    """Share of what the best order of segments attains; its search goes on where it was interrupted."""
    options, run, samples = subject.options, subject.evaluation.run, subject.samples
    data, question = run.manifest.data, subject.evaluation.results.question
    own = data.segments if data.segments and data.segments.startswith(("slic", "grid")) else "grid"
    asked = options.segments or own
    main = subject.evaluation.imputer or restore_imputer(question.imputer)
    performance = "probability" if run.manifest.model.task == CLASSIFICATION else "score"
    metric = replaced(METRICS[options.metric], {"performance": performance}, "metric")
    bound = metric.bound(main, neighbours=data.has_neighbours)
    how: dict[str, Any] = {"batch_size": run.manifest.execution.batch_size, "output": run.manifest.model.scale}
    arguments = (subject.model, subject.inputs, samples.labels)
    name = hashlib.blake2b(repr((describe_metric(bound), asked, options.width)).encode(), digest_size=8).hexdigest()
    found = search_ceiling(
        *arguments,
        metric=bound,
        width=options.width,
        segments=find_segments(asked, samples).of(samples, subject.inputs),
        ids=samples.ids,
        seed=subject.seed,
        out=run.path / FOLDER / "ceiling" / f"{name}.json",
        progress=subject.progress,
        **how,
    )

    def measure(name: str) -> MethodCheck:
        curve = found.measure(*arguments, subject.stored_maps(name), **how)
        area = curve.area_per_sample()
        assert area is not None  # by the target's probability, or its score
        share = found.share(curve, seed=subject.seed)
        return MethodCheck(values=(share, Estimate.of_mean(area, samples.ids, seed=subject.seed)))

    methods, notes = subject.each(measure)
    few, most = (int(end) + 1 for end in found.segments.flatten(1).amax(dim=1).aminmax())
    many = few if few == most else f"{few} to {most}"
    about = (
        f"The best orders that were found of {many} segments score "
        f"{found.values.mean():.3f} ({options.metric}), random ones {found.chance.mean():.3f}. A method is measured on "
        "the same segments, each with the mean of its map, and not pixel by pixel."
    )
    return Measured(methods=methods, samples=len(samples), notes=(about, *notes))


def roar(subject: CheckSubject) -> Measured:
    """Accuracy of networks trained without what a method calls relevant."""
    options, known, notes = subject.options, dict[str, Mapping[str, Any]](), list[str]()
    for name in subject.names:
        try:
            method, own = subject.method(name)
            known[name] = {"method": method, **own}
        except ValueError as error:
            notes.append(f"{name} is missing: {first_line(error)}")
    if not known:
        raise RunError(" ".join(notes))
    if seen := subject.seen_in_training():
        notes.append(
            f"{seen} of {len(subject.samples)} test samples are among the training data: accuracy is too high."
        )
    with TemporaryDirectory(prefix="twinlens-") as folder:
        curves = measure_roar(
            subject.build,
            subject.training_data,
            (subject.inputs, subject.samples.labels),
            known,
            model=subject.model,
            levels=options.levels or (0.1, 0.3, 0.5, 0.7, 0.9),
            retrainings=options.retrainings,
            training=Training(epochs=options.epochs),
            seed=subject.seed,
            out=options.out or folder,
            device=str(find_device(subject.model, None)[0]),
            progress=subject.progress,
        )
    samples, methods = len(subject.samples), dict[str, MethodCheck]()
    for name, curve in curves.items():
        means = (curve.baseline.mean(), *curve.performance.mean(axis=0))
        course = tuple(Estimate(value=float(mean), samples=samples) for mean in means)
        methods[name] = MethodCheck(values=(Estimate(value=curve.area(), samples=samples),), course=course)
    steps = ("0", *(f"{level:g}" for level in next(iter(curves.values())).levels))
    notes.append("There are no intervals: what varies is the training. Pass --retrainings to average over several.")
    return Measured(methods=methods, samples=samples, steps=steps, notes=tuple(notes))


def _of_own_class(
    boxes: Mapping[int, list[Box]], labels: NDArray[Any], classes: Sequence[str] | None
) -> dict[int, list[Box]]:
    """Return the boxes without a label, and those with the name or the number of their sample's class."""
    found = {}
    for place, own in boxes.items():
        number = int(labels[place])
        names = {str(number), *(classes[number : number + 1] if classes else ())}
        if kept := [box for box in own if box.label is None or box.label in names]:
            found[place] = kept
    if not found:
        [first, *_] = [box for own in boxes.values() for box in own]
        raise DataError(
            f"`boxes` must have labels that are names or numbers of the run's classes, such as "
            f"{classes[0] if classes else 0!r}; got {first.label!r} ({first.place}). Correct them, or pass --any-label."
        )
    return found
