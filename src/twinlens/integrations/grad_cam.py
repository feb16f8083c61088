"""Our metrics with the interface of pytorch-grad-cam: `metric(input_tensor, grayscale_cams, targets, model)`.

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
from twinlens.integrations.scoring import as_class, metric_classes, sample_metric, scores_of
from twinlens.metrics.measuring import probe_samples
from twinlens.support.arrays import ArrayLike, Floats

Target = Callable[[Tensor], Tensor]


class SampleMetric:
    """A metric that scores each image by itself."""

    kind: ClassVar[str]

    def __init__(self, **options: Any) -> None:
        self.metric, self.how = sample_metric(self.kind, options)

    def __call__(
        self, input_tensor: Tensor, grayscale_cams: ArrayLike, targets: Sequence[Target], model: nn.Module
    ) -> Floats:
        """Score each image. An estimator that judges the data set judges the images of this call.

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


Soundness, Completeness, Road, Deletion, Insertion = metric_classes(SampleMetric)


def find_categories(targets: Sequence[Target], count: int) -> list[int]:
    """Return the class that each target of pytorch-grad-cam names."""
    if not isinstance(targets, Sequence) or len(targets) != count:
        got = f"{len(targets)} of them" if isinstance(targets, Sequence) else short_repr(targets)
        raise ValueError(
            f"`targets` must hold one target for each of the {count} images, such as ClassifierOutputTarget(3); "
            f"got {got}."
        )
    classes = []
    for target in targets:
        label = None if hasattr(target, "mask") else as_class(getattr(target, "category", None))
        if label is None:
            raise TypeError(
                "`targets` must each name a class of the whole image, such as ClassifierOutputTarget(3); got "
                f"{type(target).__name__}."
            )
        classes.append(label)
    return classes


@contextmanager
def without_hooks(model: nn.Module) -> Iterator[None]:
    """Detach the hooks of pytorch-grad-cam from a model; they would keep the features of every probe in memory."""
    parts = list(model.modules()) if isinstance(model, nn.Module) else []
    detached = [
        (part._forward_hooks, key, hook)
        for part in parts
        for key, hook in part._forward_hooks.items()
        if type(getattr(hook, "__self__", None)).__module__.startswith("pytorch_grad_cam")
    ]
    for hooks, key, _ in detached:
        del hooks[key]
    try:
        yield
    finally:
        for hooks, key, hook in detached:
            hooks[key] = hook
