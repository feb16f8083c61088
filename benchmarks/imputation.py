"""How long does linear imputation take, next to a sparse direct solve and to the model's forward pass?

Prints one table. Every ratio comes from this one run, so it is valid on a noisy machine; times are
processor time on one thread, except for the gain of several threads, which is wall time. The direct
solvers are timed on a few of the levels, evenly spread over the schedule, and so is ours for that ratio.

    python benchmarks/imputation.py --images 4 --levels 8 --threads 2
    python benchmarks/imputation.py --volumes    # the cost per voxel of volumes against that per pixel of images

Images come from the folder --data, or are those of `imagenet20`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import sparse
from scipy.sparse.linalg import spsolve
from torch.nn.functional import interpolate

import twinlens as tl
from twinlens.data.inputs import load_inputs
from twinlens.imputation.linear_system import assemble
from twinlens.imputation.multigrid import solve

Array = NDArray[np.float64]
SOUNDNESS = np.round(np.arange(0.98, 0.015, -0.01), 2)  # share removed by area, 97 levels
COMPLETENESS = np.round(np.arange(0.9, 0.05, -0.1), 1)  # removed where the map exceeds this share of its maximum


def lil_spsolve(image: Array, keep: NDArray[np.bool_]) -> Array:
    """The usual way: a lil_matrix filled pixel by pixel offset by offset, one spsolve per image."""
    channels, height, width = image.shape
    removed = np.argwhere(~keep)
    number = np.full(keep.shape, -1)
    number[~keep] = np.arange(len(removed))
    matrix = sparse.lil_matrix((len(removed), len(removed)))
    diagonal = np.ones(len(removed))
    right = np.zeros((len(removed), channels))
    for down in (-1, 0, 1):
        for across in (-1, 0, 1):
            if down == across == 0:
                continue
            weight = 1 / 12 if down and across else 1 / 6
            y, x = removed[:, 0] + down, removed[:, 1] + across
            inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
            rows = np.flatnonzero(inside)
            y, x = y[inside], x[inside]
            diagonal[~inside] -= weight
            known = keep[y, x]
            right[rows[known]] += weight * image[:, y[known], x[known]].T
            matrix[rows[~known], number[y[~known], x[~known]]] = -weight
    matrix.setdiag(diagonal)
    filled = image.copy()
    if len(removed):
        filled[:, ~keep] = spsolve(sparse.csc_matrix(matrix), right).reshape(len(removed), channels).T
    return filled


def vectorised_spsolve(image: Array, keep: NDArray[np.bool_]) -> Array:
    """The same with the matrix assembled at once."""
    kept = keep.ravel()
    rows = assemble(keep.shape)[~kept]
    filled = image.reshape(len(image), -1).copy()
    right = -(rows[:, kept] @ filled[:, kept].T)
    filled[:, ~kept] = spsolve(rows[:, ~kept].tocsc(), right).reshape(-1, len(image)).T
    return filled.reshape(image.shape)


def load_images(folder: Path | None, count: int, size: int) -> torch.Tensor:
    """Images (N, 3, H, W) of a folder, or those of `imagenet20`."""
    if folder is None:
        loaded = tl.load_model("efficientnet-lite0")
        images = load_inputs(tl.open_data("imagenet20"), loaded, workers=1)[:count]
        return interpolate(images, size=(size, size), mode="bilinear", antialias=True)
    files = sorted(folder.glob("*.jpg"))[:: max(1, 500 // count)][:count]
    pictures = [np.asarray(Image.open(f).convert("RGB").resize((size, size)), dtype=np.float32) for f in files]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous() / 128 - 127 / 128


def make_maps(count: int, size: int) -> torch.Tensor:
    """Alternate smooth maps, as from GradCAM, with heavy-tailed ones, as from Integrated Gradients."""
    rng = np.random.default_rng(0)
    smooth = interpolate(torch.from_numpy(rng.random((count, 1, 7, 7)) ** 2), size=(size, size), mode="bilinear")[:, 0]
    noisy = torch.from_numpy(np.abs(rng.standard_t(1.5, (count, size, size))))
    even = torch.arange(count)[:, None, None] % 2 == 0
    return torch.where(even, smooth + 1e-9 * torch.rand(smooth.shape), noisy)


def soundness_masks(maps: torch.Tensor) -> torch.Tensor:
    """(images, levels, *S): the least relevant share is removed."""
    ranks = maps.flatten(1).argsort(1).argsort(1).view(maps.shape)
    removed = torch.from_numpy(np.round(SOUNDNESS * maps[0].numel()))
    return ranks[:, None] >= removed.reshape(1, -1, *[1] * (maps.dim() - 1))


def completeness_masks(maps: torch.Tensor) -> torch.Tensor:
    """(images, levels, H, W): everything above a share of the maximum is removed."""
    bound = torch.from_numpy(COMPLETENESS)[None, :, None, None] * maps.amax((1, 2))[:, None, None, None]
    return maps[:, None] <= bound


def smooth_and_noisy(shape: tuple[int, ...], channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two smooth inputs (2, C, *S), and every eighth soundness mask of a smooth and of a heavy-tailed map for them."""
    rng, mode = np.random.default_rng(0), {2: "bilinear", 3: "trilinear"}[len(shape)]

    def smooth(values: NDArray[np.float64]) -> torch.Tensor:
        return interpolate(torch.from_numpy(values), size=shape, mode=mode)

    inputs = smooth(rng.normal(size=(2, channels, *[8] * len(shape)))).float()
    noisy = torch.from_numpy(np.abs(rng.standard_t(1.5, (1, *shape))))
    maps = torch.cat([smooth(rng.random((1, 1, *[5] * len(shape))) ** 2)[0], noisy])
    return inputs, soundness_masks(maps)[:, ::8]


def volume_costs(turns: int = 5) -> dict[tuple[int, tuple[int, ...]], float]:
    """Nanoseconds of CPU per value on one thread, by the number of channels and the shape, measured in turns."""
    torch.set_num_threads(1)
    shapes = [(224, 224), (32, 32, 32), (48, 48, 48), (64, 64, 64)]
    cases = {(channels, shape): smooth_and_noisy(shape, channels) for channels in (1, 3) for shape in shapes}
    rows = {key: (x.repeat_interleave(keep.shape[1], 0), keep.flatten(0, 1)) for key, (x, keep) in cases.items()}
    times: dict[tuple[int, tuple[int, ...]], list[float]] = {key: [] for key in rows}
    for _ in range(turns + 1):
        for key, (inputs, keep) in rows.items():
            times[key].append(seconds(lambda x=inputs, k=keep: solve(x, k), repeats=1) / inputs.numel())
    return {key: float(np.median(took[1:])) * 1e9 for key, took in times.items()}


def print_volumes() -> None:
    costs = volume_costs()
    print("| | 1 channel, ns per value | ratio | 3 channels, ns per value | ratio |\n|---|---|---|---|---|")
    image = (224, 224)
    for shape in dict.fromkeys(shape for _, shape in costs):
        cells = [f"{costs[c, shape]:.1f} | {costs[c, shape] / costs[c, image]:.2f}" for c in (1, 3)]
        print(f"| {'×'.join(map(str, shape))} | {' | '.join(cells)} |")


def seconds(call: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.process_time) -> float:
    """The fastest of some repetitions; by default processor time, which other programs disturb less."""
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def time_ours(images: torch.Tensor, keep: torch.Tensor, threads: int = 1, **how: Any) -> float:
    """Seconds per (image, level), in batches as a sweep makes them."""
    torch.set_num_threads(threads)
    rows, kept = images.repeat_interleave(keep.shape[1], 0), keep.flatten(0, 1)
    size = 32 if images.shape[-1] > 100 else 512
    batches = list(zip(rows.split(size), kept.split(size), strict=True))
    return seconds(lambda: [solve(batch, keep) for batch, keep in batches], **how) / len(rows)


def time_direct(solver: Callable[..., Array], images: torch.Tensor, keep: torch.Tensor) -> float:
    """Seconds per (image, level)."""
    pairs = [(i.double().numpy(), k.numpy()) for i, levels in zip(images, keep, strict=True) for k in levels]
    return seconds(lambda: [solver(i, k) for i, k in pairs], repeats=1) / len(pairs)


def forward_seconds() -> float:
    """Seconds per image of EfficientNet-lite0 in batches of 16, on one thread."""
    model, batch = tl.load_model("efficientnet-lite0").module, torch.randn(16, 3, 224, 224)
    with torch.inference_mode():
        model(batch)
        return seconds(lambda: model(batch)) / 16


def solve_once(height: int, width: int) -> tuple[float, float]:
    """Solve one image of that size, half of it removed; return processor seconds and megabytes beyond the result.

    Runs in its own process, to measure peak memory.
    """
    torch.set_num_threads(1)
    image = interpolate(torch.randn(1, 3, 32, 32), size=(height, width), mode="bilinear")
    keep = interpolate(torch.rand(1, 1, 7, 7), size=(height, width), mode="bilinear")[0] > 0.5
    solve(torch.randn(1, 3, 20, 20), torch.arange(400).reshape(1, 20, 20) % 2 == 0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = seconds(lambda: solve(image, keep), repeats=1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return took, (grown - image.numel() * image.element_size()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Times linear imputation against direct solves and a model.")
    parser.add_argument("--images", type=int, default=4, help="images per size, half of them with noisy maps")
    parser.add_argument("--levels", type=int, default=7, help="levels on which the direct solvers are timed")
    parser.add_argument("--threads", type=int, default=2, help="threads for the second timing of our solver")
    parser.add_argument("--data", type=Path, help="a folder of JPEG files")
    parser.add_argument("--volumes", action="store_true", help="only compare volumes with images")
    options = parser.parse_args()
    if options.volumes:
        print_volumes()
        return
    torch.set_num_threads(1)
    small, large = load_images(options.data, options.images, 32), load_images(options.data, options.images, 224)
    small_maps, large_maps = make_maps(options.images, 32), make_maps(options.images, 224)
    cases = [
        ("224×224 soundness", large, soundness_masks(large_maps)),
        ("224×224 completeness", large, completeness_masks(large_maps)),
        ("32×32 soundness", small, soundness_masks(small_maps)),
        ("32×32 completeness", small, completeness_masks(small_maps)),
    ]
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        took, memory = pool.apply(solve_once, (3000, 4000))
    model = forward_seconds()
    print(f"| schedule | levels | ours, ms | {options.threads} threads | lil + spsolve, ms | ratio |", end="")
    print(" vectorised + spsolve, ms | ratio |\n|---|---|---|---|---|---|---|---|")
    for name, images, keep in cases:
        one = time_ours(images, keep)
        wall = [time_ours(images, keep, threads, clock=time.perf_counter) for threads in (1, options.threads)]
        chosen = np.linspace(0, keep.shape[1] - 1, min(options.levels, keep.shape[1])).round().astype(int)
        before = time_ours(images, keep[:, chosen])
        usual = time_direct(lil_spsolve, images, keep[:, chosen])
        between = time_ours(images, keep[:, chosen])
        better = time_direct(vectorised_spsolve, images, keep[:, chosen])
        same = min(before, between, time_ours(images, keep[:, chosen]))  # the machine's speed may change
        print(f"| {name} | {keep.shape[1]} | {one * 1e3:.2f} | {wall[0] / wall[1]:.2f}× | {usual * 1e3:.1f} |", end="")
        print(f" {usual / same:.0f}× | {better * 1e3:.1f} | {better / same:.0f}× |")
        if name == "224×224 soundness":
            share = f"ours takes 1/{model / one:.0f} of it per (image, level), on one thread"
    print(f"\nEfficientNet-lite0, batch 16, one thread: {model * 1e3:.1f} ms per image; {share}.")
    print(f"One image of 4000×3000×3: {took:.1f} s of processor time, {memory:.0f} MB beyond the result.")
    print(f"Direct solvers timed on {options.levels} levels of {options.images} images (the ratio uses the same ones).")


if __name__ == "__main__":
    main()
