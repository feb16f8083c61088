"""Write how the paper's soundness of a stored run depends on where judging starts, into a table of a page.

    twinlens evaluate --model efficientnet-lite0 --data photos.csv --methods integrated_gradients \
        --option integrated_gradients.steps=50 --metrics soundness --limit 100 --control none --out RUN
    python docs/experiments/start_level.py RUN

No model is called. Fewer images are those that a smaller limit draws.
"""

import dataclasses
import re
import sys
from pathlib import Path

import twinlens as tl
from twinlens.metrics.protocols import PROTOCOLS
from twinlens.support.randomness import drawn_order

PAGE = Path(__file__).with_name("benchmark.md")
OPENING, CLOSING = "<!-- start level -->", "<!-- end of start level -->"
COUNTS, START, HIGH = (25, 50, 75, 100), 0.04, 0.4


def rows_of(run):
    """Yield a row for each method and number of images: accuracies, and areas by where judging starts."""
    evaluation = tl.open_evaluation(run)
    late = dataclasses.replace(PROTOCOLS["paper"], start_level=START)
    for method in evaluation.methods:
        table = evaluation.curve(method, "soundness").table
        order = drawn_order(table.ids, seed=0)
        for count in (n for n in COUNTS if n <= len(table)):
            some = table.take(sorted(order[:count]))
            curves = [tl.soundness_from_probes(some, protocol=p) for p in (PROTOCOLS["paper"], late)]
            areas = [f"{curve.area(0.0, HIGH):.3f}" for curve in curves]
            yield [method, str(count), f"{curves[0].performance[0]:.3f}", *areas]


def main(run):
    """Write the table."""
    starts = ("from the first level", f"above an accuracy of {START:g}")
    areas = [f"area up to {HIGH:g}, judged {start}" for start in starts]
    heads = ["method", "photographs", "accuracy at the first level", *areas]
    lines = [heads, ["---"] * len(heads), *rows_of(run)]
    inside = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    text = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(OPENING)}\n.*?{re.escape(CLOSING)}", re.DOTALL)
    PAGE.write_text(pattern.sub(f"{OPENING}\n{inside}\n{CLOSING}", text), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
