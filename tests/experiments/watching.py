"""Progress for tests: keeps what it receives, and holds every task to the rows that were announced for it.

And accuracies of networks that nobody trained.
"""

import numpy as np

from twinlens.core.progress import Quiet
from twinlens.experiments.judging import mean_of


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
    return mean_of(correct.astype(float), [str(k) for k in range(samples)], over="test images")
