"""Progress for tests: keeps what it receives, and holds every task to the rows that were announced for it."""

from twinlens.core.progress import Quiet


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
