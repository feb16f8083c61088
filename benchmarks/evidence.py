"""Which metric can be believed on real data? Every metric on four models, with tests whose answer is known.

    python benchmarks/evidence.py --out runs/evidence --page docs/evidence.md
    python benchmarks/evidence.py --out runs/evidence --only digits --limit 50

One JSON file per cell (setting, method, version of its maps, metrics, seed) is written below --out, and existing ones
are kept: an interrupted run resumes. --page then fills the page's tables, between markers, and draws its figure.
CIFAR-10 and ImageNet images are read from $TWINLENS_DATA, and these settings are left out without it.
"""

import argparse
import csv
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from evidence_tables import fill_page
from PIL import Image

import twinlens as tl
from twinlens.attribution.perturbation import blur
from twinlens.metrics.sweeps import merge_sweeps
from twinlens.models.mnist_cnn import mnist_digits
from twinlens.probing.exchange import exchange_maps
from twinlens.probing.probe import Prober
from twinlens.suites.digit_vit import trained_vit
from twinlens.support.resampling import draw

HERE = Path(__file__).resolve().parent
DATA = Path(os.environ.get("TWINLENS_DATA", HERE.parents[1] / "shared" / "data"))
RESNET = HERE.parent / "examples" / "resnet20.py"

DRAW = 20261119  # draws the images; no other choice was made with it
MIXED = (0.25, 0.5, 0.75)
EPSILONS = (0.0, 0.005, 0.01, 0.02, 0.05)
RESAMPLES = 400

MAIN = {
    "soundness": tl.Soundness(estimator="rank"),
    "completeness": tl.Completeness(estimator="share"),
    "calibration": tl.Calibration(),
    "soundness (paper), coarse": tl.Soundness(steps=20),
    "soundness (paper), by score, coarse": tl.Soundness(steps=20, performance="score"),
    "completeness (paper)": tl.Completeness(),
    "ROAD MoRF": tl.Road(order="morf"),
    "ROAD LeRF": tl.Road(order="lerf"),
    "ROAD gain": tl.METRICS["road_gain"],
    "deletion": tl.Deletion(),
    "insertion": tl.Insertion(),
}
FINE = {"soundness (paper)": tl.Soundness(), "soundness (paper), by score": tl.Soundness(performance="score")}


def _with_epsilons(metrics: dict) -> dict:
    """Add the paper's soundness with every epsilon, read from the same probes."""
    more = {
        f"{name}, ε = {epsilon:g}": tl.Soundness(steps=metric.steps, performance=metric.performance, epsilon=epsilon)
        for name, metric in metrics.items()
        if name.startswith("soundness (paper)")
        for epsilon in EPSILONS
        if epsilon != metric.epsilon
    }
    return metrics | more


KINDS = {"main": _with_epsilons(MAIN), "fine": _with_epsilons(FINE)} | {
    f"steps {count}": {
        "soundness": tl.Soundness(estimator="rank", steps=count),
        "completeness": tl.Completeness(estimator="share", steps=count),
    }
    for count in (10, 50)
}


def drawn(count: int, of: int, skip: int = 0) -> np.ndarray:
    """Draw positions without replacement, by the page's seed."""
    return np.random.default_rng(DRAW).permutation(of)[skip : skip + count]


def digits(count, out, skip=0):
    """Held-out digits and the network of the demonstration."""
    pixels, labels = mnist_digits(held_out=True)
    rows = drawn(count, len(labels), skip)
    model = tl.load_model("mnist-cnn").module
    return model, torch.from_numpy(pixels[rows]).unsqueeze(1).float() / 255, labels[rows], rows


def vit(count, out):
    """Other held-out digits and the transformer of the suite digits-vit@1."""
    _, inputs, labels, rows = digits(count, out, skip=200)
    return trained_vit(), inputs, labels, rows


def cifar10(count, out):
    """Images of the training part that no other page uses, and a ResNet-20."""
    data = np.load(DATA / "cifar10" / "cifar10_dev.npz")
    rows = drawn(count, len(data["y_train"]))
    loaded = tl.load_model(f"{RESNET}:build", weights=str(DATA / "cifar10" / "resnet20.safetensors"))
    inputs = torch.stack([loaded.preprocessing(Image.fromarray(pixels)) for pixels in data["x_train"][rows]])
    return loaded.module.eval(), inputs, data["y_train"][rows].astype(np.int64), rows


def imagenet(count, out):
    """Photographs of as many classes, and EfficientNet-lite0."""
    with open(DATA / "imagenet" / "labels.csv", newline="") as file:
        listed = list(csv.DictReader(file))
    rows = drawn(count, len(listed))
    loaded = tl.load_model("efficientnet-lite0")
    files = [DATA / "imagenet" / "images" / listed[row]["file"] for row in rows]
    inputs = torch.stack([loaded.preprocessing(Image.open(file).convert("RGB")) for file in files])
    return loaded.module.eval(), inputs, np.array([int(listed[row]["class_index"]) for row in rows]), rows


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A model, its images, and what is measured on how many of them."""

    title: str
    load: Callable
    samples: int
    subset: int
    """Images for mixing, blurred copies, steps and seeds."""
    fine: int
    """Images on which the paper's soundness is measured at its own levels."""
    methods: tuple[str, ...]
    """Explanations, of which the first `mixed` are mixed; random and smooth random maps are added."""
    mixed: int = 3
    occlusion: tuple[int, int] | None = None
    """Window and stride, where the default is too expensive."""


COMMON = ("integrated_gradients", "gradcam", "occlusion")
SETTINGS = {
    "digits": Setting(title="Digits, CNN", load=digits, samples=200, subset=100, fine=200, methods=COMMON),
    "vit": Setting(
        title="Digits, ViT", load=vit, samples=200, subset=100, fine=200,
        methods=("integrated_gradients", "attention_rollout", "attn_lrp", "occlusion"),
    ),
    "cifar10": Setting(title="CIFAR-10, ResNet-20", load=cifar10, samples=500, subset=100, fine=150, methods=COMMON),
    "imagenet": Setting(
        title="ImageNet, EfficientNet-lite0", load=imagenet, samples=100, subset=30, fine=0, methods=COMMON, mixed=2,
        occlusion=(56, 28),
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One set of maps, one set of metrics, one seed."""

    method: str
    version: str
    """"own", "exchanged", "blurred", or the share of exchanged maps in a mixture."""
    kind: str = "main"
    seed: int = 0
    rows: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.method} {self.version} {self.kind} seed {self.seed}.json"


def cells(setting: Setting, seeds: int) -> list[Cell]:
    """List what is to be measured, the most important first."""
    methods, mixed = (*setting.methods, "random", "smooth_random"), setting.methods[: setting.mixed]
    both, part = ("own", "exchanged"), setting.subset
    found = [Cell(method=m, version=v, rows=setting.samples) for m in methods for v in both]
    found += [Cell(method=m, version=f"{share:g}", rows=part) for share in MIXED for m in mixed]
    found += [Cell(method=m, version="blurred", rows=part) for m in mixed]
    found += [Cell(method=m, version=v, kind="fine", rows=setting.fine) for m in methods for v in both if setting.fine]
    found += [
        Cell(method=m, version="own", kind=f"steps {count}", rows=part)
        for count in (10, 50)
        for m in ("random", "smooth_random", *mixed)
    ]
    found += [
        Cell(method=m, version=v, seed=seed, rows=part) for seed in range(1, seeds) for m in mixed[:2] for v in both
    ]
    if setting.fine:
        versions = (*(f"{share:g}" for share in MIXED), "blurred")
        found += [Cell(method=m, version=v, kind="fine", rows=part) for v in versions for m in mixed]
        found += [
            Cell(method=m, version="own", kind="fine", seed=seed, rows=part)
            for seed in range(1, seeds)
            for m in mixed[:2]
        ]
    return found


class Measurement:
    """A setting's model, images and maps."""

    def __init__(self, name: str, setting: Setting, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.setting, self.out = setting, out
        model, self.inputs, self.labels, rows = setting.load(setting.samples, out)
        self.model = model.to(memory_format=torch.channels_last)
        self.ids = [f"{name}-{row}" for row in rows]
        with torch.inference_mode():
            hits = torch.cat([self.model(batch).argmax(1) for batch in self.inputs.split(16)]) == torch.tensor(
                self.labels
            )
        about = {"title": setting.title, "accuracy": hits.float().mean().item(), "samples": len(self.ids)}
        write(out / "setting.json", about | {"subset": setting.subset, "fine": setting.fine, "mixed": setting.mixed})

    def maps(self, method: str) -> torch.Tensor:
        """Return the maps of a method, computed once, each with a sum of 1."""
        path = self.out / f"{method}.npy"
        if not path.is_file():
            if method == "smooth_random":
                noise = self.maps("random")
                smooth = blur(noise.unsqueeze(1), noise.shape[-1] / 16).squeeze(1)
                values = smooth - smooth.amin(dim=(1, 2), keepdim=True)
            else:
                options = {"integrated_gradients": {"steps": 16}}.get(method, {})
                if method == "occlusion" and self.setting.occlusion:
                    options = dict(zip(("window", "stride"), self.setting.occlusion, strict=True))
                values = tl.attribute(self.model, self.inputs, self.labels, method, ids=self.ids, **options)
            values = values / values.sum(dim=(1, 2), keepdim=True).clamp(min=1e-12)
            beside = path.with_suffix(f".{os.getpid()}.npy")
            np.save(beside, values.numpy().astype(np.float32))
            beside.replace(path)
        return torch.from_numpy(np.load(path))

    def version(self, cell: Cell) -> torch.Tensor:
        """Return one version of a method's maps."""
        own = self.maps(cell.method)
        if cell.version == "own":
            return own
        if cell.version == "blurred":
            return blur(own.unsqueeze(1), own.shape[-1] / 16).squeeze(1)
        others = exchange_maps(own, self.labels, ids=self.ids, seed=cell.seed)
        share = 1.0 if cell.version == "exchanged" else float(cell.version)
        return (1 - share) * own + share * others

    def measure(self, cell: Cell) -> dict:
        """Measure all metrics of a cell, on its images and on the first of them that other cells use."""
        rows = list(range(min(cell.rows, len(self.ids))))
        prober = Prober(self.model, self.inputs, self.labels, ids=self.ids, seed=cell.seed).take(rows)
        ranked = prober.rank(self.version(cell)[rows], warn=False)
        metrics = {name: metric.bound(tl.LinearImputer(), neighbours=True) for name, metric in KINDS[cell.kind].items()}
        tables, original = {}, None
        for sweep in merge_sweeps(sweep for metric in metrics.values() for sweep in metric.sweeps(ranked.features)):
            table = prober.sweep(ranked, sweep.schedule, sweep.imputer, original=original)
            tables[sweep.kind()] = table
            original = original or (table if (table.removed == 0).all(axis=0).any() else None)
        return {
            str(count): {
                name: self.read(metric, tables, range(count), ranked.features) for name, metric in metrics.items()
            }
            for count in sorted({len(rows), min(self.setting.subset, len(rows))})
        }

    def read(self, metric, tables, rows, features) -> dict:
        """Return a metric's value on some images, with the replicates of its bootstrap."""
        sweeps = metric.sweeps(features)
        curve = metric.read([tables[s.kind()].join_levels(levels=s.schedule.levels).take(rows) for s in sweeps])
        replicates = None
        if curve.has_interval and getattr(metric, "epsilon", 0.01) == 0.01:
            replicates = curve.areas(*curve.replicate(draw(curve.table.ids, RESAMPLES, 0))).round(6).tolist()
        changed = sum(
            float(level) != (1.0 if s.schedule.by == "value" else 0.0) for s in sweeps for level in s.schedule.levels
        )
        return {"value": curve.area(), "replicates": replicates, "calls": changed, "higher": curve.higher_is_better}


def write(path: Path, content: dict) -> None:
    """Write a file under another name, and rename it when it is complete."""
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_text(json.dumps(content))
    beside.replace(path)


def main() -> None:
    """Measure what is missing, then fill the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the cells")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="settings to measure")
    parser.add_argument("--limit", type=int, help="at most this many images of each setting, for a trial")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds of ties, noise and exchange")
    parser.add_argument("--page", type=Path, help="page whose tables are filled from the cells")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.only:
        setting, out = SETTINGS[name], arguments.out / name
        if arguments.limit:
            limits = {key: min(arguments.limit, getattr(setting, key)) for key in ("samples", "subset", "fine")}
            setting = Setting(**(vars(setting) | limits))
        if name in ("cifar10", "imagenet") and not (DATA / name).is_dir():
            print(f"{name}: left out, there is no folder {name} in $TWINLENS_DATA")
            continue
        measurement, wanted = None, cells(setting, arguments.seeds)
        for number, cell in enumerate(wanted, 1):
            if (out / cell.name).is_file():  # another process may have measured it
                continue
            measurement = measurement or Measurement(name, setting, out)
            write(out / cell.name, measurement.measure(cell))
            print(f"{name}: {number} of {len(wanted)}, {cell.name}", flush=True)
    if arguments.page:
        fill_page(arguments.page, arguments.out)


if __name__ == "__main__":
    main()
