"""Every ratio that docs/performance.md promises, measured in several runs, and written there as one table.

    make bench                                  # all of them, within a quarter of an hour
    python benchmarks/bench.py sweep deletion   # some of them, printed only
    python benchmarks/bench.py --runs 5 sweep   # in more runs than three

Each benchmark runs in its own process, on one thread. What it compares, it measures in turns within that process, in
CPU seconds (user and system), and takes medians: a busy machine affects the ratio little. The table has the median over
the runs and their range. All data and models come from packages of the `dev` extra. A benchmark that fails or times out
has no number.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
PAGE, README = HERE.parent / "docs" / "performance.md", HERE.parent / "README.md"
START, END = "<!-- measured -->", "<!-- end of measured -->"
SECONDS = 14 * 60  # for all benchmarks together
MOST = 300  # for one run of one of them


@dataclass(frozen=True, kw_only=True)
class Row:
    """One ratio with its limit."""

    what: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    key: str = ""
    """Name of the comment in README.md and docs/performance.md that holds the range of this ratio."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One ratio over several runs."""

    rows: list[Row]

    @property
    def values(self) -> list[float]:
        """The values of all runs, in ascending order."""
        return sorted(row.value for row in self.rows)

    @property
    def range(self) -> str:
        """The smallest and the largest value, or the only one, in words."""
        low, high = (f"{value:.3g}" for value in (self.values[0], self.values[-1]))
        return low if low == high else f"{low} to {high}"

    def __str__(self) -> str:
        row, middle = self.rows[-1], median(self.values)
        limit = holds = ""
        if row.at_most is not None:
            limit, holds = f"at most {row.at_most:g}", "yes" if middle <= row.at_most else "**no**"
        elif row.at_least is not None:
            limit, holds = f"at least {row.at_least:g}", "yes" if middle >= row.at_least else "**no**"
        note = f" ({row.note})" if row.note else ""
        return f"| {row.what}{note} | {middle:.3g} | {self.range} | {len(self.rows)} | {limit} | {holds} |"


def in_turns(calls: dict[str, Callable[[], object]], turns: int) -> dict[str, list[float]]:
    """CPU seconds of several calls, made in turns after one call of each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(turns):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return times


def over(times: dict[str, list[float]], name: str, others: list[str]) -> float:
    """The median of a call's seconds over the smallest median of the others."""
    return median(times[name]) / min(median(times[other]) for other in others)


def children() -> float:
    """CPU seconds of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def photographs(count: int):
    """EfficientNet-lite0, photographs at 224 × 224 and their labels, all from packages."""
    import twinlens as tl  # noqa: PLC0415
    from twinlens.data.inputs import load_inputs  # noqa: PLC0415

    loaded, samples = tl.load_model("efficientnet-lite0"), tl.open_data("imagenet20")
    return loaded.module.eval(), load_inputs(samples, loaded, workers=1)[:count], samples.labels[:count]


def sweep() -> list[Row]:
    """A sweep of EfficientNet-lite0 in a command, over as many bare forward passes at the best batch size."""
    return _sweep(keep=True)


def library() -> list[Row]:
    """The same in a program that imports twinlens, whose memory is left as it is."""
    return _sweep(keep=False)


def _sweep(*, keep: bool) -> list[Row]:
    import torch  # noqa: PLC0415 (each benchmark imports what it needs)

    import twinlens as tl  # noqa: PLC0415
    from twinlens.probing.execution import Prepared, choose_execution  # noqa: PLC0415
    from twinlens.support.memory import keep_freed_memory, teach_allocator  # noqa: PLC0415

    keep_freed_memory() if keep else teach_allocator()
    module, inputs, labels = photographs(20)
    levels = tuple(round(0.95 - 0.05 * k, 2) for k in range(16))  # with two images, two batches of 16
    schedule = tl.probing.Schedule(by="area", order="lerf", levels=levels)
    maps = tl.attribute(module, inputs[:2], labels[:2], "gradcam")
    rows = 2 * len(levels)

    def bare(size: int) -> Callable[[], object]:
        batches = [size] * (rows // size) + [rows % size] * (rows % size > 0)
        images = inputs[torch.arange(size) % 20].contiguous(memory_format=torch.channels_last)
        return torch.inference_mode()(lambda: [module(images[:batch]) for batch in batches])

    def probe(execution) -> Callable[[], object]:
        model = Prepared(module, execution).eval()
        ask = {"schedule": schedule, "imputer": tl.LinearImputer(), "batch_size": execution.batch_size}
        return lambda: tl.probe(model, inputs[:2], labels[:2], maps, **ask)

    eager, _ = choose_execution(module, inputs[:1])
    sizes = (4, 8, 16, 32) if keep else (1, 2, 3, 4, 8)
    calls = {f"{size}": bare(size) for size in sizes} | {"eager": probe(eager)}
    if keep:
        calls |= {"compiled": probe(replace(eager, compiled=True))}
        calls |= {"bfloat16": probe(replace(eager, precision="bfloat16"))}
    times = in_turns(calls, 7)
    passes = [f"{size}" for size in sizes]
    what = "sweep over bare float32 passes at the best batch size, EfficientNet-lite0, "
    if not keep:
        what += f"in a program that imports twinlens (batches of {eager.batch_size})"
        return [Row(what=what, value=over(times, "eager", passes), at_most=1.12)]
    return [
        Row(
            what=f"{what}in a command (batches of {eager.batch_size})",
            value=over(times, "eager", passes),
            at_most=1.12,
            key="sweep",
        ),
        Row(what="the same, compiled (on request)", value=over(times, "compiled", passes), key="compiled"),
        Row(what="the same in bfloat16 (if it agrees, see below)", value=over(times, "bfloat16", passes)),
    ]


def deletion() -> list[Row]:
    """`tl.deletion` at 224 × 224 with defaults, over the same at the best batch size."""
    import torch  # noqa: PLC0415

    import twinlens as tl  # noqa: PLC0415

    module, inputs, labels = photographs(3)
    maps = torch.rand(3, 224, 224, generator=torch.Generator().manual_seed(0))

    def delete(size: int | None) -> Callable[[], object]:
        return lambda: tl.deletion(module, inputs, labels, maps, batch_size=size)

    sizes = (1, 2, 3, 4, 8, 16)
    times = in_turns({f"{size}": delete(size) for size in (None, *sizes)}, 3)
    best = [f"{size}" for size in sizes]
    return [
        Row(what="tl.deletion with defaults over the best batch size", value=over(times, "None", best), at_most=1.1),
        Row(what="the same with batches of 16", value=over(times, "16", best)),
    ]


def command() -> list[Row]:
    """A whole command: 8 photographs, one method, 96 levels; and whether a second one gives the same bytes."""
    import torch  # noqa: PLC0415

    from twinlens.support.memory import keep_freed_memory  # noqa: PLC0415

    keep_freed_memory()
    module, inputs, _ = photographs(16)
    images = inputs.contiguous(memory_format=torch.channels_last)
    call = [sys.executable, "-m", "twinlens", "evaluate", "--model", "efficientnet-lite0", "--data", "imagenet20",
            "--methods", "gradcam", "--metrics", "soundness", "--protocol", "soco", "--control", "none", "--limit", "8",
            "--quiet", "--out"]  # fmt: skip
    bare = torch.inference_mode()(lambda: module(images))
    digests, seconds = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("one", "two"):
            before = children()
            subprocess.run([*call, f"{folder}/{name}"], check=True)
            seconds.append(children() - before)
            digests.append(hashlib.sha256(Path(folder, name, "results.json").read_bytes()).hexdigest())
    passes = median(in_turns({"bare": bare}, 5)["bare"]) / 16 * 8 * 96
    return [
        Row(
            what="a whole command (8 photographs, 96 levels) over its bare forward passes",
            value=median(seconds) / passes,
            note=f"{passes:.1f} s of CPU; the rest is mostly imports",
        ),
        Row(what="fresh runs of that command with other bytes in results.json", value=len(set(digests)) - 1, at_most=0),
    ]


def imputation() -> list[Row]:
    """Linear imputation against lil_matrix and spsolve, and the time to its first result."""
    import numpy as np  # noqa: PLC0415

    ours = importlib.import_module("imputation")
    images = ours.load_images(None, 2, 224)
    keep = ours.soundness_masks(ours.make_maps(2, 224))
    keep = keep[:, np.linspace(0, keep.shape[1] - 1, 5).round().astype(int)]
    times = [ours.time_ours(images, keep, repeats=3) for _ in range(3)]
    usual = ours.time_direct(ours.lil_spsolve, images, keep)
    times += [ours.time_ours(images, keep, repeats=3) for _ in range(3)]
    code = "import torch, twinlens as tl; tl.impute_linear(torch.rand(1, 3, 64, 64), torch.rand(1, 64, 64) > 0.5)"
    before = children()
    subprocess.run([sys.executable, "-c", code], check=True)
    cold = children() - before
    costs = ours.volume_costs()
    volumes = [cost / costs[channels, (224, 224)] for (channels, shape), cost in costs.items() if len(shape) == 3]
    return [
        Row(
            what="lil_matrix + spsolve over linear imputation, 224 × 224, soundness",
            value=usual / median(times),
            at_least=150,
            key="imputation",
        ),
        Row(
            what="linear imputation per voxel of a volume over that per pixel, 224 × 224", value=max(volumes), at_most=3
        ),
        Row(what="CPU seconds to the first number of tl.impute_linear, imports included", value=cold, at_most=15),
    ]


def attribution() -> list[Row]:
    """Captum's own time over ours, on EfficientNet-lite0."""
    import torch  # noqa: PLC0415

    import twinlens as tl  # noqa: PLC0415

    theirs = importlib.import_module("attribution").captum_methods()
    model, images, _ = photographs(2)
    targets, rows = torch.arange(2), []
    for name in ("gradcam", "deeplift", "saliency"):
        if name in theirs:
            calls = {
                "ours": lambda name=name: tl.attribute(model, images, targets, name),
                "theirs": lambda name=name: theirs[name](model, images.clone().requires_grad_(), targets),
            }
            value = over(in_turns(calls, 7), "theirs", ["ours"])
            rows.append(Row(what=f"Captum's CPU over ours, {name}", value=value, at_least=1.0))
    return rows


def until() -> list[Row]:
    """Model calls of a run that stops as soon as all comparisons are decided, and its verdicts, on 1,000 digits."""
    import torch  # noqa: PLC0415

    import twinlens as tl  # noqa: PLC0415
    from twinlens.data.inputs import load_inputs  # noqa: PLC0415

    module, margin, seen = importlib.import_module("until"), 0.05, [0]
    loaded, samples = tl.load_model("mnist-cnn"), tl.open_data("mnist")
    data = load_inputs(samples, loaded, workers=1), torch.as_tensor(samples.labels)
    loaded.module.register_forward_pre_hook(lambda _, given: seen.append(seen[-1] + len(given[0])))
    methods = ["gradcam", "saliency", "input_x_gradient", "random"]

    def evaluate(until: str | float, out: str):
        metrics = ["soundness_rank", "completeness_share"]
        return tl.evaluate(loaded.module, data, methods, metrics=metrics, until=until, out=out, progress=False)

    with tempfile.TemporaryDirectory() as folder:
        stopped = evaluate(f"decided:{margin}", f"{folder}/run")
        early, share, stopping = module.ends_of(stopped), seen[-1], stopped.results.stopping
        late = module.ends_at_once(evaluate(module.NEVER, f"{folder}/run"))
    wrong = [name for name in late if module.contradicts(early[name], late[name], margin)]
    note = f"until {stopping.until}: {stopping.samples} of {stopping.of} digits"
    return [
        Row(what="model calls of --until over those of all digits", value=share / seen[-1], at_most=1 / 3, note=note),
        Row(what="verdicts of that run that all digits contradict", value=len(wrong), at_most=0),
    ]


def checks() -> list[Row]:
    """The checks before the work (steady answers, digests, stored answers), over a run of one method on 100 inputs."""
    import torch  # noqa: PLC0415

    import twinlens as tl  # noqa: PLC0415
    from twinlens import evaluation  # noqa: PLC0415
    from twinlens.models.loading import LoadedModel  # noqa: PLC0415
    from twinlens.run import setup  # noqa: PLC0415

    spent = [0.0]

    def timed(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            start = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                spent[0] += time.process_time() - start

        return call

    setup._check_fit = timed(setup._check_fit)
    LoadedModel.digest = timed(LoadedModel.digest)
    evaluation.check_answers = timed(evaluation.check_answers)
    torch.manual_seed(0)
    model = tl.load_model(f"{HERE.parent}/examples/resnet20.py:build").module
    data = (torch.rand(100, 3, 32, 32), torch.arange(100) % 10)
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        tl.evaluate(model, (data[0][:4], data[1][:4]), ["saliency"], out=f"{folder}/first")  # imports and caches
        spent[0], start = 0.0, time.process_time()
        tl.evaluate(model, data, ["saliency"], out=f"{folder}/run")
        shares.append(spent[0] / (time.process_time() - start))
    note = f"{1000 * spent[0]:.0f} ms of CPU"
    what = "checks before the work over a run of one method on 100 inputs of 32 × 32 (ResNet-20)"
    return [Row(what=what, value=shares[0], at_most=0.01, note=note)]


PARTS = {part.__name__: part for part in (sweep, library, deletion, command, imputation, attribution, until, checks)}


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

    from twinlens.support.memory import second_level_cache  # noqa: PLC0415

    gpu = f", {torch.cuda.get_device_name(0)}" if torch.cuda.is_available() else ", no GPU"
    cache = f"{second_level_cache() // 1024} KiB of second-level cache"
    vectors, version = torch.backends.cpu.get_cpu_capability(), torch.__version__.partition("+")[0]
    return f"{kind}, {os.cpu_count()} cores, {cache}, {vectors}{gpu}, torch {version}"


def measure(parts: list[str], runs: int) -> tuple[str, dict[str, Line]]:
    """Run benchmarks several times; return the table, with the kind of machine and its load, and the lines by key."""
    began, loads = time.perf_counter(), [os.getloadavg()[0]]
    lines: dict[str, list[Row]] = {}
    failures: dict[str, str] = {}
    for run in range(runs):
        for name in parts:
            left = SECONDS - (time.perf_counter() - began)
            rows = run_part(name, min(MOST, left)) if left > 10 else "no time was left"
            loads.append(os.getloadavg()[0])
            if isinstance(rows, str):
                failures.setdefault(name, rows)
                continue
            for row in rows:
                lines.setdefault(row.what, []).append(row)
            print(f"run {run + 1}, {name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    minutes = (time.perf_counter() - began) / 60
    about = f"{machine()}; load {min(loads):.1f} to {max(loads):.1f}; {minutes:.0f} minutes in all."
    table = [about, "", "| | median | range | runs | limit | holds |", "|---|---|---|---|---|---|"]
    table += [str(Line(rows=rows)) for rows in lines.values()]
    table += [f"| {name} | a run failed: {reason} | | | | |" for name, reason in failures.items()]
    return "\n".join(table), {rows[-1].key: Line(rows=rows) for rows in lines.values() if rows[-1].key}


def write(table: str, keyed: dict[str, Line]) -> None:
    """Write the table into docs/performance.md, and ranges into the comments that name them, there and in README.md."""
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(START)[0], page.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")
    for path in (PAGE, README):
        text = path.read_text(encoding="utf-8")
        for key, line in keyed.items():
            text = re.sub(rf"(<!-- {key} -->).*?(<!-- -->)", rf"\g<1>{line.range}\g<2>", text)
        path.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default, which writes the pages")
    parser.add_argument("--runs", type=int, default=3, help="runs of each benchmark")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        sys.path.insert(0, str(HERE))
        print(json.dumps([asdict(row) for row in PARTS[options.part]()]))
        return
    table, keyed = measure(options.parts or list(PARTS), options.runs)
    print(table)
    if not options.parts:
        write(table, keyed)


if __name__ == "__main__":
    main()
