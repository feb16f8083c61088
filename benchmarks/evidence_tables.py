"""The tables and the figure of docs/evidence.md, from the cells that evidence.py measured.

A table stands between the comments <!-- NAME --> and <!-- end --> of the page. Numbers are rounded here and nowhere
else; a dash is what was not measured or has no interval.
"""

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import spearmanr

METRICS = (
    "soundness", "completeness", "calibration", "soundness (paper)", "soundness (paper), by score",
    "soundness (paper), coarse", "soundness (paper), by score, coarse", "completeness (paper)",
    "ROAD MoRF", "ROAD LeRF", "ROAD gain", "deletion", "insertion",
)  # fmt: skip
SHARES = ("own", "0.25", "0.5", "0.75", "exchanged")
EPSILONS = (0.0, 0.005, 0.01, 0.02, 0.05)
SETTINGS = {"digits": "digits", "vit": "ViT", "cifar10": "CIFAR-10", "imagenet": "ImageNet"}
CHANCE = {"random": "random", "smooth_random": "smooth random"}
METHODS = {
    "integrated_gradients": "IG",
    "gradcam": "GradCAM",
    "occlusion": "occlusion",
    "attention_rollout": "rollout",
    "attn_lrp": "AttnLRP",
} | CHANCE
CLEAR = 3  # standard errors of skill from which there is a line to depart from


class Evidence:
    """All cells of a folder."""

    def __init__(self, out: Path) -> None:
        """Open the settings that were measured."""
        self.out, self.cells = out, dict[Path, dict | None]()
        files = {name: out / name / "setting.json" for name in SETTINGS}
        self.settings = {name: json.loads(path.read_text()) for name, path in files.items() if path.is_file()}

    def cell(self, setting: str, method: str, version: str, kind: str, seed: int) -> dict | None:
        """Return the numbers of a cell by number of samples, or None where it was not measured."""
        path = self.out / setting / f"{method} {version} {kind} seed {seed}.json"
        if path not in self.cells:
            self.cells[path] = json.loads(path.read_text()) if path.is_file() else None
        return self.cells[path]

    def read(self, setting, metric, method, version="own", *, part=False, seed=0, steps=20):
        """Return value, replicates and calls of a metric: on the part that all versions share, or on all samples."""
        is_fine = metric.startswith("soundness (paper)") and "coarse" not in metric
        kind = "fine" if is_fine else "main" if steps == 20 else f"steps {steps}"
        cell = self.cell(setting, method, version, kind, seed)
        if cell is None:
            return None
        rows = (min if part else max)(map(int, cell))
        return cell[str(rows)].get(metric, {}) | {"samples": rows}

    def methods(self, setting: str, *, mixed: bool = False) -> list[str]:
        """List the explanations of a setting, all or those that were mixed."""
        found = [m for m in METHODS if m not in CHANCE and self.cell(setting, m, "own", "main", 0)]
        return [m for m in found if not mixed or self.cell(setting, m, "0.5", "main", 0)]

    def difference(self, setting, metric, method, better, worse, **how):
        """Return how much better one version does than another, and the standard error, None without an interval."""
        one, other = (self.read(setting, metric, method, version, **how) for version in (better, worse))
        if one is None or other is None:
            return None
        sign = 1 if one["higher"] else -1
        if None in (one["value"], other["value"]):
            return None
        if one["replicates"] is None:
            return sign * (one["value"] - other["value"]), None
        replicates = np.subtract(one["replicates"], other["replicates"])
        return sign * (one["value"] - other["value"]), float(np.std(replicates, ddof=1))

    def power(self, setting, metric, method):
        """Return (skill / standard error)² per 1,000 calls with own maps, negative for a negative skill."""
        skill = self.difference(setting, metric, method, "own", "exchanged")
        if skill is None or skill[1] is None:
            return None
        own = self.read(setting, metric, method)
        t = skill[0] / skill[1]
        return float(np.sign(t) * t**2 / own["samples"] / own["calls"] * 1000)

    def mixture(self, setting, metric, method):
        """Return the five values of mixing, their largest departure from the line and its standard error."""
        entries = [self.read(setting, metric, method, version, part=True) for version in SHARES]
        if None in entries or None in (values := [entry["value"] for entry in entries]):
            return None
        departure = departures(values)
        worst = int(np.argmax(np.abs(departure)))
        error = None
        if entries[0]["replicates"] is not None:
            each = departures(np.transpose([entry["replicates"] for entry in entries]))
            error = float(np.std(each[:, worst], ddof=1))
        return values, float(departure[worst]), error

    def clear_mixtures(self, metric):
        """List the mixtures whose own maps are clearly better than the exchanged ones, by the metric itself."""
        for setting in self.settings:
            for method in self.methods(setting, mixed=True):
                skill = self.difference(setting, metric, method, "own", "exchanged", part=True)
                mixture = self.mixture(setting, metric, method)
                # Without an interval there is no telling: a tenth of the scale counts as clear.
                if mixture and (skill[0] > CLEAR * skill[1] if skill[1] else skill[0] > 0.1):
                    yield setting, method, *mixture

    def spread(self, setting, metric, method):
        """Return the standard deviation of own maps over seeds, its ratio to the standard error, and that of skill."""
        entries = [self.read(setting, metric, method, part=True, seed=seed) for seed in range(9)]
        values = [entry["value"] for entry in entries if entry]
        if len(values) < 2 or None in values:
            return None
        deviation, replicates = float(np.std(values, ddof=1)), entries[0]["replicates"]
        if replicates is None:
            return deviation, None, None
        pair = {"better": "own", "worse": "exchanged", "part": True}
        skills = [self.difference(setting, metric, method, **pair, seed=seed) for seed in range(len(values))]
        of_skill = None if None in skills else float(np.std([each for each, _ in skills], ddof=1)) / skills[0][1]
        return deviation, deviation / float(np.std(replicates, ddof=1)), of_skill


def departures(values):
    """Return how far values (…, 5) at equal distances are from the straight line through the first and the last."""
    values = np.asarray(values)
    line = values[..., :1] + (values[..., -1:] - values[..., :1]) * np.linspace(0, 1, values.shape[-1])
    return values - line


def table(heads, rows):
    """Return a Markdown table; None is a dash."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join("–" if cell is None else str(cell) for cell in line) + " |" for line in lines)


def show(value, form=".3f"):
    """Return a number as text, without a negative zero."""
    return None if value is None else format(value, form.replace(".", "z.")).replace("-", "−")


def extent(values, form=".2f"):
    """Return the range of numbers as text."""
    known = [value for value in values if value is not None]
    return f"{show(min(known), form)} to {show(max(known), form)}" if known else None


def summary(evidence):
    """One row per metric: what it costs, its chance level, its power, and the tests that it fails."""
    rows = []
    for metric in METRICS:
        everywhere = [(setting, method) for setting in evidence.settings for method in evidence.methods(setting)]
        entry = next(filter(None, (evidence.read(setting, metric, method) for setting, method in everywhere)), None)
        if entry is None:
            continue
        chance = [
            extent(found["value"] for found in (evidence.read(s, metric, name) for s in evidence.settings) if found)
            for name in CHANCE
        ]
        powers = [show(middle_power(evidence, setting, metric), ".1f") or "–" for setting in evidence.settings]
        mixed = list(evidence.clear_mixtures(metric))
        off = [abs(departure / (values[0] - values[-1])) for _, _, values, departure, _ in mixed]
        blurred = [
            t for setting, method in everywhere if (t := preference(evidence, setting, metric, method)) is not None
        ]
        spreads = [found for setting, method in everywhere if (found := evidence.spread(setting, metric, method))]
        ratios = [ratio for _, ratio, _ in spreads if ratio is not None]
        deviation = show(max((each for each, *_ in spreads), default=None), ".4f")
        rows.append(
            [
                metric, entry["calls"], *chance, " / ".join(powers),
                f"{100 * np.median(off):.0f}% ({100 * max(off):.0f}%)" if off else None,
                f"{sum(t > 2 for t in blurred)} of {len(blurred)}" if blurred else None,
                f"{deviation} ({max(ratios):.2f})" if ratios else deviation,
            ]
        )  # fmt: skip
    power = " / ".join(SETTINGS[name] for name in evidence.settings)
    heads = [
        "metric",
        "calls",
        "random",
        "smooth random",
        f"power: {power}",
        "off the line",
        "prefers blurred",
        "seeds",
    ]
    return table(heads, rows)


def middle_power(evidence, setting, metric):
    """Return the median power over the explanations of a setting."""
    powers = [evidence.power(setting, metric, method) for method in evidence.methods(setting)]
    known = [power for power in powers if power is not None]
    return float(np.median(known)) if known else None


def preference(evidence, setting, metric, method):
    """Return by how many standard errors a blurred copy does better than the map."""
    found = evidence.difference(setting, metric, method, "blurred", "own", part=True)
    return None if found is None or not found[1] else found[0] / found[1]


def measured(evidence, setting):
    """Own and exchanged maps of every method, and the skill in standard errors."""
    methods, rows = [*evidence.methods(setting), *CHANCE], []
    for metric in METRICS:
        cells = []
        for method in methods:
            own, other = (evidence.read(setting, metric, method, version) for version in ("own", "exchanged"))
            if own is None or other is None:
                cells.append(own and show(own["value"]))
                continue
            skill, error = evidence.difference(setting, metric, method, "own", "exchanged") or (None, None)
            t = f" ({show(skill / error, '.1f')})" if error else ""
            cells.append(f"{show(own['value'])} / {show(other['value'])}{t}")
        if any(cells):
            rows.append([metric, *cells])
    return table(["metric", *(METHODS[method] for method in methods)], rows)


def by_method(evidence, cell, **how):
    """One row per metric, and in each column a setting's explanations, without those of which nothing is known."""
    rows = []
    for metric in METRICS:
        columns = []
        for setting in evidence.settings:
            texts = {METHODS[each]: cell(setting, metric, each) for each in evidence.methods(setting, **how)}
            columns.append(", ".join(f"{method} {text}" for method, text in texts.items() if text) or None)
        rows.append([metric, *columns])
    return table(["metric", *(SETTINGS[name] for name in evidence.settings)], rows)


def power(evidence):
    """Power per 1,000 calls of every metric, setting and method."""
    return by_method(evidence, lambda *cell: show(evidence.power(*cell), ".1f"))


def blurred(evidence):
    """By how many standard errors a blurred copy does better."""
    return by_method(evidence, lambda *cell: show(preference(evidence, *cell), "+.1f"), mixed=True)


def seeds(evidence):
    """Standard deviations over seeds: the value's, and those of value and skill in standard errors over samples."""

    def cell(setting, metric, method):
        found = evidence.spread(setting, metric, method)
        if found is None:
            return None
        ratios = "; ".join(f"{ratio:.2f}" for ratio in found[1:] if ratio is not None)
        return show(found[0], ".4f") + (f" ({ratios})" if ratios else "")

    return by_method(evidence, cell, mixed=True)


def mixing(evidence):
    """Departure from the line as a share of the way, and rank correlation with the share of own maps."""

    def cell(setting, metric, method):
        found = next((each for each in evidence.clear_mixtures(metric) if each[:2] == (setting, method)), None)
        if found is None:
            return None
        values, departure = found[2:4]
        order = abs(float(spearmanr(values, np.arange(5))[0]))
        return f"{show(100 * departure / abs(values[0] - values[-1]), '+.0f')}% ({order:.1f})"

    return by_method(evidence, cell, mixed=True)


def pair(evidence):
    """Values of the headline pair as exchanged maps are mixed in."""
    rows = []
    for setting in evidence.settings:
        for method in evidence.methods(setting, mixed=True):
            for metric in METRICS[:2]:
                if found := evidence.mixture(setting, metric, method):
                    values, departure, error = found
                    off = f"{show(departure, '+.3f')} ± {error:.3f}"
                    rows.append([SETTINGS[setting], METHODS[method], metric, *map(show, values), off])
    return table(["", "maps", "metric", "λ = 0", "¼", "½", "¾", "1", "off the line"], rows)


def steps(evidence):
    """The headline pair at 10, 20 and 50 steps, on the same images."""
    rows = []
    for setting in evidence.settings:
        for method in (*CHANCE, *evidence.methods(setting, mixed=True)):
            entries = [
                evidence.read(setting, metric, method, part=True, steps=count)
                for metric in METRICS[:2]
                for count in (10, 20, 50)
            ]
            if any(entries):
                rows.append([SETTINGS[setting], METHODS[method], *(each and show(each["value"]) for each in entries)])
    return table(["", "maps", *(f"{metric}, {count}" for metric in METRICS[:2] for count in (10, 20, 50))], rows)


def epsilon(evidence):
    """The paper's soundness of own maps by epsilon, at its own levels where these were measured."""
    rows = []
    for setting, about in evidence.settings.items():
        for method in [*evidence.methods(setting), "random"]:
            cells = []
            for name in ("soundness (paper)", "soundness (paper), by score"):
                metric = name if about["fine"] else f"{name}, coarse"
                names = [metric if each == 0.01 else f"{metric}, ε = {each:g}" for each in EPSILONS]
                entries = [evidence.read(setting, each, method) for each in names]
                cells.append(", ".join(show(each["value"]) for each in entries) if all(entries) else None)
            if any(cells):
                rows.append([SETTINGS[setting], METHODS[method], *cells])
    listed = ", ".join(f"{each:g}" for each in EPSILONS)
    return table(["", "maps", f"by accuracy, ε = {listed}", f"by score, ε = {listed}"], rows)


def settings(evidence):
    """What was measured: images, accuracy."""
    rows = [
        [
            SETTINGS[name],
            about["title"],
            about["samples"],
            f"{about['accuracy']:.1%}",
            about["subset"],
            about["fine"] or None,
        ]
        for name, about in evidence.settings.items()
    ]
    return table(
        ["", "data, model", "images", "accuracy", "for mixing, blur, steps, seeds", "paper's own levels"], rows
    )


def draw_figure(evidence, path):
    """Draw the power of every metric, and how values move as exchanged maps are mixed in."""
    names = [name for name in METRICS if "coarse" not in name and name != "soundness (paper)"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", width_ratios=(1.15, 1))
    for number, (setting, marker) in enumerate(zip(evidence.settings, "osD^", strict=False)):
        powers = [middle_power(evidence, setting, name) for name in names]
        height = np.arange(len(names)) + 0.12 * (number - 1.5)
        left.plot([np.nan if each is None else each for each in powers], height, marker, label=SETTINGS[setting])
    left.set_xscale("symlog", linthresh=1)
    left.set_xticks(ticks := [-10, -1, 0, 1, 10, 100], [show(tick, ".0f") for tick in ticks])
    left.set_yticks(range(len(names)), names)
    left.invert_yaxis()
    left.axvline(0, color="grey", linewidth=0.8)
    left.set_xlabel("power: (skill / standard error)² per 1,000 model calls")
    left.grid(axis="y", alpha=0.3)
    left.legend(frameon=False, loc="lower left")
    right.plot([0, 1], [1, 0], color="grey", linestyle=":", label="straight line")
    for name in ("soundness", "completeness", "soundness (paper), by score", "ROAD gain", "deletion"):
        mixed = [values for _, _, values, *_ in evidence.clear_mixtures(name)]
        if mixed:
            way = [(np.array(values) - values[-1]) / (values[0] - values[-1]) for values in mixed]
            right.plot(np.linspace(0, 1, 5), np.mean(way, axis=0), marker=".", label=f"{name} ({len(mixed)} cases)")
    right.set_xlabel("share of exchanged maps, λ")
    right.set_ylabel("from exchanged (0) to own maps (1)")
    right.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def fill_page(page: Path, out: Path) -> None:
    """Replace the page's tables, and draw its figure beside it."""
    evidence = Evidence(out)
    made = {each.__name__: each for each in (settings, summary, power, pair, mixing, blurred, steps, seeds, epsilon)}

    def fill(match: re.Match) -> str:
        name, *arguments = match[1].split()
        text = measured(evidence, *arguments) if name == "measured" else made[name](evidence)
        return f"<!-- {match[1]} -->\n\n{text}\n\n<!-- end -->"

    text = re.sub(r"<!-- ([a-z0-9 ]+) -->\n.*?<!-- end -->", fill, page.read_text(), flags=re.DOTALL)
    page.write_text(text)
    draw_figure(evidence, page.with_suffix(".png"))
