"""Results as they come: `on_result` receives every one, and its errors change nothing."""

import pytest

from tests.growing_runs import METHODS, OPTIONS, run
from tests.small_runs import contents


def test_every_result_of_every_round_is_received():
    received = []
    evaluation = run(0.06, on_result=received.append)
    final = [result for result in received if result.final]
    assert [(result.method, result.metric) for result in final] == [(m, k) for m in METHODS for k in OPTIONS["metrics"]]
    for result in final:
        curve = evaluation.results.methods[result.method].metrics[result.metric]
        assert (result.estimate, result.control, result.skill) == (curve.area, curve.control, curve.skill)
        assert result.samples == 128
        row = evaluation.summary().set_index(["method", "metric"]).loc[(result.method, result.metric)]
        assert result.numbers() == row.dropna().to_dict()
    before = [result for result in received if not result.final]
    assert received == before + final
    looks = [(result.samples, result.method, result.metric) for result in before]
    assert looks == [(samples, m, k) for samples in (64, 128) for m in METHODS for k in OPTIONS["metrics"]]
    assert before[0].skill.value > 0


def test_a_run_that_is_complete_hands_over_its_results_again(tmp_path):
    received = []
    run(None, tmp_path / "run", limit=64)
    run(None, tmp_path / "run", limit=64, on_result=received.append)
    assert [result.final for result in received] == [True] * 6


def test_an_error_in_it_is_a_warning_and_changes_no_byte(tmp_path):
    calls = []

    def failing(result):
        calls.append(result)
        if len(calls) == 2:
            raise ConnectionError("no server\nat all")

    run(None, tmp_path / "one", limit=64)
    with pytest.warns(UserWarning, match="`on_result` failed for good by completeness.*ConnectionError: no server$"):
        run(None, tmp_path / "two", limit=64, on_result=failing)
    assert len(calls) == 2
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_it_must_be_a_function():
    with pytest.raises(TypeError, match="`on_result` must be a function"):
        run(None, limit=64, on_result="print")
