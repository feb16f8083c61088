"""Numbers of the paper's authors' code that are small enough to lie beside the tests.

    python -m tests.authors ../shared/golden    # writes tests/authors.npz anew

Made-up maps without ties: the masks that their code draws from two of them, and for seven courses of the accuracy and
one of scores per sample what it calls false, and the soundness, by their code and by the paper's algorithm. Six small
images with removed pixels, as their code imputes them.
"""

import json
import sys
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_name("authors.npz")
WHOLE = ("noisy", "hump")
"""Courses of which the values of every sample are kept, too."""


def excerpt(golden: Path) -> dict[str, np.ndarray]:
    """Choose what is kept of the whole set, by name."""
    found = {}
    with np.load(golden / "masks.npz") as masks:
        found |= {name: masks[name] for name in masks if name.startswith("u8_") and not name.endswith("float64")}
        found |= {name: masks[name] for name in ("area_ratios", "value_ratios")}
    with np.load(golden / "soundness_bookkeeping.npz") as stored:
        found |= {name: stored[name] for name in ("smap", "mask_ratios", "predscore/scores")}
        found |= {name: stored[name] for name in stored if name.endswith("is_false")}
        found |= {f"{name}/{key}": stored[f"{name}/{key}"]
                  for name in WHOLE for key in ("reference_per_sample", "paper_per_sample")}  # fmt: skip
    with np.load(golden / "imputation.npz") as solved:
        small = sorted({name.split("/")[0] for name in solved if solved[name].shape[-1] <= 28})
        found |= {f"imputation/{name}": solved[name] for name in solved if name.split("/")[0] in small}
    described = json.loads((golden / "soundness_bookkeeping.json").read_text())
    for name, course in (*described["sequences"].items(), ("predscore", described["predscore"])):
        found |= {f"{name}/{key}": np.array(each) for key, each in course.items() if isinstance(each, list)}
    return found


def imputation_cases() -> dict[str, dict[str, np.ndarray]]:
    """Return image, mask and imputed image of each small case, by name."""
    cases: dict[str, dict[str, np.ndarray]] = {}
    with np.load(FILE) as stored:
        for name in stored:
            if name.startswith("imputation/"):
                _, case, part = name.split("/")
                cases.setdefault(case, {})[part] = stored[name]
    return cases


if __name__ == "__main__":
    np.savez_compressed(FILE, **excerpt(Path(sys.argv[1])))
