"""The results table as values: its columns, and what is said about them and about the methods."""

from types import SimpleNamespace

from tests.report.runs import changed, make_run, with_curve
from twinlens.report.results_table import (
    describe_columns,
    describe_options,
    describe_settings,
    differences_table,
    method_options,
    method_title,
    results_table,
)
from twinlens.run.manifest import MethodRecord
from twinlens.statistics.contrasts import RunPair
from twinlens.support.estimate import Estimate


def test_columns_have_the_chance_level_of_their_metric(paired):
    columns = {column.key: column.chance for column in results_table([paired], ["run"]).columns}
    assert {key for key, chance in columns.items() if chance is not None} == {"soundness_rank", "completeness_share"}
    assert columns["soundness_rank"] == columns["completeness_share"] == 0.5


def test_the_line_below_the_table_names_chance_where_it_is_known(paired):
    table = results_table([paired], ["run"])
    text = describe_columns(table)
    assert "By chance, soundness and completeness are 0.5." in text
    assert "By chance, soundness is 0.5." in describe_columns(table.select(["soundness_rank"]))
    assert "chance" not in describe_columns(table.select(["completeness"]))


def test_headline_metrics_come_first_with_their_skill(tmp_path):
    metrics = ["deletion", "completeness_share", "completeness", "soundness_rank"]
    made = make_run(tmp_path / "run", metrics=metrics)
    table = results_table([made], ["run"])
    first = ["soundness_rank", "soundness_rank_skill", "completeness_share", "completeness_share_skill"]
    assert [column.key for column in table.columns] == [*first, "deletion", "completeness", "sparseness"]
    assert [column.key for column in table.columns if column.headline] == first
    assert [column.key for column in table.select(["headline"]).columns] == first
    lone = results_table([make_run(tmp_path / "lone", metrics=["deletion"])], ["run"])
    assert lone.select(["headline"]) == lone  # nothing else to show
    for row, chosen in zip(table.rows, table.select(["deletion", "soundness_rank"]).rows, strict=True):
        assert chosen.cells == (row.cells[4], row.cells[0])


def test_a_number_alone_is_not_bold(run):
    """It would be clearly better than nothing."""
    results = run.results
    clear = {"soundness_rank": SimpleNamespace(outcome="clear", methods=("saliency",))}
    for names in (["saliency"], ["saliency", "random"]):
        some = changed(run, methods={name: results.methods[name] for name in names}, advice=clear)
        [first, *_] = results_table([some], ["run"]).rows
        assert first.cells[0].bold == (len(names) > 1)


def test_settings_say_on_what_the_numbers_depend(run):
    table = results_table([run], ["run"])
    text = describe_settings(run, table)
    assert text.startswith(
        "Soundness, completeness and calibration: 20 steps; soundness (paper): 12 levels, probability "
    )
    assert "up to 0." in text
    assert "ε = 0.01" in text
    assert describe_settings(run, table.select(["deletion"])).startswith("Deletion: ")
    assert describe_settings(run, table.select(["sparseness"])) == ""


RECORDS = {
    "gradcam": MethodRecord(method="gradcam"),
    "ig": MethodRecord(method="integrated_gradients", options={"steps": 16, "batch_size": 8, "sign": "positive"}),
    "ig_sg": MethodRecord(method="ig_sg", options={"steps": 32, "samples": 4, "batch_size": 128}),
    "saliency": MethodRecord(function="own", source="1234", options={"sign": "absolute"}),
    "lrp": MethodRecord(maps="5678"),
    "gone": MethodRecord(method="gone", options={"steps": 3}),
}


def test_a_cell_says_what_is_behind_its_number(run):
    def details(**numbers):
        curve = with_curve(run, "saliency", "soundness_rank", skill=Estimate(**numbers))
        table = results_table([curve], ["run"])
        [row] = [row for row in table.rows if row.method == "saliency"]
        return row.cells[1].details

    control = run.results.methods["saliency"].metrics["soundness_rank"].control.value
    start = f"skill +0.210{{}}, exchanged {control:.3f}"
    assert details(value=0.21, low=0.1, high=0.3, p=0.001, samples=30) == (
        start.format(" (+0.100 to +0.300): better than maps from other inputs") + ", p = 0.001, 30 samples"
    )
    assert "(−0.100 to +0.300): neither clearly better nor clearly worse than maps" in details(
        value=0.1, low=-0.1, high=0.3, samples=30
    )
    assert ": worse than maps from other inputs" in details(value=-0.2, low=-0.3, high=-0.1, samples=30)
    few = ", no interval and no p-value with fewer than 12 samples, 8 samples"
    assert details(value=0.21, samples=8) == start.format("") + few
    sparse = results_table([run], ["run"]).rows[0].cells[-1]
    assert sparse.details == f"{sparse.estimate.samples} samples have a value"


def test_the_line_below_the_table_says_where_intervals_are(run):
    table = results_table([run], ["run"]).select(["headline"])
    assert describe_columns(table).startswith("↑ more is better; below, 95% intervals. ")
    assert describe_columns(table, "inline").startswith("↑ more is better; in brackets, 95% intervals. ")
    assert describe_columns(table, "none").startswith("↑ more is better. ")
    few = run
    for method in run.methods:
        for metric in ("soundness_rank", "completeness_share"):
            few = with_curve(few, method, metric, area=Estimate(value=0.5, samples=9))
    text = describe_columns(results_table([few], ["run"]).select(["headline"]))
    assert text.startswith("↑ more is better; no intervals with fewer than 10 samples. ")
    clear = changed(run, advice={"soundness_rank": SimpleNamespace(outcome="clear", methods=("saliency",))})
    assert describe_columns(results_table([clear], ["run"])).endswith(
        " Bold: clearly better than the baselines and all other methods with skill."
    )
    assert describe_columns(table).endswith(
        " Nothing is bold: no method is clearly better than the baselines and all other methods with skill."
    )


def test_a_difference_between_runs_says_how_sure_it_is(run):
    def details(quantity="area", paired=True, samples=(50, 50), **numbers):
        pair = RunPair(
            metric="soundness_rank",
            first="a",
            second="b",
            method="saliency",
            quantity=quantity,
            difference=Estimate(samples=min(samples), **numbers),
            p_alone=0.004,
            paired=paired,
            samples=samples,
            higher_is_better=True,
        )
        [row] = differences_table([pair], [run.results]).rows
        return row.cells[0].details

    assert details(value=0.1, low=0.05, high=0.15, p=0.01) == "p = 0.010, by itself 0.004, 50 samples, paired"
    few = details(value=0.1, paired=False, samples=(9, 30))
    assert few == "no interval and no p-value with fewer than 10 samples, 9 and 30 independent samples"
    assert details("skill", value=0.1, samples=(11, 11)).startswith("no interval and no p-value with fewer than 12 sam")
    assert details(value=0.1) == "without an interval, 50 samples, paired"


def test_titles_and_options_of_methods():
    results = SimpleNamespace(best_first=lambda: list(RECORDS))
    run = SimpleNamespace(manifest=SimpleNamespace(methods=RECORDS), results=results)
    titles = {name: method_title(run, name) for name in [*RECORDS, "not there"]}
    assert titles == {name: {"gradcam": "GradCAM", "ig_sg": "IG-SG"}.get(name, name) for name in titles}
    options = {name: own for name in RECORDS if (own := method_options(run, name))}
    assert options == {
        "ig": {"steps": 16},
        "ig_sg": {"samples": 4},
        "saliency": {"sign": "absolute"},
        "gone": {"steps": 3},
    }
    assert method_options(run, "not there") == {}
    listed = "Options: ig steps 16; IG-SG samples 4; saliency sign absolute; gone steps 3."
    assert describe_options(run, {"ig_sg": "IG-SG"}) == listed


def test_default_options_are_not_mentioned(run):
    assert describe_options(run) == ""
