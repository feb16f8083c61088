"""Every ratio that docs/performance.md promises, measured in one run, and written there as one table.

    make bench                                  # all of them, within a quarter of an hour
    python benchmarks/bench.py sweep deletion   # some of them, printed only

Each benchmark runs in its own process, on one thread, and compares CPU seconds (user and system) within itself; a busy
machine affects it little. A benchmark that times out, or whose data are missing, has no number.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "performance.md"
DATA = Path(os.environ.get("TWINLENS_DATA", HERE.parents[1] / "shared" / "data"))  # CIFAR-10, ImageNet images
START, END = "<!-- measured -->", "<!-- end of measured -->"
SECONDS = 14 * 60  # for all benchmarks together
MOST = 600  # for one of them


@dataclass(frozen=True, kw_only=True)
class Row:
    """One ratio with its limit."""

    what: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def limit(self) -> str:
        """The limit in words."""
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return "" if self.at_least is None else f"at least {self.at_least:g}"

    @property
    def holds(self) -> str:
        """Whether the value is within the limit, in words."""
        if self.at_most is None and self.at_least is None:
            return ""
        low, high = self.at_least or float("-inf"), float("inf") if self.at_most is None else self.at_most
        return "yes" if low <= self.value <= high else "**no**"


def cpu(call: Callable[[], object], repeats: int = 1) -> float:
    """CPU seconds of the fastest repetition."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def sweep() -> list[Row]:
    """A soundness sweep of EfficientNet-lite0, over as many bare forward passes in float32 at the best batch size."""
    import torch  # noqa: PLC0415 (each benchmark imports what it needs)

    import twinlens as tl  # noqa: PLC0415
    from twinlens.data.inputs import load_inputs  # noqa: PLC0415
    from twinlens.probing.agreement import AgreementTrial  # noqa: PLC0415
    from twinlens.probing.execution import Prepared, choose_execution  # noqa: PLC0415
    from twinlens.probing.probe import Prober  # noqa: PLC0415

    loaded, samples = tl.load_model("efficientnet-lite0"), tl.open_data("imagenet20")
    module, inputs = loaded.module.eval(), load_inputs(samples, loaded, workers=1)
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=tl.metrics.PROTOCOLS["paper"].levels[::4])
    maps = tl.attribute(module, inputs[:2], samples.labels[:2], "gradcam")
    tl.impute_linear(inputs[:1], maps[:1] > 0)
    rows = 2 * len(schedule.levels)

    def bare(size: int) -> float:
        batch = inputs[torch.arange(size) % 20].contiguous(memory_format=torch.channels_last)
        with torch.inference_mode():
            module(batch)
            calls = -(-rows // size)
            return cpu(lambda: [module(batch) for _ in range(calls)], repeats=2) / (calls * size) * rows

    def probe(way) -> float:
        model = Prepared(module, way).eval()
        ask = {"schedule": schedule, "imputer": tl.LinearImputer(), "batch_size": way.batch_size}
        return cpu(lambda: tl.probe(model, inputs[:2], samples.labels[:2], maps, **ask), repeats=2)

    trial = AgreementTrial(
        module, lambda model, count: Prober(model, inputs[:count], samples.labels[:count]), tl.LinearImputer(), 0
    )
    eager, _ = choose_execution(module, inputs[:1])
    before, plain = min(map(bare, (4, 8))), probe(eager)
    what = "soundness sweep over bare float32 forward passes, EfficientNet-lite0: "
    found = [Row(what=f"{what}float32, eager", value=plain / min(before, bare(4)), at_most=1.08)]
    way, trials = choose_execution(module, inputs[:1], precision="auto", compiled=True, rows=100_000, agreement=trial)
    seconds = probe(way)
    note = f"chosen: {way.precision}{', compiled' if way.compiled else ''}. " + "; ".join(t.describe() for t in trials)
    fastest = min(before, bare(4))
    found.append(Row(what=f"{what}precision auto, compiled", value=seconds / fastest, at_most=0.55, note=note))
    lower = probe(replace(eager, precision="bfloat16"))
    note = "for comparison; auto refuses it if it does not agree"
    found.append(Row(what=f"{what}bfloat16, eager", value=lower / fastest, note=note))
    return found


def deletion() -> list[Row]:
    """`tl.deletion` at 224 × 224 with defaults, over the same at the best batch size."""
    import torch  # noqa: PLC0415

    import twinlens as tl  # noqa: PLC0415

    module = tl.load_model("efficientnet-lite0").module.eval()
    generator = torch.Generator().manual_seed(0)
    inputs, maps = torch.randn(3, 3, 224, 224, generator=generator), torch.rand(3, 224, 224, generator=generator)

    def measure(size: int | None) -> float:
        return cpu(lambda: tl.deletion(module, inputs, [0, 1, 2], maps, batch_size=size), repeats=2)

    measure(4)
    by_size = {size: measure(size) for size in (2, 4, 8, 33)}
    best = min(by_size.values())
    return [
        Row(what="CPU of tl.deletion with defaults over the best batch size", value=measure(None) / best, at_most=1.1),
        Row(what="the same with batches of 33, the former default", value=by_size[33] / best),
    ]


def command() -> list[Row]:
    """A whole command: 100 CIFAR images, one method, 96 levels; and whether a second one gives the same bytes."""
    import torch  # noqa: PLC0415
    from safetensors.torch import load_file  # noqa: PLC0415

    sys.path.insert(0, str(HERE.parent / "examples"))
    module = importlib.import_module("resnet20").build().eval()
    weights = DATA / "cifar10" / "resnet20.safetensors"
    module.load_state_dict(load_file(weights))
    batch = torch.randn(64, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        module(batch)
        bare = cpu(lambda: module(batch), repeats=10) / 64 * 9600
    digests, seconds = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "two"):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-m", "twinlens", "evaluate", "--model", f"{HERE.parent}/examples/resnet20.py:build",
                 "--weights", weights, "--data", DATA / "cifar10" / "cifar10_dev.npz", "--methods", "gradcam",
                 "--metrics", "soundness", "--protocol", "soco", "--limit", "100", "--quiet",
                 "--out", f"{folder}/{name}"],
                check=True,
            )  # fmt: skip
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            digests.append(hashlib.sha256(Path(folder, name, "results.json").read_bytes()).hexdigest())
    least = min(seconds)
    return [
        Row(
            what="small command (100 CIFAR images, 96 levels) over its bare forward passes",
            value=least / bare,
            note=f"{least:.1f} s of CPU, of which {bare:.1f} s are bare forward passes",
        ),
        Row(what="fresh runs of that command with other bytes in results.json", value=len(set(digests)) - 1, at_most=0),
    ]


def imputation() -> list[Row]:
    """Linear imputation against lil_matrix and spsolve, and the time to its first result."""
    import numpy as np  # noqa: PLC0415

    ours = importlib.import_module("imputation")
    images = ours.load_images(DATA / "imagenet" / "images", 2, 224)
    keep = ours.soundness_masks(ours.make_maps(2, 224))
    keep = keep[:, np.linspace(0, keep.shape[1] - 1, 5).round().astype(int)]
    ours.time_ours(images[:1], keep[:1, :1])
    before = ours.time_ours(images, keep)
    usual = ours.time_direct(ours.lil_spsolve, images, keep)
    ratio = usual / min(before, ours.time_ours(images, keep))
    code = "import torch, twinlens as tl; tl.impute_linear(torch.rand(1, 3, 64, 64), torch.rand(1, 64, 64) > 0.5)"
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    cold = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    return [
        Row(what="lil_matrix + spsolve over linear imputation, 224 × 224, soundness", value=ratio, at_least=200),
        Row(what="CPU seconds to the first number of tl.impute_linear, imports included", value=cold, at_most=15),
    ]


def attribution() -> list[Row]:
    """Captum's own time over ours, on EfficientNet-lite0."""
    import torch  # noqa: PLC0415

    import twinlens as tl  # noqa: PLC0415

    theirs = (module := importlib.import_module("attribution")).captum_methods()
    model, targets = module.efficientnet().eval(), torch.arange(2)
    images, found = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0)), []
    for name in ("gradcam", "deeplift", "saliency"):
        if name in theirs:
            tl.attribute(model, images, targets, name)
            ours = cpu(lambda name=name: tl.attribute(model, images, targets, name), repeats=3)
            other = cpu(lambda name=name: theirs[name](model, images.clone().requires_grad_(), targets), repeats=3)
            found.append(Row(what=f"Captum's CPU over ours, {name}", value=other / ours, at_least=1.0))
    return [*found, *(module.measure() if hasattr(module, "measure") else ())]


def until() -> list[Row]:
    """Model calls of a run that stops as soon as all comparisons are decided, and its verdicts."""
    module = importlib.import_module("until")
    data = DATA / "cifar10"
    stopping, share, _, wrong = module.measure_savings(
        str(data / "cifar10_dev.npz"), str(data / "resnet20.safetensors"), say=lambda _: None
    )
    return [
        Row(
            what="model calls of --until over all 1,000 CIFAR images",
            value=share,
            at_most=1 / 3,
            note=f"until {stopping.until}: {stopping.samples} of {stopping.of} images",
        ),
        Row(what="verdicts of that run that all images contradict", value=len(wrong), at_most=0),
    ]


PARTS = {part.__name__: part for part in (deletion, command, imputation, attribution, sweep, until)}


def run_part(name: str, seconds: float) -> list[Row] | str:
    """Run one benchmark in its own process; return its rows, or the reason for a failure."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    call = [sys.executable, __file__, "--part", name]
    try:
        done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"did not end within {seconds:.0f} s"
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def machine() -> str:
    """Describe the kind of machine, without identifying it."""
    path, kind = Path("/proc/cpuinfo"), platform.processor()
    if path.exists():
        models = [line.partition(":")[2].strip() for line in path.read_text().splitlines() if "model name" in line]
        kind = models[0] if models else kind
    import torch  # noqa: PLC0415

    gpu = f", {torch.cuda.get_device_name(0)}" if torch.cuda.is_available() else ", no GPU"
    vectors = torch.backends.cpu.get_cpu_capability()
    return f"{kind}, {os.cpu_count()} cores, {vectors}{gpu}, torch {torch.__version__.partition('+')[0]}"


def table(parts: list[str]) -> str:
    """Run benchmarks, and return the table with the kind of machine and its load."""
    began, loads, lines = time.perf_counter(), [os.getloadavg()[0]], []
    for name in parts:
        left = SECONDS - (time.perf_counter() - began)
        found = run_part(name, min(MOST, left)) if left > 10 else "no time was left"
        loads.append(os.getloadavg()[0])
        if isinstance(found, str):
            lines.append(f"| {name} | not measured: {found} | | |")
            continue
        for row in found:
            note = f" ({row.note})" if row.note else ""
            lines.append(f"| {row.what}{note} | {row.value:.3g} | {row.limit} | {row.holds} |")
        print(f"{name}: done after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    minutes = (time.perf_counter() - began) / 60
    about = f"{machine()}; load {min(loads):.1f} to {max(loads):.1f}; {minutes:.0f} minutes in all."
    return "\n".join([about, "", "| | measured | limit | holds |", "|---|---|---|---|", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default, which writes the page")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        sys.path.insert(0, str(HERE))
        print(json.dumps([asdict(row) for row in PARTS[given.part]()]))
        return
    text = table(given.parts or list(PARTS))
    print(text)
    if not given.parts:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.partition(START)[0], page.partition(END)[2]
        PAGE.write_text(f"{before}{START}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
