import base64
import csv
import dataclasses
import hashlib
import html
import io
import itertools
import json
import re
import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import twinlens as tl
from tests.tiny import tiny_model
from twinlens.comparison import compare
from twinlens.data import from_arrays
from twinlens.engines import Job
from twinlens.evaluation import evaluate
from twinlens.exhibits import agreement, choose, false_share, read_exhibits, write_exhibits
from twinlens.models import LoadedModel
from twinlens.preprocessing import Preprocessing
from twinlens.report import figures, format_table, html_of, plot_of, write_figures, write_report
from twinlens.report.content import describe_run, describe_runs, group_warnings, order_methods, pareto_front
from twinlens.report.explorer import _set_scene, describe_exhibits, impute_at_levels, keep_at_levels
from twinlens.report.page import embed_json
from twinlens.report.pictures import Shades, data_uri, false_picture, input_pictures, map_picture
from twinlens.results import Evaluation, open_evaluation
from twinlens.tuning import Execution

EXECUTION = Execution(batch_size=16, memory_format="contiguous", compiled=False)
LEVELS = (0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
OPTIONS = {
    "batch_size": 16,
    "memory_format": "contiguous",
    "shard_size": 4,
    "resamples": 20,
    "protocol": dataclasses.replace(tl.PROTOCOLS["paper"], levels=LEVELS),
}
METHODS = ("saliency", "sobel", "random")
EVIL = "<script>alert('x')</script>\u202e\u2028\"&\\ 🐈 \u05d0"


def image_samples(n=10, size=10, seed=0):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 120, size=(n, size, size, 3), dtype=np.uint8)
    labels = np.arange(n) % 3
    for i, k in enumerate(labels):
        pixels[i, ..., k] += 130
    return from_arrays(pixels, labels)


def loaded(name="tiny", module=None):
    preprocessing = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.25, 0.25, 0.25))
    return LoadedModel(name=name, module=module or tiny_model(), preprocessing=preprocessing)


def job_of(evaluation, model, samples):
    return Job(
        run=evaluation.run,
        model=model,
        execution=EXECUTION,
        samples=samples,
        methods={},
        sweeps=[],
        imputers={},
        shard_size=evaluation.run.manifest["execution"]["shard_size"],
        seed=0,
        workers=1,
    )


def make_run(path, *, samples=None, model=None, methods=METHODS, exhibits=True, **options):
    given_samples, subject = image_samples() if samples is None else samples, model or loaded()
    evaluation = evaluate(subject, given_samples, methods, out=path, **{**OPTIONS, **options})
    if exhibits:
        write_exhibits(job_of(evaluation, subject, given_samples), evaluation)
    return evaluation


def changed(evaluation, **entries):
    """The same run with other entries in its results."""
    return Evaluation(evaluation.run, {**evaluation.results, **entries})


def content_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="content">(.*?)</script>', text, re.S)[1])


def decoded(uri):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))).convert("RGB"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    # Probabilities differ from level to level where the tiny model's predictions stay.
    return make_run(tmp_path_factory.mktemp("report") / "run", performance="probability")


@pytest.fixture(scope="module")
def page(run, tmp_path_factory):
    return write_report([run], tmp_path_factory.mktemp("page") / "report.html")


# ---- the page


def test_numbers_of_the_page_are_those_of_the_results(run, page):
    [shown] = content_of(page)["runs"]
    assert [m["key"] for m in shown["metrics"]] == run.metrics
    assert {m["name"] for m in shown["methods"]} == set(METHODS)
    for method in shown["methods"]:
        for metric, stored in run.results["methods"][method["name"]]["metrics"].items():
            for column in ("area", "levels", "performance", "values"):
                assert method["metrics"][metric][column] == stored[column]
    facts = dict(shown["facts"])
    assert facts["Samples"] == "10"
    assert facts["Accuracy"].startswith(f"{run.results['accuracy']:.1%}")
    assert f"twinlens {tl.__version__}" in facts["Versions"]
    assert "paper, by probability, ε = 0.01" in facts["Protocol"]
    assert re.fullmatch(r"\d+ \w+ 20\d\d, \d\d:\d\d UTC", facts["Date"])


def test_the_policy_lets_exactly_our_scripts_and_style_run(page):
    text = page.read_text(encoding="utf-8")
    policy = html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1])
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    assert rules["img-src"] == "data:"
    for kind, pattern in (("script-src", r"<script>(.*?)</script>"), ("style-src", r"<style>(.*?)</style>")):
        found = [
            f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"
            for part in re.findall(pattern, text, re.S)
        ]
        assert rules[kind].split() == found
    outside = re.sub(r"<script.*?</script>|<style.*?</style>", "", text, flags=re.S)
    assert "http:" not in outside
    assert "src=" not in outside.replace("-src", "")
    assert "<link" not in outside


def test_the_same_run_gives_the_same_page(run, page, tmp_path):
    assert write_report([run], tmp_path / "again.html").read_bytes() == page.read_bytes()


def test_names_of_a_run_are_data_whatever_they_hold(tmp_path):
    samples = dataclasses.replace(
        image_samples(4), name=EVIL, ids=tuple(f"{EVIL}{i}" for i in range(4)), classes=(EVIL, "@STYLE@", "c")
    )
    evaluation = make_run(
        tmp_path / "run", samples=samples, model=loaded(EVIL), methods=["random"], metrics=["soundness"]
    )
    page = write_report([changed(evaluation, verdicts=[EVIL], warnings=[EVIL])], tmp_path / "r.html")
    text = page.read_text(encoding="utf-8")
    assert "alert('x')</script>" not in text
    assert text.count("<script") == 6
    [shown] = content_of(page)["runs"]
    assert (shown["model"], shown["data"], shown["verdicts"]) == (EVIL, EVIL, [EVIL])
    assert shown["explorer"]["samples"][0]["id"].startswith(EVIL)
    assert {s["label"] for s in shown["explorer"]["samples"]} <= {EVIL, "@STYLE@", "c"}
    assert f"<title>{html.escape(f'twinlens: {EVIL} on {EVIL}')}</title>" in text


@given(st.text())
def test_any_text_can_be_embedded(text):
    embedded = embed_json([text])
    assert json.loads(embedded) == [text]
    assert not set("<>&\u2028\u2029") & set(embedded)


def test_statistics_are_shown_where_they_are_there(run):
    methods = json.loads(json.dumps(run.results["methods"]))
    curve = methods["random"]["metrics"]["soundness"]
    curve |= {"area": 2.0, "area_interval": [1.5, 2.5], "low": curve["values"], "high": curve["values"]}
    ranking = [{"metric": "soundness", "method": "random", "rank": 1, "best_rank": 1, "worst_rank": 2}]
    more = changed(run, methods=methods, verdicts=["Yes."], warnings=["No."], ranking=ranking, front=["sobel"])
    shown = describe_run(more, "r")
    assert shown["front"] == ["sobel"]
    assert shown["verdicts"] == ["Yes."]
    assert ["No."] in shown["warnings"]
    soundness = next(m for m in shown["methods"] if m["name"] == "random")["metrics"]["soundness"]
    assert (soundness["interval"], soundness["ranks"], soundness["low"]) == ([1.5, 2.5], [1, 2], curve["low"])
    assert "random has the highest soundness (2.000; clear of all intervals)." in shown["headlines"]
    [control] = [group for group in shown["warnings"] if "The control random has the highest soundness" in group[0]]
    assert len(control) == 1


def test_a_front_is_found_where_none_is_given():
    def method(sound, complete):
        return {"metrics": {"soundness": {"area": sound}, "completeness": {"area": complete}}}

    points = {"a": (0.9, 0.1), "b": (0.5, 0.5), "c": (0.5, 0.4), "d": (None, 0.9), "e": (0.5, 0.5), "f": (0.1, 0.9)}
    results = {"methods": {name: method(*point) for name, point in points.items()}}
    assert pareto_front(results) == ["a", "b", "e", "f"]
    assert order_methods(results)[0] == "b"
    assert pareto_front({"methods": {"a": {"metrics": {"soundness": {"area": 0.5}}}}}) == []


def test_warnings_that_differ_in_numbers_alone_are_grouped():
    warnings = ["a: 3 of 40 are zero.", "Other: 1.", "b: 5 of 40 are zero.", "b: else.", "Other: 2."]
    groups = group_warnings(warnings, ["a", "b"])
    assert groups == [[warnings[0], warnings[2]], ["Other: 1."], ["b: else."], ["Other: 2."]]


# ---- runs with something missing


def test_a_run_of_one_sample_and_one_method_says_so(tmp_path):
    evaluation = make_run(tmp_path / "run", samples=image_samples(1), methods=["saliency"])
    [shown] = content_of(write_report([evaluation], tmp_path / "r.html"))["runs"]
    said = " ".join(group[0] for group in shown["warnings"])
    assert "One sample only" in said
    assert "One method only" in said
    assert shown["headlines"] == []
    assert [sample["reason"] for sample in shown["explorer"]["samples"]] == ["High false attribution"]


def test_maps_alone_say_so(tmp_path):
    evaluation = make_run(tmp_path / "run", methods=["saliency"], metrics=[])
    [shown] = content_of(write_report([evaluation], tmp_path / "r.html"))["runs"]
    assert any("No metric was asked for" in group[0] for group in shown["warnings"])
    assert shown["explorer"] == {
        "note": "Nothing was measured, so that there is nothing to show about samples.",
        "samples": [],
    }


def test_runs_without_exhibits_or_maps_say_so(run, tmp_path):
    shutil.copytree(run.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "maps" / "sobel")
    shown = describe_exhibits(open_evaluation(tmp_path / "run"), budget=10**6)
    assert "No maps are stored of sobel" in shown["note"]
    answers = shown["samples"][0]["methods"]
    assert (answers["sobel"]["map"], answers["sobel"]["frames"]) == (None, None)
    assert answers["sobel"]["predicted"]
    assert answers["random"]["map"].startswith("data:image/png")
    (tmp_path / "run" / "exhibits.safetensors").unlink()
    without = describe_exhibits(open_evaluation(tmp_path / "run"), budget=10**6)
    assert without["samples"] == []
    assert without["note"].startswith("No samples are stored with this run. Start it again")


def test_degenerate_maps_and_levels_that_are_not_reached_are_told(tmp_path):
    def nothing(model, inputs, targets, *, ids=None, seed=0):
        return torch.zeros(len(inputs), *inputs.shape[2:])

    methods = {"nothing": nothing, "random": "random"}
    evaluation = make_run(tmp_path / "run", methods=methods, metrics=["soundness", "completeness"])
    shown = describe_run(changed(evaluation, accuracy=2.0), "r")
    said = [group[0] for group in shown["warnings"]]
    assert any(text.startswith("nothing: Of 10 maps, 10 all zero") for text in said)
    assert "nothing: soundness is not defined at any level, since nothing that is kept has attribution." in said
    assert any(re.search(r"no predictive level above 0\.\d+ \(the untouched inputs: 2\.000\)", text) for text in said)
    samples = describe_exhibits(evaluation, budget=10**6)["samples"]
    assert {sample["methods"]["nothing"]["kind"] for sample in samples} == {"zero"}
    assert {sample["methods"]["nothing"]["falseShare"] for sample in samples} == {None}


def test_rows_of_a_table_are_shown_as_strips(tmp_path):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(6, 5)).astype(np.float32), rng.integers(0, 2, 6)
    model = LoadedModel(name="linear", module=torch.nn.Linear(5, 2))
    samples = from_arrays(rows, labels)
    evaluation = make_run(tmp_path / "run", samples=samples, model=model, methods=["saliency"], metrics=["soundness"])
    shown = describe_exhibits(evaluation, budget=10**6)
    assert shown["strip"]
    assert decoded(shown["samples"][0]["input"]).shape == (1, 5, 3)
    assert decoded(shown["samples"][0]["methods"]["saliency"]["frames"][0]).shape == (1, 5, 3)


def test_an_imputer_of_ones_own_is_replaced_by_grey_and_said(tmp_path):
    def own(inputs, keep, streams):
        return inputs * keep.unsqueeze(1)

    evaluation = make_run(tmp_path / "run", methods=["random"], metrics=["road_morf"], imputer=own)
    shown = describe_exhibits(evaluation, budget=10**6)
    assert "removed features are shown in grey" in shown["note"]
    assert "nothing was judged false" in shown["note"]
    frame = decoded(shown["samples"][0]["methods"]["random"]["frames"][-1])
    grey = (abs(frame.astype(int) - 128) <= 1).all(axis=2).sum()
    assert grey == shown["samples"][0]["methods"]["random"]["removed"][-1] == 90


# ---- exhibits and pictures


def test_what_is_shown_is_what_the_model_saw(run):
    """The imputed inputs, given to the model, give the answers of the probe table."""
    scene = _set_scene(run)
    assert not isinstance(scene, str)
    model, shown = tiny_model().eval(), describe_exhibits(run, budget=10**6)["samples"]
    for place in (0, 3):
        for method in METHODS:
            keep = keep_at_levels(scene, place, method)
            inputs = impute_at_levels(scene, place, scene.exhibits.inputs[place : place + 1], keep)
            with torch.inference_mode():
                probability = model(inputs).softmax(dim=1)[:, scene.exhibits.samples[place].label]
            said = shown[place]["methods"][method]
            np.testing.assert_allclose(said["probability"], probability.numpy(), atol=2e-5)
            assert said["removed"] == (~keep).flatten(1).sum(dim=1).tolist()


def test_the_explorer_tells_what_the_probes_say(run):
    shown = describe_exhibits(run, budget=10**6)
    assert shown["levels"] == sorted(shown["levels"])
    assert (shown["levels"][0], shown["levels"][-1]) == (0.1, 0.98)
    curve = run.curve("sobel", "soundness")
    for sample in shown["samples"]:
        row = curve.table.ids.index(sample["id"])
        answers = sample["methods"]["sobel"]
        assert [level for level, _ in answers["course"]] == list(curve.levels)
        column = list(curve.levels).index(0.5)
        assert answers["predicted"][2] == f"class {curve.table.predicted[row, column]}"
        assert answers["correct"][2] == curve.table.correct[row, column]
        assert answers["probability"][2] == pytest.approx(curve.table.probability[row, column], abs=1e-5)
        assert answers["falseShare"] == pytest.approx(1 - curve.per_sample[row, -1], abs=1e-5)
        assert sample["label"] == f"class {curve.table.labels[row]}"
    assert decoded(shown["samples"][0]["input"]).shape == (10, 10, 3)


def test_inputs_are_shown_as_they_were_before_normalisation(run):
    samples, shown = image_samples(), describe_exhibits(run, budget=10**6)["samples"]
    for sample in shown:
        original = np.asarray(samples.read(samples.ids.index(sample["id"])))
        np.testing.assert_array_equal(decoded(sample["input"]), original)


def test_pictures_keep_to_their_budget(tmp_path):
    samples = image_samples(3, size=90)
    constant = tl.ConstantImputer(0.0)
    evaluation = make_run(
        tmp_path / "run", samples=samples, methods=["random"], metrics=["road_lerf"], imputer=constant
    )

    def total(budget):
        [*shown] = describe_exhibits(evaluation, budget=budget)["samples"]
        pictures = [uri for s in shown for m in s["methods"].values() for uri in (m["map"], *m["frames"])]
        return sum(map(len, [*pictures, *(s["input"] for s in shown)]))

    plenty = total(10**9)
    assert total(plenty * 3 // 4) <= plenty * 3 // 4


def test_exhibits_are_the_most_telling_samples(run):
    ids = image_samples().ids
    likeness, false = agreement(run, ids), false_share(run, ids)
    chosen = choose(run, ids)
    assert len(chosen) == 8
    reasons = {reason: [p for p, r in chosen.items() if r == reason] for reason in dict.fromkeys(chosen.values())}
    assert list(reasons) == ["Methods disagree", "High false attribution", "Methods agree"]
    assert reasons["Methods disagree"][0] == likeness.argmin()
    assert reasons["Methods agree"][0] == likeness.argmax()
    worst = next(p for p in np.argsort(-false, kind="stable") if p != reasons["Methods disagree"][0])
    assert false[reasons["High false attribution"][0]] == pytest.approx(false[worst])


def test_agreement_is_a_rank_correlation(tmp_path):
    def ramp(sign):
        def method(model, inputs, targets, *, ids=None, seed=0):
            line = torch.arange(inputs[0, 0].numel(), dtype=torch.float32).reshape(inputs.shape[2:])
            return (line if sign > 0 else line.max() - line).exp2().log1p().expand(len(inputs), *line.shape)

        return method

    evaluation = make_run(tmp_path / "same", methods={"a": ramp(1), "b": ramp(1)}, metrics=[], exhibits=False)
    np.testing.assert_allclose(agreement(evaluation, range(10)), 1.0)
    evaluation = make_run(tmp_path / "opposite", methods={"a": ramp(1), "b": ramp(-1)}, metrics=[], exhibits=False)
    np.testing.assert_allclose(agreement(evaluation, range(10)), -1.0)


def test_exhibits_are_the_same_bytes_and_named_samples_come_first(run, tmp_path):
    samples, model = image_samples(), loaded()
    job, path = job_of(run, model, samples), run.path / "exhibits.safetensors"
    before = path.read_bytes()
    write_exhibits(job, run)
    assert path.read_bytes() == before
    shutil.copytree(run.path, tmp_path / "run")
    copy = open_evaluation(tmp_path / "run")
    write_exhibits(job_of(copy, model, samples), copy, named=["00007", "00001", "00007"])
    stored = read_exhibits(copy.run)
    assert [(s.id, s.reason) for s in stored.samples[:2]] == [
        ("00007", "Asked for by name"),
        ("00001", "Asked for by name"),
    ]
    assert len({s.id for s in stored.samples}) == len(stored.samples) == 8
    torch.testing.assert_close(stored.inputs[0], model.preprocessing(samples.read(7)))
    with pytest.raises(ValueError, match="`named` must hold ids of samples of this run, such as '00000'; got 'cat'"):
        write_exhibits(job, run, named=["cat"])


def test_pictures_of_maps():
    values = torch.tensor([[0.0, 1.0], [0.5, 0.0]])
    drawn = map_picture(values)
    assert drawn[0, 1].tolist() == [252, 255, 164]
    assert drawn[0, 0].tolist() == drawn[1, 1].tolist() == [13, 8, 45]
    white = np.full((2, 2, 3), 255, np.uint8)
    over = false_picture(values, torch.tensor([[False, True], [False, False]]), white)
    assert over[0, 1].tolist() == [230, 80, 0]
    assert over[0, 0].tolist() == [255, 255, 255]
    assert over[1, 0, 2] > over[1, 0, 0]  # blue: it stands
    assert map_picture(torch.zeros(2, 2)).tolist() == [[[13, 8, 45]] * 2] * 2


def test_pictures_of_inputs_of_all_shapes():
    plain = Shades(scale=torch.tensor(1.0), shift=torch.tensor(0.0))
    assert input_pictures(torch.full((2, 1, 4, 5), 0.5), plain)[1].tolist() == [[[128] * 3] * 5] * 4
    assert input_pictures(torch.ones(1, 7), plain)[0].tolist() == [[[255] * 3] * 7]
    assert input_pictures(torch.zeros(1, 2, 6), plain)[0].shape == (1, 6, 3)
    assert input_pictures(torch.zeros(1, 1, 3, 4, 5), plain)[0].shape == (4, 5, 3)
    colours = torch.tensor([1.0, 0.0, 0.2]).reshape(1, 3, 1, 1).expand(1, 3, 2, 2)
    assert input_pictures(colours, plain)[0].tolist() == [[[255, 0, 51]] * 2] * 2
    between = Shades.between_extremes(torch.tensor([-1.0, 0.0, 1.0]))
    assert input_pictures(torch.tensor([[-3.0, 0.2, 5.0]]), between)[0][0, :, 0].tolist() == [0, 153, 255]
    assert between.grey.item() == 0.0


def test_large_pictures_are_made_smaller_and_small_ones_kept_exact():
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decoded(data_uri(small, side=10, quality=50)), small)
    large = rng.integers(0, 256, (400, 200, 3), dtype=np.uint8)
    assert decoded(data_uri(large, side=100, quality=50)).shape == (100, 50, 3)


# ---- several runs, tables, figures, notebooks


def test_several_runs_stand_side_by_side(run, tmp_path):
    other = make_run(tmp_path / "other", methods=["saliency", "random"], metrics=["soundness"])
    content = content_of(write_report([run, other], tmp_path / "r.html"))
    assert [shown["name"] for shown in content["runs"]] == [run.path.name, "other"]
    assert list(content["looks"]) == sorted(METHODS)
    assert content["looks"]["random"]["control"]
    (tmp_path / "a").mkdir()
    shutil.copytree(other.path, tmp_path / "a" / "other")
    twins = describe_runs([other, open_evaluation(tmp_path / "a" / "other")])
    assert [shown["name"] for shown in twins] == [str(other.path), str(tmp_path / "a" / "other")]


def test_looks_tell_methods_apart(run):
    from twinlens.report.looks import method_looks

    methods = {f"m{k:02d}": run.results["methods"]["saliency"] for k in range(12)}
    manifest = {**run.run.manifest, "methods": {name: {"function": name} for name in methods}}
    many = Evaluation(type(run.run)(run.path, manifest), {**run.results, "methods": methods})
    looks = [(look.colour, look.dash, look.symbol) for look in method_looks([many]).values()]
    assert len(set(looks)) == 12


def test_tables_hold_the_numbers_of_the_results(run):
    rows = list(csv.DictReader(io.StringIO(format_table([run], "csv"))))
    assert [row["method"] for row in rows] == order_methods(run.results)
    for row in rows:
        for metric, curve in run.results["methods"][row["method"]]["metrics"].items():
            assert float(row[metric]) == curve["area"]
    markdown = format_table([run], "markdown").splitlines()
    assert markdown[0].startswith("| method | soundness ↑ | completeness ↑ | ROAD MoRF ↑ |")
    latex = format_table([run, run], "latex")
    assert latex.startswith("\\begin{tabular}{llrrrrrr}\n\\toprule\nrun & method & soundness $\\uparrow$")
    for metric in run.metrics:
        areas = [content["metrics"][metric]["area"] for content in run.results["methods"].values()]
        best = min(areas) if metric in ("road_lerf", "insertion") else max(areas)
        assert f"**{best:z.3f}**" in markdown[2] + markdown[3] + markdown[4]
        assert f"$\\mathbf{{{best:z.3f}}}" in latex


def test_tables_show_intervals_and_gaps(run):
    methods = json.loads(json.dumps(run.results["methods"]))
    methods["random"]["metrics"]["deletion"] |= {"area": -0.00001, "area_interval": [-0.1, 0.25]}
    methods["random"]["metrics"]["insertion"]["area"] = None
    methods["ig_sg|<b>"] = methods.pop("sobel")
    manifest = {**run.run.manifest, "methods": {name: {"function": name} for name in methods}}
    odd = Evaluation(type(run.run)(run.path, manifest), {**run.results, "methods": methods})
    markdown = format_table([odd], "markdown")
    assert "0.000 [-0.100, 0.250]" in markdown
    assert "-0.000" not in markdown
    assert "| – |" in markdown
    assert r"ig\_sg\|\<b\>" in markdown
    latex = format_table([odd], "latex")
    assert r"0.000\;{\scriptstyle[-0.100,\,0.250]}$" in latex
    assert r"ig\_sg|<b> &" in latex
    assert "<b>0" in html_of(odd)
    assert "ig_sg|&lt;b&gt;" in html_of(odd)


@pytest.mark.parametrize(
    ("evaluations", "kind", "message"), [([], "csv", "`evaluations` must"), ([1], "doc", "`kind` must")]
)
def test_tables_refuse_what_they_cannot(evaluations, kind, message):
    with pytest.raises(ValueError, match=message):
        format_table(evaluations, kind)


def test_figures_of_every_chart(tmp_path):
    evaluation = make_run(tmp_path / "run", metrics=["soundness", "completeness"], exhibits=False, methods=["random"])
    curve = evaluation.results["methods"]["random"]["metrics"]["soundness"]
    curve |= {"area_interval": [0.0, 1.0], "low": [0.0] * len(LEVELS), "high": [1.0] * len(LEVELS)}
    files = write_figures([evaluation], tmp_path / "figures")
    parts = itertools.product(
        ("plane", "soundness", "completeness"), ("one-column", "two-columns"), ("pdf", "svg", "png")
    )
    names = {f"{chart}-{width}.{kind}" for chart, width, kind in parts}
    assert {path.name for path in files} == names == {path.name for path in (tmp_path / "figures").iterdir()}
    with Image.open(tmp_path / "figures" / "plane-one-column.png") as narrow:
        assert narrow.width == pytest.approx(3.3 * 300, abs=1)
    assert (tmp_path / "figures" / "plane-two-columns.pdf").read_bytes().startswith(b"%PDF")
    assert ">random<" not in (tmp_path / "figures" / "plane-two-columns.svg").read_text()  # letters are outlines


def test_figures_of_several_runs_carry_their_names_and_equal_results_give_equal_bytes(run, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "WIDTHS", {"one-column": (3.3, 2.4)})
    few = {name: content for name, content in run.results["methods"].items() if name == "random"}
    manifest = {**run.run.manifest, "metrics": ["deletion"]}
    one = Evaluation(type(run.run)(run.path, manifest), {**run.results, "methods": few})
    other = Evaluation(type(run.run)(tmp_path / "a b", manifest), one.results)
    files = write_figures([one, other], tmp_path)
    assert [path.name for path in files[:3]] == [f"run-deletion-one-column.{kind}" for kind in ("pdf", "svg", "png")]
    assert [path.name for path in files[3:]] == [f"a-b-deletion-one-column.{kind}" for kind in ("pdf", "svg", "png")]
    assert [path.read_bytes() for path in files[:3]] == [path.read_bytes() for path in files[3:]]


def test_notebooks_show_results_curves_and_comparisons(run):
    shown = html_of(run)
    assert "tiny on 10 samples of" in shown
    for method in METHODS:
        assert f"{run.results['methods'][method]['metrics']['deletion']['area']:z.3f}" in shown
    for metric in run.metrics:
        curve = run.curve("random", metric)
        drawn = html_of(curve)
        assert drawn.count("<circle") == np.isfinite(curve.values).sum()
        assert html.escape(repr(curve)) in drawn
    comparison = compare(
        {m: {k: run.curve(m, k) for k in ("soundness", "completeness")} for m in METHODS}, resamples=20
    )
    assert html.escape(comparison.verdicts[0]) in html_of(comparison)
    axes = plot_of(comparison)
    assert {label.get_text() for label in axes.get_yticklabels()} == set(METHODS)
    plane = plot_of(run, ax=axes)
    assert plane is axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("soundness", "completeness")
