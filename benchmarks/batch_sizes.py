"""What does a photograph cost by the number of inputs per call, and how much of that is memory that the kernel clears?

    python benchmarks/batch_sizes.py                 # about two minutes
    python benchmarks/batch_sizes.py --threads 2

Calls EfficientNet-lite0 on one to sixteen photographs, each number in a fresh process: the C library learns from
what was freed before. Prints milliseconds of CPU per photograph and, in brackets, pages that the kernel cleared for it.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from statistics import median

SIZES = (1, 2, 3, 4, 8, 16)
WAYS = {
    "freed memory kept, as in a command": ("keep", "channels_last"),
    "after a freed block of 31 MiB, as in a program": ("teach", "channels_last"),
    "the same, contiguous": ("teach", "contiguous_format"),
    "glibc's own limits": ("nothing", "channels_last"),
}


def measure(size, memory, layout, threads):
    """Return milliseconds of CPU and cleared pages per photograph."""
    import torch  # noqa: PLC0415 (in the process that measures)

    import twinlens as tl  # noqa: PLC0415
    from twinlens.support.memory import keep_freed_memory, teach_allocator  # noqa: PLC0415

    torch.set_num_threads(threads)
    {"keep": keep_freed_memory, "teach": teach_allocator, "nothing": lambda: None}[memory]()
    module = tl.load_model("efficientnet-lite0").module.eval()
    inputs = torch.randn(size, 3, 224, 224).contiguous(memory_format=getattr(torch, layout))
    calls, times, pages = -(-16 // size), [], []
    with torch.inference_mode():
        for _ in range(6):
            before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
            for _ in range(calls):
                module(inputs)
            times.append((time.process_time() - start) / calls / size * 1000)
            pages.append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / calls / size)
    return median(times[1:]), median(pages[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*json.loads(options.one), options.threads)))
        return
    print(f"| inputs per call | {' | '.join(map(str, SIZES))} |\n|{'---|' * (len(SIZES) + 1)}")
    environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
    for name, way in WAYS.items():
        cells = []
        for size in SIZES:
            call = [sys.executable, __file__, "--threads", str(options.threads), "--one", json.dumps([size, *way])]
            done = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
            milliseconds, pages = json.loads(done.stdout.splitlines()[-1])
            cells.append(f"{milliseconds:.1f} ({pages:,.0f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
