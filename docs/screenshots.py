"""Make a run of each kind of data, and take pictures of its page.

    python docs/screenshots.py OUT [--images cifar10.npz --weights resnet20.safetensors] [NAME …]

Runs are kept in OUT and resume. The pictures of each page, 1,400 and 420 pixels wide, are written to docs/gallery,
the samples of those that are no images beside them, and the top of the demo's page to docs/report.png.
Chromium and its driver are needed. CIFAR-10 needs images (`x_test`, `y_test`) and the weights of a ResNet-20.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

import twinlens as tl

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "examples")]
FREQUENT, RARE = 128, 64  # colours of a picture
TOP = 1620  # pixels of the demo's page that are shown in the README
WIDTHS = {1400: "wide", 420: "narrow"}


def demo(out: Path, _: argparse.Namespace) -> None:
    """Digits: the run of `twinlens demo`."""
    from twinlens.cli.main import main  # noqa: PLC0415

    main(["demo", "--out", str(out), "--quiet"])


def cifar10(out: Path, given: argparse.Namespace) -> None:
    """100 images of CIFAR-10, ResNet-20."""
    arrays = np.load(given.images)
    network = f"{HERE.parent / 'examples' / 'resnet20.py'}:build"
    model = dataclasses.replace(tl.load_model(network, weights=given.weights), name="ResNet-20")
    classes = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    data = tl.data.from_arrays(arrays["x_test"], arrays["y_test"], classes=classes, name="CIFAR-10")
    methods = ["integrated_gradients", "gradcam", "occlusion", "deeplift", "random", "centre"]
    tl.evaluate(model, data, methods, limit=100, out=out)


def table(out: Path, _: argparse.Namespace) -> None:
    """Scikit-learn's breast-cancer set, logistic regression."""
    from sklearn.datasets import load_breast_cancer  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415
    from sklearn.preprocessing import StandardScaler  # noqa: PLC0415

    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    train, test, train_labels, labels = train_test_split(x, y, random_state=0, test_size=0.3)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train, train_labels)
    data = tl.data.from_arrays(test, labels, classes=["malignant", "benign"], name="breast cancer")
    means = train.to_numpy().mean(axis=0)
    tl.evaluate(model, data, ["kernel_shap", "occlusion", "random"], imputer=tl.MeanImputer(means), out=out)


def text(out: Path, _: argparse.Namespace) -> None:
    """The sentences and the transformer of examples/text.py."""
    from text import SPECIAL, WORDS, leave_one_out, sentences, train  # noqa: PLC0415

    methods = {"leave_one_out": leave_one_out} | {name: name for name in ("integrated_gradients", "saliency", "random")}
    mask, special = WORDS.index("[MASK]"), tuple(WORDS.index(word) for word in SPECIAL)
    tokens, labels = sentences(200, seed=0)
    data = tl.data.from_arrays(tokens, labels, name="sentences", classes=["complains", "praises"], tokenizer=WORDS)
    tl.evaluate(train(), data, methods, imputer=tl.TokenImputer(mask, special=special), out=out)


def prompt(out: Path, _: argparse.Namespace) -> None:
    """The prompts and the language model of examples/agreement.py."""
    import agreement  # noqa: PLC0415

    tokens, verbs, exact = agreement.sentences(100, seed=0)
    methods = ["occlusion", "integrated_gradients", "attn_lrp", "attention_rollout", "random"]
    data = tl.data.from_arrays(tokens, verbs, name="prompts", classes=agreement.WORDS, tokenizer=agreement.WORDS)
    imputer = tl.TokenImputer(agreement.WORDS.index("[MASK]"), special=(0, 1))
    tl.evaluate(agreement.train(), data, methods, maps={"exact": exact}, imputer=imputer, out=out)


def signal(out: Path, _: argparse.Namespace) -> None:
    """The signals and the network of examples/time_series.py."""
    import time_series  # noqa: PLC0415

    inputs, labels, _starts = time_series.signals(100, seed=0)
    names = {"feature_names": ["wave and noise", "noise"], "sampling_rate": 48}
    data = tl.data.from_arrays(inputs, labels, name="signals", classes=["slow", "fast"], **names)
    tl.evaluate(time_series.train(), data, ["integrated_gradients", "gradcam", "saliency", "random"], out=out)


def volume(out: Path, _: argparse.Namespace) -> None:
    """The volumes and the network of examples/volume.py."""
    import volume as example  # noqa: PLC0415

    inputs, labels, _where = example.volumes(40, seed=0)
    data = tl.data.from_arrays(inputs, labels, name="bodies", classes=example.BODIES)
    methods = ["integrated_gradients", "gradcam", "saliency", "random"]
    tl.evaluate(example.train(), data, methods, metrics="headline", out=out)


RUNS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "demo": demo,
    "cifar10": cifar10,
    "table": table,
    "text": text,
    "prompt": prompt,
    "signal": signal,
    "volume": volume,
}
SAMPLES = {"table", "text", "prompt", "signal", "volume"}
"""Pages whose samples are shown in the guide, too."""


def palette_of(picture: Image.Image) -> Image.Image:
    """Return the frequent colours of a picture, and the rare ones, such as those of attribution judged false."""
    both = Image.new("P", (1, 1))
    frequent = picture.quantize(FREQUENT, method=Image.Quantize.MEDIANCUT).getpalette()
    rare = picture.quantize(RARE, method=Image.Quantize.MAXCOVERAGE).getpalette()
    both.putpalette([*frequent[: 3 * FREQUENT], *rare[: 3 * RARE]])
    return both


def take_pictures(page: Path, name: str) -> None:
    """Write the pictures of a page."""
    from tests.report.browser import Browser  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(profile)
        try:
            for width, word in WIDTHS.items():
                browser.open(page, width=width, folded=True)
                content = browser.command("Page.captureScreenshot", captureBeyondViewport=True, format="png")["data"]
                picture = Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB")
                small = picture.quantize(palette=palette_of(picture), dither=Image.Dither.NONE)
                small.save(HERE / "gallery" / f"{name}-{word}.png", optimize=True)
                if (name, word) == ("demo", "wide"):
                    small.crop((0, 0, width, TOP)).save(HERE / "report.png", optimize=True)
                if name in SAMPLES and word == "wide":
                    area = browser.run("return document.querySelector('#explorer').getBoundingClientRect().toJSON()")
                    box = [round(area[side]) for side in ("left", "top", "right", "bottom")]
                    small.crop(box).save(HERE / "gallery" / f"{name}-samples.png", optimize=True)
        finally:
            browser.driver.quit()


def main() -> None:
    """Make the runs that are missing, and all pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", default=list(RUNS), help=", ".join(RUNS))
    parser.add_argument("--images", help="cifar10.npz")
    parser.add_argument("--weights", help="resnet20.safetensors")
    given = parser.parse_args()
    (HERE / "gallery").mkdir(exist_ok=True)
    for name in given.names:
        RUNS[name](given.out / name, given)
        take_pictures(given.out / name / "report.html", name)


if __name__ == "__main__":
    main()
