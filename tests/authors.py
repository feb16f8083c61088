"""Numbers of the paper's authors' code that are small enough to lie beside the tests.

    python -m tests.authors ../shared/golden    # writes tests/authors.npz anew

Made-up maps without ties: the masks that their code draws from them, and for seven courses of the accuracy and one of
scores per sample what it calls false, and the soundness, by their code and by the paper's algorithm. Eight images with
removed pixels, as their code imputes them. One photograph with a map of GradCAM, and what EfficientNet-lite0 answers in
each of their metrics.
"""

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

FILE = Path(__file__).with_name("authors.npz")
WHOLE = ("noisy", "hump")
"""Courses of which the values of every sample are kept, too."""
PHOTOGRAPH = "n01440764/n01440764_tench.png"
METRICS = ("soundness", "vision_completeness", "road_morf", "road_lerf", "deletion")
"""What the photograph's answers are of, by the authors' names."""

_LARGEST = 64  # side of an image whose imputation is kept


def excerpt(golden: Path) -> dict[str, np.ndarray]:
    """Choose what is kept of the whole set, by name."""
    found = {}
    with np.load(golden / "masks.npz") as masks:
        found |= {name: masks[name] for name in masks if not name.endswith("float64")}
    with np.load(golden / "soundness_bookkeeping.npz") as stored:
        found |= {name: stored[name] for name in ("smap", "mask_ratios", "predscore/scores")}
        found |= {name: stored[name] for name in stored if name.endswith("is_false")}
        found |= {f"{name}/{key}": stored[f"{name}/{key}"]
                  for name in WHOLE for key in ("reference_per_sample", "paper_per_sample")}  # fmt: skip
    with np.load(golden / "imputation.npz") as solved:
        small = sorted({name.split("/")[0] for name in solved if solved[name].shape[-1] <= _LARGEST})
        found |= {f"imputation/{name}": solved[name] for name in solved if name.split("/")[0] in small}
    described = json.loads((golden / "soundness_bookkeeping.json").read_text())
    for name, course in (*described["sequences"].items(), ("predscore", described["predscore"])):
        found |= {f"{name}/{key}": np.array(each) for key, each in course.items() if isinstance(each, list)}
    return found | photograph(golden / "imagenet")


def photograph(folder: Path) -> dict[str, np.ndarray]:
    """Return the first photograph, its map, and what the model answers to it without noise."""
    found = {"photograph/image": np.asarray(Image.open(folder / "images" / PHOTOGRAPH))}
    with np.load(folder / "maps_tiefree_reference_subset.npz") as maps:
        found |= {"photograph/map": maps["gradcam"][0], "photograph/label": maps["classes"][0]}
    for metric in METRICS:
        name = "soundness_gradcam_det" if metric == "soundness" else f"order_gradcam_det_{metric}"
        with np.load(folder / "logits" / f"{name}_logits.npz") as logits:
            own = {
                "levels": logits["mask_ratios"],
                "logit": logits["label_logit"][:, 0],
                "predicted": logits["argmax"][:, 0],
            }
        found |= {f"photograph/{metric}/{key}": values for key, values in own.items()}
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
