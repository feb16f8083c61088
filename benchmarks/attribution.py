"""What does an explanation cost?

Prints CPU seconds per image for every method on a small CNN (32 × 32) and on EfficientNet-lite0 (224 × 224, where its
packages are installed), each also as a multiple of one forward pass and of its own passes of the bare model: the same
batches, forward, and backward where gradients reach the input. It also prints Captum's time if Captum has the method,
and the speed-up of the optimising methods for sixteen images over one, on three small CNNs.

    python benchmarks/attribution.py [--images 4] [--methods gradcam …] [--only efficientnet-lite0] [--short]
"""

import argparse
import time
import warnings

import torch
from torch import nn

import twinlens as tl
from twinlens.attribution.feature_maps import find_layer
from twinlens.models.mnist_cnn import DigitCNN

BATCHED = ("extremal_perturbation", "iba", "input_iba")
ON_ATTENTION = ("attention_rollout", "gradient_attention")  # not for convolutional networks
PATIENCE = 2.0  # seconds for repeated timings of a method


def small_cnn(channels=3, width=16):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, 10),
    )


SHORT = {
    "rise": {"masks": 64},
    "extremal_perturbation": {"steps": 8},
    "occlusion": {"window": 56},
    **{name: {"samples": 2, "steps": 8} for name in ("ig_sg", "ig_sq", "ig_var")},
    "input_iba": {"rounds": 2, "steps": 6},
}
"""Options with fewer passes, for methods whose cost is measured as a multiple of them."""


def seconds(function):
    """Return the smallest CPU time of the calls that fit into `PATIENCE`; slow ones are timed once, without warm-up."""
    times = []
    while not times or (sum(times) + times[-1] < PATIENCE and len(times) < 10):
        start = time.process_time()
        function()
        times.append(time.process_time() - start)
    return min(times)


def passes_of(model, explain):
    """Return the passes of the model in an explanation: the shape of each, and whether gradients reach its input."""
    passes = []

    def watch(_, given):
        inputs = given[0].view_as(given[0])
        one = [tuple(inputs.shape), False]
        passes.append(one)
        if inputs.requires_grad:
            inputs.register_hook(lambda _: one.__setitem__(1, True))
        return (inputs, *given[1:])

    handle = model.register_forward_pre_hook(watch)
    explain()
    handle.remove()
    return passes


def run_bare(model, passes):
    """Run the same passes of the bare model, in the memory layout that methods use."""
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in weights:
        weight.requires_grad_(False)
    for shape, backward in passes:
        inputs = torch.zeros(shape)
        if len(shape) == 4:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        with torch.set_grad_enabled(backward):
            answer = model(inputs.requires_grad_(backward))
        if backward:
            torch.autograd.grad(answer[:, 0].sum(), inputs)
    for weight in weights:
        weight.requires_grad_(True)


def captum_methods():
    try:
        from captum import attr  # noqa: PLC0415
    except ImportError:
        return {}

    def occlusion(model, images, targets):
        channels, height, width = images.shape[1:]
        return attr.Occlusion(model).attribute(
            images,
            target=targets,
            sliding_window_shapes=(channels, height // 8, width // 8),
            strides=(channels, height // 16, width // 16),
            perturbations_per_eval=max(1, 16 // len(images)),
        )

    def gradcam(model, images, targets):
        maps = attr.LayerGradCam(model, find_layer(model, images)).attribute(images, target=targets)
        return attr.LayerAttribution.interpolate(maps, images.shape[2:])

    def integrated_gradients(model, images, targets):
        return attr.IntegratedGradients(model).attribute(images, target=targets, n_steps=32, internal_batch_size=16)

    def ensemble(kind):
        return lambda model, images, targets: attr.NoiseTunnel(attr.IntegratedGradients(model)).attribute(
            images, target=targets, nt_type=kind, nt_samples=20, nt_samples_batch_size=1, stdevs=0.3**0.5, n_steps=32,
            internal_batch_size=16,
        )  # fmt: skip

    return {
        "saliency": lambda m, x, t: attr.Saliency(m).attribute(x, target=t),
        "input_x_gradient": lambda m, x, t: attr.InputXGradient(m).attribute(x, target=t),
        "guided_backprop": lambda m, x, t: attr.GuidedBackprop(m).attribute(x, target=t),
        "integrated_gradients": integrated_gradients,
        "ig_sg": ensemble("smoothgrad"),
        "ig_sq": ensemble("smoothgrad_sq"),
        "ig_var": ensemble("vargrad"),
        "deeplift": lambda m, x, t: attr.DeepLift(m).attribute(x, target=t),
        "gradcam": gradcam,
        "occlusion": occlusion,
    }


def table(title, model, inputs, targets, methods, short=False):
    model.eval()
    with torch.no_grad():
        forward = seconds(lambda: model(inputs)) / len(inputs)
    print(f"\n{title}: one forward pass takes {forward * 1000:.2f} ms per image, batch of {len(inputs)}")
    print(f"{'method':24}{'s per image':>12}{'× forward':>11}{'× own passes':>14}{'Captum s':>11}{'Captum / ours':>15}")
    theirs = captum_methods()
    for name in methods:
        options = SHORT.get(name, {}) if short else {}

        def explain(name=name, options=options):
            return tl.attribute(model, inputs, targets, name, **options)

        passes = passes_of(model, explain)
        ours = seconds(explain) / len(inputs)
        bare = seconds(lambda passes=passes: run_bare(model, passes)) / len(inputs) if passes else 0
        line = f"{name:24}{ours:12.4f}{ours / forward:11.0f}{ours / bare if bare else float('nan'):14.2f}"
        if name in theirs and not options:  # with the same settings only
            try:
                other = seconds(lambda name=name: theirs[name](model, inputs.clone().requires_grad_(), targets))
                line += f"{other / len(inputs):11.4f}{other / len(inputs) / ours:15.2f}"
            except Exception as error:  # Captum refuses re-used modules
                line += f"   {type(error).__name__}"
        print(line, flush=True)


def batches(title, model, inputs, targets, methods):
    model.eval()
    for name in methods:
        alone = seconds(lambda name=name: tl.attribute(model, inputs[:1], targets[:1], name))
        together = seconds(lambda name=name: tl.attribute(model, inputs, targets, name)) / len(inputs)
        print(
            f"{title:24}{name:24}{alone:10.4f} s alone,{together:10.4f} s in a batch of {len(inputs)}: "
            f"{alone / together:.1f} times faster",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2, help="images for EfficientNet-lite0")
    parser.add_argument("--methods", nargs="+", default=[name for name in tl.METHODS if name not in ON_ATTENTION])
    parser.add_argument("--only", choices=["small-cnn", "efficientnet-lite0"], help="one of the networks alone")
    parser.add_argument("--short", action="store_true", help="fewer passes for slow methods")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(16) % 10
    images = torch.randn(16, 3, 32, 32, generator=generator)
    if options.only != "efficientnet-lite0":
        table("Small CNN, 32 × 32", small_cnn(), images, targets, options.methods, options.short)
        print()
        optimising = [name for name in BATCHED if name in options.methods]
        for title, model, shape in (
            ("CNN, 8 × 8", small_cnn(1, 8), (1, 8, 8)),
            ("mnist-cnn, 28 × 28", DigitCNN(), (1, 28, 28)),
            ("CNN, 3 × 32 × 32", small_cnn(), (3, 32, 32)),
        ):
            batches(title, model, torch.randn(16, *shape, generator=generator), targets, optimising)
    if options.only == "small-cnn":
        return
    try:
        model = tl.load_model("efficientnet-lite0").module
    except ImportError:
        print("\nEfficientNet-lite0 is left out: its packages are not installed.")
        return
    images = torch.randn(options.images, 3, 224, 224, generator=generator)
    table("EfficientNet-lite0, 224 × 224", model, images, torch.arange(options.images), options.methods, options.short)


if __name__ == "__main__":
    main()
