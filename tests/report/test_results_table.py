"""The results table as values: what its columns say about chance."""

import dataclasses

from tests.report.runs import changed
from twinlens.report.results_table import describe_columns, results_table


def test_columns_have_the_chance_level_of_their_metric(paired):
    columns = {column.key: column.chance for column in results_table([paired], ["run"]).columns}
    assert {key for key, chance in columns.items() if chance is not None} == {"soundness_rank", "completeness_share"}
    assert columns["soundness_rank"] == columns["completeness_share"] == 0.5


def test_the_line_below_the_table_names_chance_where_it_is_known(paired):
    text = describe_columns(paired.results)
    assert "By chance: soundness" in text
    assert text.count(" 0.5") == 2
    asked = paired.results.settings
    paper = dataclasses.replace(asked, metrics={"completeness": asked.metrics["completeness"]})
    assert "chance" not in describe_columns(changed(paired, settings=paper).results)
