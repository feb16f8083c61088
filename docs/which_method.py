"""Tables of docs/leaderboard/which-method.md, from the submissions: choices by model, and agreement with others.

A task here is one model of a suite with the methods of its submission; names of methods are as papers write them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from scipy.stats import spearmanr

from twinlens.attribution import METHODS, title_of
from twinlens.suites.submission import MethodEntry, Score, Submission, TaskEntry

METRICS = {"soundness_rank": "soundness", "completeness_share": "completeness", "calibration": "calibration"}
_LESS_IS_BETTER = ("calibration",)
_MODELS = {
    "cifar10@1": "ResNet-20",
    "cifar10-slow@1": "ResNet-20, slow methods",
    "digits@1": "small CNN",
    "digits-vit@1": "small vision transformer",
    "imagenet@1": "EfficientNet-lite0",
    "imagenet-lite1@1": "EfficientNet-lite1",
    "imagenet-lite2@1": "EfficientNet-lite2",
    "photos20@1": "EfficientNet-lite0, few photographs",
    "text@1": "small transformer, sentences",
    "grammar@1": "small language model, prompts",
}
"""What readers call the models of suites with one task."""
IDSDS = ("gradcam", "integrated_gradients", "rise", "input_x_gradient", "ig_sg")
"""Methods of IDSDS that are built in, in its order for ResNet-50 on ImageNet, best first."""
_SHOWN, _FEWEST = 4, 4


class Board(NamedTuple):
    """One task with its model."""

    suite: str
    kind: str
    model: str
    task: TaskEntry

    @property
    def methods(self) -> dict[str, MethodEntry]:
        """Methods that are no baselines."""
        return {name: entry for name, entry in self.task.methods.items() if not entry.baseline}

    def ranked(self, metric: str) -> list[str]:
        """Return the methods, best first."""
        return sorted(self.methods, key=lambda name: -goodness(self.methods[name].scores[metric], metric))


def read_boards(submissions: Sequence[Submission]) -> list[Board]:
    """Return all tasks, by kind of input."""
    boards = []
    for submission in submissions:
        suite = str(submission.suite)
        for name, task in submission.tasks.items():
            model = _MODELS.get(suite) or name.replace("-", " ")
            boards.append(Board(suite, submission.suite.tasks[name].kind, model, task))
    kinds = ("images", "text", "language models", "tables", "laboratory")
    return sorted(boards, key=lambda board: (kinds.index(board.kind), board.suite.split("@")))


def goodness(score: Score, metric: str) -> float:
    """Return a number that is larger for better methods."""
    value = float("-inf") if score.value is None else score.value
    return -value if metric in _LESS_IS_BETTER else value


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def list_choices(boards: Sequence[Board]) -> str:
    """Return, for each model, the methods with skill that are not told apart from the best one."""
    heads = ["model", "suite", "samples", "methods", *METRICS.values()]
    rows = [
        [
            *(board.model, f"`{board.suite}`", str(board.task.samples), str(len(board.methods))),
            *(_choice(board, metric) for metric in METRICS),
        ]
        for board in boards
        if board.kind != "laboratory"
    ]
    return _table(heads, rows)


def _choice(board: Board, metric: str) -> str:
    scores = {name: entry.scores[metric] for name, entry in board.task.methods.items()}
    skilled = [name for name in board.ranked(metric) if (scores[name].skill_low or 0) > 0]
    if not skilled:
        return "none has skill"
    best = scores[skilled[0]]
    close = [name for name in skilled if _overlap(scores[name], best)]
    names = [f"{title_of(name)} {scores[name].value:.2f}" for name in close[:_SHOWN]]
    more = f" and {len(close) - _SHOWN} more" if len(close) > _SHOWN else ""
    better = [
        f"{title_of(name)} {score.value:.2f}"
        for name, score in scores.items()
        if board.task.methods[name].baseline and goodness(score, metric) > goodness(best, metric)
    ]
    return ", ".join(names) + more + (f" (baselines ahead: {', '.join(better)})" if better else "")


def _overlap(one: Score, other: Score) -> bool:
    ends = (one.low, one.high, other.low, other.high)
    if None in ends:
        return True
    return max(one.low, other.low) <= min(one.high, other.high)  # type: ignore[type-var]


def list_numbers(boards: Sequence[Board], kinds: Sequence[str]) -> str:
    """Return soundness and completeness of every method on the models of some kinds."""
    columns = [board for board in boards if board.kind in kinds]
    names = [name for name in METHODS if any(name in board.task.methods for board in columns)]
    heads = ["method", *(f"{board.model} ({board.task.samples})" for board in columns)]
    rows = []
    for name in names:
        baseline = any(name in b.task.methods and b.task.methods[name].baseline for b in columns)
        label = f"{title_of(name)} (baseline)" if baseline else title_of(name)
        rows.append([label, *(_numbers(board, name) for board in columns)])
    return _table(heads, rows)


def _numbers(board: Board, name: str) -> str:
    if name not in board.task.methods:
        return "refuses" if name in board.task.refused else "–"
    scores = board.task.methods[name].scores
    return " / ".join(f"{scores[metric].value:.2f}" for metric in ("soundness_rank", "completeness_share"))


def _correlation(names: Sequence[str], *values: Callable[[str], float]) -> str:
    """Return the rank correlation of two numbers over methods; a dash where there are too few methods."""
    if len(names) < _FEWEST:
        return "–"
    number = spearmanr(*([each(name) for name in names] for each in values)).statistic
    return "–" if math.isnan(number) else f"{number:+.2f} ({len(names)})"


def list_agreement(boards: Sequence[Board]) -> str:
    """Return rank correlations of soundness between models of images, and of soundness with completeness."""
    images = [board for board in boards if board.kind == "images"]
    rows = []
    for board in images:
        cells = []
        for other in images:
            common = [name for name in board.methods if name in other.methods]
            cells.append("" if other is board else _correlation(common, *map(_soundness, (board, other))))
        own = _correlation(list(board.methods), _soundness(board), _of(board, "completeness_share"))
        rows.append([board.model, *cells, own])
    return _table(["model", *(board.model for board in images), "with completeness on the same model"], rows)


def _of(board: Board, metric: str) -> Callable[[str], float]:
    return lambda name: goodness(board.task.methods[name].scores[metric], metric)


def _soundness(board: Board) -> Callable[[str], float]:
    return _of(board, "soundness_rank")


def list_truth(boards: Sequence[Board]) -> str:
    """Return, for tasks with known answers, how well measured numbers order the methods."""
    rows = []
    for board in (each for each in boards if each.kind == "laboratory"):
        cells = []
        for metric in ("soundness_rank", "completeness_share"):
            scores = {name: entry.scores[metric] for name, entry in board.task.methods.items()}
            known = {n: s for n, s in scores.items() if s.truth is not None and s.value is not None}
            errors = [abs(s.value - s.truth) for s in known.values()]  # type: ignore[operator]
            order = _correlation(list(known), *(_field(known, field) for field in ("value", "truth")))
            cells += [order, f"{sum(errors) / len(errors):.3f}"]
        rows.append([board.model, *cells])
    heads = ["task", *(f"{name}: {what}" for name in ("soundness", "completeness") for what in ("order", "error"))]
    return _table(heads, rows)


def _field(scores: Mapping[str, Score], field: str) -> Callable[[str], float]:
    return lambda name: getattr(scores[name], field)  # type: ignore[no-any-return]


def list_published(boards: Sequence[Board]) -> str:
    """Return what the statements of publications are here, on every model of images."""
    rows = []
    for board in (each for each in boards if each.kind == "images"):
        orders = [
            ", ".join(title_of(name) for name in board.ranked(metric) if name in IDSDS)
            for metric in ("soundness_rank", "completeness_share")
        ]
        rows.append(
            [
                board.model,
                *orders,
                _smoothed(board),
                _place(board, "gradient_shap"),
                _place(board, "iba", metrics=("soundness_rank",)),
                _place(board, "gradcam", metrics=("soundness_rank",)),
                _place(board, "extremal_perturbation", metrics=("completeness_share",)),
            ]
        )
    heads = [
        "model",
        "methods of IDSDS by soundness, best first",
        "by completeness, best first",
        "IG-SG less IG, soundness",
        "GradientSHAP: place in soundness, completeness",
        "IBA: place in soundness",
        "GradCAM: place in soundness",
        "ExPerturb: place in completeness",
    ]
    return _table(heads, rows)


def _smoothed(board: Board) -> str:
    if not {"ig_sg", "integrated_gradients"} <= set(board.methods):
        return "–"
    number = _soundness(board)
    return f"{number('ig_sg') - number('integrated_gradients'):+.2f}"


def _place(board: Board, name: str, metrics: Sequence[str] = ("soundness_rank", "completeness_share")) -> str:
    """Return the places of a method among all, such as "3, 5 of 22"."""
    if name not in board.methods:
        return "refuses" if name in board.task.refused else "–"
    places = [str(board.ranked(metric).index(name) + 1) for metric in metrics]
    return f"{', '.join(places)} of {len(board.methods)}"


def tables(submissions: Sequence[Submission]) -> dict[str, str]:
    """Return the tables of the page by the names of their places."""
    boards = read_boards(submissions)
    return {
        "choices": list_choices(boards),
        "images": list_numbers(boards, ("images",)),
        "others": list_numbers(boards, ("text", "language models", "tables")),
        "agreement": list_agreement(boards),
        "truth": list_truth(boards),
        "published": list_published(boards),
    }
