"""The metrics once more: slow, dense, with Python loops and exact fractions, and nothing taken from the package.

Follows the paper's Algorithms 3 and 4 set by set; the authors' deviations are spelled out where they occur.
"""

from fractions import Fraction

import numpy as np


def ranking(values):
    """Feature indices, least relevant first. Reference cases have no ties."""
    return sorted(range(len(values)), key=lambda f: values[f])


def impute_zero(x, kept):
    return np.array([x[f] if f in kept else 0.0 for f in range(len(x))])


def impute_linear(x, kept):
    """Solve the definition as it reads: each removed feature is the weighted mean of the neighbours it has.

    x is (C, *S); direct neighbours weigh twice as much as diagonal ones.
    """
    shape, features = x.shape[1:], x[0].size
    matrix, right = np.eye(features), x.reshape(len(x), -1).T.copy()
    positions = list(np.ndindex(shape))
    for f in set(range(features)) - set(kept):
        near = {}
        for g, other in enumerate(positions):
            offset = np.abs(np.subtract(positions[f], other))
            if g != f and offset.max() <= 1:
                near[g] = 1 / 2 ** offset.sum()
        matrix[f, list(near)] = -np.array(list(near.values())) / sum(near.values())
        right[f] = 0
    return np.linalg.solve(matrix, right).T.reshape(x.shape)


def kept_by_area(values, share, order, protocol):
    n = len(values)
    count = int(n * share) if protocol == "soco" else min(round(n * share), n - 1)
    ranked = ranking(values)
    return set(ranked[count:] if order == "lerf" else ranked[: n - count])


def soundness(logits_of, inputs, labels, maps, levels, epsilon, mode, protocol, impute=impute_zero, start=0.04):
    """The list of (performance, soundness) over the levels; logits_of maps one input to its logits.

    `start` is where the authors begin to judge, and `mode` "score" their raw logit; the paper has no start.
    """
    n = len(inputs)
    soco = protocol == "soco"
    maps = [np.asarray(m, dtype=float) / max(np.max(m), 1e-300) for m in maps]
    false = [set() for _ in range(n)]
    before = [set() for _ in range(n)]
    previous = [Fraction(0)] * n
    curve = []
    for share in levels:
        included, scores = [], []
        for i in range(n):
            kept = kept_by_area(maps[i], share, "lerf", protocol)
            logits = logits_of(impute(inputs[i], kept))
            if mode == "accuracy":
                scores.append(Fraction(int(np.argmax(logits) == labels[i])))
            elif soco and mode == "score":
                scores.append(Fraction(float(logits[labels[i]])))
            else:
                e = np.exp(logits - logits.max())
                scores.append(Fraction(float(e[labels[i]] / e.sum())))
            included.append(kept)
        divisor = n + (Fraction(1, 10**6) if soco and mode == "accuracy" else 0)
        mean = sum(scores) / divisor
        if mode == "accuracy":
            scores = [mean] * n
        lagging = [set(s) for s in false]
        judging = not soco or mean > Fraction(start)
        for i in range(n):
            gain = scores[i] - previous[i]
            # Scores are floating-point in the first place, and so is their difference.
            gain = gain if mode == "accuracy" else Fraction(float(scores[i]) - float(previous[i]))
            is_false = gain <= Fraction(epsilon) if soco else gain < Fraction(epsilon)
            # 0.01 is not a float: a gain of exactly 1% counts as reaching it.
            if mode == "accuracy" and not soco:
                is_false = gain < Fraction(str(epsilon))
            if judging and is_false:
                false[i] |= included[i] - before[i]
        qs = []
        for i in range(n):
            wrong = lagging[i] if soco else false[i]
            mass = sum(Fraction(maps[i][f]) for f in included[i])
            bad = sum(Fraction(maps[i][f]) for f in wrong)
            if soco:
                qs.append((mass - bad) / (mass + Fraction(1, 10**6)))
            elif mass > 0:
                qs.append((mass - bad) / mass)
        curve.append((float(mean), float(sum(qs) / len(qs)) if qs else float("nan")))
        before, previous = included, scores
    return curve, false


def loss(logits_of, inputs, labels, maps, levels, protocol, *, by, order="morf", impute=impute_zero):
    """Loss of accuracy against the untouched inputs at each level, by area or by value."""
    n = len(inputs)

    def accuracy(keeps):
        hits = 0
        for x, y, kept in zip(inputs, labels, keeps, strict=True):
            hits += int(np.argmax(logits_of(impute(x, kept))) == y)
        return hits / (n + (1e-6 if protocol == "soco" else 0))

    everything = [set(range(len(m))) for m in maps]
    start = accuracy(everything)
    out = []
    for level in levels:
        if by == "value":
            keeps = [{f for f in range(len(m)) if not m[f] > level * max(m)} for m in maps]
        else:
            keeps = [kept_by_area(m, level, order, protocol) for m in maps]
        out.append(start - accuracy(keeps))
    return out
