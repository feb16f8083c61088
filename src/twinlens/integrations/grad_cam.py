"""Our metrics, called as those of pytorch-grad-cam are: `metric(input_tensor, grayscale_cams, targets, model)`.

    from twinlens.integrations.grad_cam import Road

    scores = Road()(input_tensor, grayscale_cams, targets, model)

pytorch-grad-cam itself is not imported. A loss is positive where the score falls, while its own metrics return the
change; `performance="logit"` has the scale of its ClassifierOutputTarget.

Shapes: N samples, C channels, H × W pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from torch import Tensor, nn

from twinlens.errors import short_repr
from twinlens.integrations.scoring import as_class, check_by_sample, offers, scores_of, split_options
from twinlens.metrics.measuring import probe_samples
from twinlens.support.arrays import ArrayLike, Floats

Target = Callable[[Tensor], Tensor]


class SampleMetric:
    """A metric that scores each image by itself."""

    kind: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self.metric, self.how = split_options(self.kind, options)
        check_by_sample(self.metric)

    def __call__(
        self, input_tensor: Tensor, grayscale_cams: ArrayLike, targets: Sequence[Target], model: nn.Module
    ) -> Floats:
        """Score each image; with an estimator or a protocol that judges the data set, the images of this call are it.

        Args:
            input_tensor: (N, C, H, W), normalised as the model expects.
            grayscale_cams: (N, H, W), one map per image.
            targets: one per image that names a class, such as ClassifierOutputTarget(3).
            model: the model.

        Returns:
            One score per image (N,).
        """
        labels = find_categories(targets, len(input_tensor))
        with without_hooks(model):
            tables = probe_samples(self.metric, model, input_tensor, labels, grayscale_cams, self.how)
        return scores_of(self.metric.read(tables))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.metric})"


@offers("soundness")
class Soundness(SampleMetric):
    """Share of the attribution that rests on predictive features: the more, the better."""

    kind = "soundness"


@offers("completeness")
class Completeness(SampleMetric):
    """Probability lost with the features that the map marks: the more, the better."""

    kind = "completeness"


@offers("road")
class Road(SampleMetric):
    """Probability lost as features are removed by rank and imputed linearly (ROAD)."""

    kind = "road"


@offers("deletion")
class Deletion(SampleMetric):
    """Probability lost as the most relevant features are set to a constant first: the more, the better."""

    kind = "deletion"


@offers("insertion")
class Insertion(SampleMetric):
    """Probability still lost as the most relevant features are put into a blurred image: the less, the better."""

    kind = "insertion"


def find_categories(targets: Sequence[Target], count: int) -> list[int]:
    """Return the class that each target of pytorch-grad-cam names.

    Example:
        >>> find_categories(None, 1)
        Traceback (most recent call last):
            ...
        ValueError: `targets` must hold one target for each of the 1 images, such as ClassifierOutputTarget(3); got
        None.
    """
    if not isinstance(targets, Sequence) or len(targets) != count:
        got = f"{len(targets)} of them" if isinstance(targets, Sequence) else short_repr(targets)
        raise ValueError(
            f"`targets` must hold one target for each of the {count} images, such as ClassifierOutputTarget(3); "
            f"got {got}."
        )
    classes = [None if hasattr(target, "mask") else as_class(getattr(target, "category", None)) for target in targets]
    for target, found in zip(targets, classes, strict=True):
        if found is None:
            raise TypeError(
                "`targets` must each name a class of the whole image, such as ClassifierOutputTarget(3); got "
                f"{type(target).__name__}."
            )
    return [found for found in classes if found is not None]


@contextmanager
def without_hooks(model: nn.Module) -> Iterator[None]:
    """Take the hooks of pytorch-grad-cam off a model, which would keep the features of every probe in memory."""
    parts = list(model.modules()) if isinstance(model, nn.Module) else []
    found = [
        (part._forward_hooks, key, hook)
        for part in parts
        for key, hook in part._forward_hooks.items()
        if type(getattr(hook, "__self__", None)).__module__.startswith("pytorch_grad_cam")
    ]
    for hooks, key, _ in found:
        del hooks[key]
    try:
        yield
    finally:
        for hooks, key, hook in found:
            hooks[key] = hook
