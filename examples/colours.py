"""Do soundness and completeness order real methods as the truth does? On a network whose weights were set by hand.

python examples/colours.py             # a minute; prints the table of docs/concepts/estimators.md

The network counts red pixels for a class and blue ones against it (AttributionLab, Zhang et al. 2023). Truths are
exact: the share of attribution on pixels that speak for the label (Definition 4.8), and what the headline pair
estimates, from the exact effects of single pixels.
"""

import argparse

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

import twinlens as tl
from twinlens.laboratory import colours, true_soundness, true_steps

METHODS = (
    "integrated_gradients", "deeplift", "gradcam", "input_x_gradient", "saliency", "occlusion", "sobel", "random",
)  # fmt: skip


def measure(samples: int, methods: tuple[str, ...] = METHODS) -> pd.DataFrame:
    """Return the measured and the true values of each method's maps."""
    task, rows = colours(samples), {}
    for method in methods:
        options = {"window": 3, "stride": 1} if method == "occlusion" else {}
        maps = tl.attribute(task.model, task.inputs.float(), task.labels, method, **options).double()
        how = {"imputer": task.imputer}
        exact, values = true_steps(maps.numpy(), task.effects), (task.model, task.inputs, task.labels, maps)
        kept = np.arange(1, maps[0].numel() + 1) / maps[0].numel()
        rows[method] = {
            "on predictive pixels": np.nanmean(true_soundness(maps.numpy(), task.predictive)),
            "soundness": tl.soundness(*values, estimator="rank", **how).area(),
            "its truth": np.nanmean(exact.soundness()[:, -1]),
            "completeness": tl.completeness(*values, estimator="share", **how).area(),
            "its truth ": np.trapezoid(np.nanmean(exact.completeness(), axis=0), kept),
        }
    return pd.DataFrame(rows).T.round(3)  # exact maps differ by rounding errors alone


def main() -> None:
    """Print the table and how well the order is that of the truth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100)
    frame = measure(parser.parse_args().samples)
    print("| | " + " | ".join(map(str.strip, frame)) + " |")
    print("|---" * (1 + len(frame.columns)) + "|")
    for method, row in frame.iterrows():
        print(f"| {method} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
    for name, truth in (
        ("soundness", "its truth"),
        ("soundness", "on predictive pixels"),
        ("completeness", "its truth "),
    ):
        print(f"Rank correlation of {name} with {truth.strip()}: {spearmanr(frame[name], frame[truth])[0]:.2f}")


if __name__ == "__main__":
    main()
