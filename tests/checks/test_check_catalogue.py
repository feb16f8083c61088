"""Checks of runs, from the command line to the stored record and the page."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.report.runs import content_of
from tests.tiny import image_folder, model_file
from twinlens.checks import order_search, remove_and_retrain
from twinlens.checks.check_catalogue import CHECKS, run_check
from twinlens.checks.check_definition import CheckOptions
from twinlens.checks.checked_run import CheckedRun
from twinlens.checks.random_sets import RandomRemovals
from twinlens.checks.sample_scores import SampleScores
from twinlens.cli.main import main
from twinlens.data.inputs import load_inputs
from twinlens.data.samples import subset
from twinlens.data.segments import equal_parts
from twinlens.metrics.catalogue import METRICS
from twinlens.run.check_records import Check
from twinlens.run.directory import read_run
from twinlens.run.reopening import reopen

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of a model that is code, on images that are cropped."""
    folder = tmp_path_factory.mktemp("checked")
    data, spec = image_folder(folder / "images", size=12), model_file(folder)
    out = folder / "run"
    tl.evaluate(
        spec,
        data,
        ["saliency", "integrated_gradients", "random"],
        metrics=["completeness"],
        preprocessing={"crop": 10},
        out=out,
        batch_size=16,
        memory_format="contiguous",
        resamples=50,
    )
    return out, spec


@pytest.fixture
def evaluation(made):
    return tl.open_evaluation(made[0])


def command(capsys, *arguments):
    code = main(["check", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def boxes_file(folder, label="bee", ids=None):
    path = Path(folder) / "boxes.csv"
    lines = [f"{name},1,1,7,6,{label}" for name in ids or ("bee/0.png", "bee/1.png", "ant/0.png")]
    path.write_text("\n".join(["image,xmin,ymin,xmax,ymax,label", *lines]))
    return path


def test_localisation_reads_stored_maps_alone(made, evaluation, tmp_path, capsys):
    out, _ = made
    code, shown, said = command(capsys, "localisation", out, "--boxes", boxes_file(tmp_path), "--quiet")
    assert (code, shown, said) == (0, "", "")
    check = evaluation.checks()["localisation"]
    ids = evaluation.ids()
    for name in evaluation.methods:
        maps = evaluation.maps(name).double().numpy()
        # Cropped by one pixel on each side; the box labelled bee in an image of ants does not count.
        shares = [maps[k][0:5, 0:6].sum() / maps[k].sum() for k in (ids.index("bee/0.png"), ids.index("bee/1.png"))]
        inside, pointing = check.methods[name].values
        assert inside.value == pytest.approx(np.mean(shares))
        assert (inside.samples, pointing.samples) == (2, 2)
    assert check.samples == 12
    assert any("10 of 12 samples have no box" in note for note in check.notes)


def test_any_label_takes_all_boxes_and_foreign_labels_are_refused(made, tmp_path, capsys):
    out, boxes = made[0], boxes_file(tmp_path, "wolf")
    code, _, said = command(capsys, "localisation", out, "--boxes", boxes)
    assert code == 2
    assert "such as 'ant'; got 'wolf'" in said
    assert "boxes.csv', line 2" in said
    code, shown, _ = command(capsys, "localisation", out, "--boxes", boxes, "--any-label", "--json")
    assert code == 0
    assert json.loads(shown)["methods"]["random"]["values"][0]["samples"] == 3


def test_the_record_is_replaced_and_survives_a_round(evaluation, tmp_path):
    first = run_check(evaluation, "localisation", options=CheckOptions(boxes=str(boxes_file(tmp_path))))
    assert evaluation.checks()["localisation"] == first
    again = run_check(
        evaluation, "localisation", methods=("random",), options=CheckOptions(boxes=str(boxes_file(tmp_path)))
    )
    assert list(evaluation.checks()["localisation"].methods) == ["random"]
    assert isinstance(again, Check)


def test_options_that_a_check_does_not_have_are_refused(evaluation, made, capsys):
    with pytest.raises(ValueError, match="`epochs` has no effect on the check localisation"):
        run_check(evaluation, "localisation", options=CheckOptions(boxes="b.csv", epochs=3))
    with pytest.raises(ValueError, match="check agreement, which has no options"):
        run_check(evaluation, "agreement", options=CheckOptions(limit=3))
    for arguments, message in (
        (["localisation", made[0]], "`boxes` is missing: pass --boxes"),
        (["localization", made[0]], "Did you mean 'localisation'?"),
        (["localisation", made[0], "--boxes", "b.csv", "--methods", "gradcam"], "got 'gradcam'"),
        (["localisation", made[0], "--tolerance", "-1"], "`tolerance` must be a distance"),
        (["localisation", made[0], "--limit", "0"], "`limit` must be at least 1"),
    ):
        code, _, said = command(capsys, *arguments)
        assert code == 2
        assert message in said
        assert said.count("\n") == 1


def test_verify_reads_the_checks(evaluation, made, tmp_path, capsys):
    run_check(evaluation, "localisation", options=CheckOptions(boxes=str(boxes_file(tmp_path))))
    assert main(["verify", str(made[0])]) == 0
    stored = made[0] / "checks" / "localisation.json"
    whole = stored.read_text()
    for text in (whole[:-20], whole.replace('"format": 2', '"format": 1'), whole.replace('"localisation"', '"x"')):
        stored.write_text(text)
        capsys.readouterr()
        assert main(["verify", str(made[0])]) == 2
        assert "checks/localisation.json: damaged" in capsys.readouterr().out
    stored.write_text(whole)
    assert read_run(made[0]) is not None


def test_the_page_shows_every_check_and_trusts_none(evaluation, made, tmp_path):
    check = run_check(evaluation, "localisation", options=CheckOptions(boxes=str(boxes_file(tmp_path))))
    page = tl.write_report([evaluation], tmp_path / "page.html")
    [shown] = content_of(page)["runs"][0]["checks"]
    assert shown["title"] == check.title
    assert [method["name"] for method in shown["methods"]] == evaluation.results.best_first()
    stored = made[0] / "checks" / "localisation.json"
    whole = stored.read_text()
    stored.write_text(whole.replace("Does a map mark", "<script>alert(1)</script>").replace('"random"', '"<b>x"'))
    page = tl.write_report([evaluation], tmp_path / "page.html")
    stored.write_text(whole)
    assert "<script>alert(1)" not in page.read_text()
    [shown] = content_of(page)["runs"][0]["checks"]
    assert shown["question"].startswith("<script>")
    assert "<b>x" not in [method["name"] for method in shown["methods"]]  # the page knows no such method


def test_every_check_is_explained():
    for kind in CHECKS.values():
        assert kind.question.endswith("?")
        assert kind.source
        assert kind.reading.endswith(".")
        assert bool(kind.step_title) == bool(kind.course_title)
        assert set(kind.options) <= set(CheckOptions.__dataclass_fields__)


def test_every_check_is_counted_and_listed(capsys):
    readme = (ROOT / "README.md").read_text()
    assert f"| metrics | {len(METRICS)}, and {len(CHECKS)} checks |" in readme
    guide = (ROOT / "docs" / "guide" / "checks.md").read_text()
    assert re.findall(r"^\|.*\| \[`([a-z-]+)`\]\(", guide, flags=re.MULTILINE) == list(CHECKS)
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    shown = re.sub(r"[\s-]", "", capsys.readouterr().out)  # lines may break at a hyphen
    assert ",".join(CHECKS).replace("-", "") in shown


def checked(evaluation, made, name, **options):
    return run_check(evaluation, name, options=CheckOptions(limit=6, **options), model=made[1])


def test_code_that_a_run_names_is_not_loaded(made, capsys):
    code, _, said = command(capsys, "model-randomisation", made[0])
    assert code == 2
    assert "pass --model" in said


def test_model_randomisation_is_that_of_the_laboratory(evaluation, made):
    check = checked(evaluation, made, "model-randomisation")
    assert check.steps == ("4", "0")
    model, samples = reopen(evaluation, model=made[1])
    part = subset(samples, 6, 0)
    scores = tl.checks.model_randomisation(
        model.module, load_inputs(part, model, 1), part.labels, "saliency", ids=part.ids
    )
    expected = [step.estimate() for step in scores.values()]
    found = check.methods["saliency"]
    assert [step.value for step in found.course] == pytest.approx([step.value for step in expected])
    assert [step.low for step in found.course] == pytest.approx([step.low for step in expected])
    assert found.values == found.course[-1:]
    assert check.methods["random"].values[0].value == pytest.approx(1.0)


def test_the_efficient_variant_measures_the_rise_of_complexity(evaluation, made):
    methods = checked(evaluation, made, "efficient-randomisation").methods
    assert methods["saliency"].values[0].value != 0
    assert methods["random"].values[0].value == 0


def test_sensitivity_n_reads_stored_maps(evaluation, made, monkeypatch):
    monkeypatch.setattr(CheckedRun, "method", lambda *_: pytest.fail("maps are computed again"))
    check = checked(evaluation, made, "sensitivity-n", levels=(0.1, 0.5), subsets=5)
    assert check.steps == ("10", "50")
    assert check.options["subsets"] == 5
    assert len(check.methods["saliency"].course) == 2
    assert any("no negative values" in note for note in check.notes)


def test_the_mean_over_n_leaves_out_undefined_correlations(evaluation, made, monkeypatch):
    rows = np.array([[0.5, np.nan, np.nan, 0.0, 0.0, 0.0], [0.1, 0.3, np.nan, 0.0, 0.0, 0.0]])

    def correlate(removals, maps):
        return {n: SampleScores(name="x", values=row, ids=removals.ids) for n, row in enumerate(rows)}

    monkeypatch.setattr(RandomRemovals, "correlate", correlate)
    mean = checked(evaluation, made, "sensitivity-n", levels=(0.1, 0.5), subsets=3).methods["saliency"].values[0]
    assert mean.samples == 5
    assert mean.value == pytest.approx((0.3 + 0.3) / 5)


def test_data_randomisation_has_the_true_labels_beside_it(evaluation, made):
    data = str(made[0].parent / "images")
    check = checked(evaluation, made, "data-randomisation", train=data, epochs=2)
    assert [column.title for column in check.columns] == ["permuted labels", "true labels"]
    assert check.methods["random"].values[0].value == pytest.approx(1.0)
    assert check.methods["saliency"].values[0].value < 1
    assert "has learned" in check.notes[0]


def test_roar_trains_the_networks_of_the_run_once(evaluation, made, capsys, monkeypatch):
    data = made[0].parent / "images"
    flags = ("--model", made[1], "--train", data, "--epochs", 1, "--levels", "0.2,0.6", "--limit", 6)
    code, shown, said = command(capsys, "roar", made[0], *flags)
    assert code == 0, said
    assert "6 of 6 test samples are also in the training data" in shown
    assert "[" not in shown.split("──")[-1].splitlines()[1]  # no interval
    check = evaluation.checks()["roar"]
    assert check.steps == ("0", "0.2", "0.6")
    # What is trained with nothing removed does not depend on the method.
    assert len({found.course[0].value for found in check.methods.values()}) == 1
    monkeypatch.setattr(remove_and_retrain, "train", lambda *_, **__: pytest.fail("all networks are stored"))
    assert command(capsys, "roar", made[0], *flags)[:2] == (0, shown)


def test_imported_maps_cannot_be_computed_again_and_are_noted(tmp_path):
    data, spec = image_folder(tmp_path / "images"), model_file(tmp_path)
    np.save(tmp_path / "maps.npy", np.random.default_rng(0).random((12, 10, 10), dtype=np.float32))
    evaluation = tl.evaluate(
        spec, data, ["saliency"], maps={"mine": str(tmp_path / "maps.npy")}, metrics=["completeness"],
        out=tmp_path / "run", batch_size=16, memory_format="contiguous", resamples=50,
    )  # fmt: skip
    check = run_check(evaluation, "efficient-randomisation", options=CheckOptions(limit=4), model=spec)
    assert list(check.methods) == ["saliency"]
    assert "mine is missing: mine cannot be computed again from run.json: its maps were imported." in check.notes
    with pytest.raises(tl.RunError, match="mine is missing"):
        run_check(evaluation, "efficient-randomisation", methods=("mine",), options=CheckOptions(limit=4), model=spec)
    removed = run_check(
        evaluation, "sensitivity-n", methods=("mine",), options=CheckOptions(limit=4, subsets=3), model=spec
    )
    assert list(removed.methods) == ["mine"]  # which needs no more than the maps


@pytest.mark.parametrize(
    ("name", "test", "options"),
    [
        ("max-sensitivity", tl.checks.max_sensitivity, {"radius": 0.02, "perturbations": 2, "change": 0.5}),
        ("class-similarity", tl.checks.class_similarity, {"similarity": "pearson"}),
    ],
)
def test_stability_is_that_of_the_laboratory(evaluation, made, name, test, options):
    check = checked(evaluation, made, name, **options)
    model, samples = reopen(evaluation, model=made[1])
    part = subset(samples, 6, 0)
    expected = test(model.module, load_inputs(part, model, 1), part.labels, "saliency", ids=part.ids, **options)
    assert check.methods["saliency"].values[0].value == pytest.approx(expected.estimate().value)
    assert check.methods["random"].values[0].value == pytest.approx(0.0 if name == "max-sensitivity" else 1.0)
    assert check.options["limit"] == 6


@pytest.mark.slow
def test_the_ceiling_is_that_of_the_laboratory_and_its_search_is_kept(evaluation, made, monkeypatch, capsys):
    asked = {"segments": "grid:4", "width": 1, "metric": "road_lerf"}
    check = checked(evaluation, made, "ceiling", **asked)
    model, samples = reopen(evaluation, model=made[1])
    part = subset(samples, 6, 0)
    arguments = (model.module, load_inputs(part, model, 1), part.labels)
    parts = equal_parts((10, 10), 4).expand(6, 10, 10)
    metric = tl.Road(order="lerf", performance="probability", imputer=tl.LinearImputer())
    expected = tl.checks.ceiling(*arguments, metric=metric, width=1, segments=parts, ids=part.ids)
    maps = evaluation.maps("saliency")[[evaluation.ids().index(name) for name in part.ids]]
    share, area = check.methods["saliency"].values
    assert share.value == pytest.approx(expected.share(expected.measure(*arguments, maps)).value, abs=1e-4)
    assert area.value == pytest.approx(expected.measure(*arguments, maps).area(), abs=1e-5)
    assert f"of 4 segments score {expected.values.mean():.3f} (road_lerf)" in check.notes[0]
    monkeypatch.setattr(order_search, "search_order", lambda *_, **__: pytest.fail("the search begins again"))
    again = ("--segments", "grid:4", "--width", 1, "--metric", "road_lerf", "--limit", 6)
    code, shown, said = command(capsys, "ceiling", made[0], "--model", made[1], *again)
    assert code == 0, said
    assert "share of the ceiling ↑" in shown
    assert evaluation.checks()["ceiling"] == check


def test_what_checks_found_stands_beside_soundness_and_completeness(evaluation, made, tmp_path, capsys):
    checks = {
        name: checked(evaluation, made, name, **options)
        for name, options in (
            ("ceiling", {"segments": "grid:4", "width": 1, "metric": "deletion"}),
            ("class-similarity", {}),
            ("max-sensitivity", {"perturbations": 1}),
        )
    }
    names = ["sparseness", *(name.replace("-", "_") for name in checks)]
    frame = evaluation.properties().set_index(["method", "property"])
    for name, check in checks.items():
        for method, found in check.methods.items():
            assert frame.loc[(method, name.replace("-", "_")), "value"] == found.values[0].value
    table = tl.format_table([evaluation], "csv").splitlines()[0].split(",")
    assert [name for name in table if name in names] == names
    assert "| sparseness | of ceiling ↑ | class similarity ↓ | max-sensitivity ↓ |" in tl.format_table(
        [evaluation], "markdown", columns="all"
    )
    page = tl.write_report([evaluation], tmp_path / "page.html")
    table = content_of(page)["runs"][0]["table"]
    shown = [column for column in table["columns"] if column["kind"] == "side"]
    assert [column["key"] for column in shown] == names
    assert [column["descending"] for column in shown] == [True, True, False, False]
    value = checks["max-sensitivity"].methods["saliency"].values[0]
    [row] = [row for row in table["rows"] if row["method"] == "saliency"]
    assert row["cells"][table["columns"].index(shown[3])]["estimate"]["value"] == value.value
    assert main(["ask", str(made[0])]) == 0
    printed = capsys.readouterr().out
    assert f"{value.value:.3f}" in printed
    assert "sparse" in printed
    assert "max-sensitivity ↓" in printed
    assert f"{value.value:.3f}" in evaluation._repr_html_()


def test_boxes_need_images(tmp_path):
    model, inputs = torch.nn.Linear(5, 3), torch.randn(6, 5)
    rows = tl.evaluate(
        model, (inputs, [0, 1, 2] * 2), ["saliency"], metrics=["deletion"], out=tmp_path / "run", batch_size=6,
        memory_format="contiguous", resamples=50,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"`boxes` need images; the run's inputs have shape \(5,\)"):
        run_check(rows, "localisation", options=CheckOptions(boxes=str(tmp_path / "boxes.csv")))
