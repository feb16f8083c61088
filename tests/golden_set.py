"""A small set of inputs, maps and curves, made by the slow reference alone, against which everybody can check parity.

    python -m tests.golden_set    # writes tests/golden.json anew

Sixteen images of 3 × 6 × 6, a linear classifier of four classes that is right about most of them, maps without ties,
and for both protocols every curve with linear imputation and no noise, deletion with zeros. twinlens has no part in
making it.
"""

import json
from pathlib import Path

import numpy as np

from tests import reference

FILE = Path(__file__).with_name("golden.json")
LEVELS = [percent / 100 for percent in range(98, 0, -4)]
THRESHOLDS, SHARES = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1], [0.1, 0.3, 0.5, 0.7, 0.9]
EPSILON, START = 0.01, 0.7


def make_case():
    """Inputs, weights, labels and maps as lists of numbers of few digits, so that the file holds them exactly."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(16, 3, 6, 6)).round(3)
    weights = rng.normal(size=(108, 4)).round(3)
    right = (inputs.reshape(16, -1) @ weights).argmax(axis=1)
    labels = np.where(np.arange(16) % 8 == 0, (right + 1) % 4, right)
    evidence = np.abs(inputs * weights[:, right].T.reshape(16, 3, 6, 6)).sum(axis=1)
    maps = evidence.reshape(16, -1).round(3) + 1e-4 * rng.permuted(np.tile(np.arange(36), (16, 1)), axis=1)
    return inputs, weights, labels, maps.round(4)


def black(image, kept):
    return np.where(np.isin(np.arange(36), list(kept)).reshape(6, 6), image, 0.0)


def make_curves(inputs, weights, labels, maps):
    """Compute every curve by the reference."""
    case = (lambda image: image.reshape(-1) @ weights, inputs, labels, maps)
    solved = {}

    def linear(image, kept):
        """Solved once, since most curves ask for the same."""
        key = (image.tobytes(), frozenset(kept))
        if key not in solved:
            solved[key] = reference.impute_linear(image, kept)
        return solved[key]

    curves = {}
    for protocol in ("paper", "soco"):
        for mode in ("accuracy", "score", "probability"):
            curve, _ = reference.soundness(*case, LEVELS, EPSILON, mode, protocol, linear)
            curves[f"{protocol} soundness {mode}"] = curve
        lost = {"by": "value", "impute": linear}
        curves[f"{protocol} completeness"] = reference.loss(*case, THRESHOLDS, protocol, **lost)
        for order in ("morf", "lerf"):
            lost = {"by": "area", "order": order, "impute": linear}
            curves[f"{protocol} road {order}"] = reference.loss(*case, SHARES, protocol, **lost)
        curves[f"{protocol} deletion"] = reference.loss(*case, SHARES, protocol, by="area", impute=black)
    started = (LEVELS, EPSILON, "accuracy", "soco", linear, START)
    curves[f"soco soundness from {START}"], _ = reference.soundness(*case, *started)
    return curves


def main():
    case = make_case()
    names = ("inputs", "weights", "labels", "maps")
    stored = {name: array.tolist() for name, array in zip(names, case, strict=True)}
    FILE.write_text(json.dumps({**stored, "curves": make_curves(*case)}) + "\n")


if __name__ == "__main__":
    main()
