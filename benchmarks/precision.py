"""Do results stay within their intervals if probes are computed in a lower precision?

    python benchmarks/precision.py digits                                # the demonstration's network and digits
    python benchmarks/precision.py photographs --images FOLDER_OR_CSV    # EfficientNet-lite0
    … --precision float16 --limit 100

Evaluates methods twice, in float32 and in the other precision, with the same maps, and prints for each method and
metric both areas with the interval in float32, and whether the methods keep their order.
"""

from __future__ import annotations

import argparse
import tempfile

import twinlens as tl

METRICS = {
    "soundness_rank": tl.Soundness(estimator="rank"),
    "completeness": tl.Completeness(thresholds=(0.9, 0.7, 0.5, 0.3, 0.1)),
}
METHODS = ["gradcam", "saliency", "random"]


def evaluate(model: str, data: str, limit: int, precision: str, folder: str, **more: object) -> tl.Evaluation:
    """Evaluate the methods in one precision."""
    return tl.evaluate(
        model, data, METHODS, metrics=METRICS, limit=limit, precision=precision, compile=False, control="none",
        resamples=500, out=f"{folder}/{precision}", progress=False, **more,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=["digits", "photographs"])
    parser.add_argument("--images", default="imagenet20")
    parser.add_argument("--classes", default=None)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--precision", default="bfloat16")
    given = parser.parse_args()
    model, data = ("mnist-cnn", "mnist") if given.which == "digits" else ("efficientnet-lite0", given.images)
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            evaluate(model, data, given.limit, precision, folder, classes=given.classes)
            for precision in ("float32", given.precision)
        ]
        for metric in METRICS:
            tables = [[run.curve(name, metric).table for name in METHODS] for run in runs]
            same = [(a.predicted == b.predicted).mean() for a, b in zip(*tables, strict=True)]
            print(f"{metric}: predictions agree on {sum(same) / len(same):.1%} of the probes")
    print(f"| method | metric | float32 | {given.precision} | 95% interval in float32 | within |\n|{6 * '---|'}")
    for metric in METRICS:
        areas = [{name: run.results.methods[name].metrics[metric].area for name in METHODS} for run in runs]
        for name in METHODS:
            plain, lower = (found[name] for found in areas)
            ends = "none"
            if plain.interval is not None:
                low, high = plain.interval
                ends = f"{low:.3f} to {high:.3f} | {'yes' if low <= lower.value <= high else '**no**'}"
            print(f"| {name} | {metric} | {plain.value:.3f} | {lower.value:.3f} | {ends} |")
        orders = [sorted(METHODS, key=lambda name, found=found: -found[name].value) for found in areas]
        print(f"Order by {metric}: {', '.join(orders[0])}; {'the same' if orders[0] == orders[1] else orders[1]}.")


if __name__ == "__main__":
    main()
