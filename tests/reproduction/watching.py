"""Progress that records what it receives, accuracies without networks, and a check of figures."""

import numpy as np
import pytest

from twinlens.support.estimate import Estimate
from twinlens.support.progress import Quiet


class Watch(Quiet):
    def __init__(self):
        self.announced, self.advances, self.done, self.notes = {}, [], {}, []

    def begin(self, rows, note=""):
        self.announced |= rows
        self.done |= dict.fromkeys(rows, 0)
        self.notes.append(note)

    def advance(self, task, rows, stage=""):
        self.advances.append((task, rows))
        self.done[task] += rows
        assert rows >= 0
        assert 0 <= self.done[task] <= self.announced[task], (task, stage)


def accuracy_of(share, samples=2000):
    """An accuracy over test images, as networks of this quality would have it, each right on images of its own."""
    correct = np.random.default_rng(round(1e6 * share)).permutation(samples) < round(share * samples)
    return Estimate.of_mean(correct.astype(float), [str(k) for k in range(samples)])


def check_figures(outcome):
    """Every figure of an experiment can be drawn, and nothing in it is without content."""
    figures = pytest.importorskip("matplotlib.figure", reason="figures need matplotlib")
    assert outcome.figures
    for draw in outcome.figures.values():
        figure = figures.Figure(layout="constrained")
        draw(figure)
        figure.draw_without_rendering()
        assert figure.axes
        assert all(axes.get_title() or axes.get_images() or axes.patches or axes.lines for axes in figure.axes)
