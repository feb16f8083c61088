import math

import pytest

import twinlens as tl
from tests.small_runs import OPTIONS, samples
from tests.tiny import tiny_model
from twinlens.evaluation import evaluate
from twinlens.options import Job, Options, Until

HUGE, NAN, INFINITE = 10**30, math.nan, math.inf


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("threads", [-1, 0, HUGE, NAN]),
        ("resamples", [-1, 0, 10**15, INFINITE]),
        ("workers", [0, HUGE]),
        ("batch_size", [0, HUGE, 1.5]),
        ("shard_size", [0, HUGE]),
        ("limit", [0, HUGE, "x", True]),
        ("seed", [INFINITE, NAN, 1.5]),
        ("epsilon", [NAN, INFINITE, -1, "x"]),
        ("levels", [[NAN], [0.5, INFINITE], "x", (0.2, 0.5)]),
        ("control_share", [0, 1.5, NAN]),
        ("skip_bad", ["no", 1]),
        ("allow_code", [1]),
        ("maps", [3]),
        ("part", ["0/4", "5/4", "3", "1/2/3", "-1/4", "1/0", "1/" + "9" * 5000, 3]),
        ("out", ["s3://", "\0"]),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name, values):
    for value in values:
        with pytest.raises((ValueError, TypeError), match=f"`{name}` must ") as raised:
            Options(**{"out": "run", name: value})
        assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ["rode_morf"]}, "`metrics` must be one of soundness_rank, .*; got 'rode_morf'. .*'road_morf'"),
        ({"metrics": "completenes"}, "`metrics` must be one of .*; got 'completenes'. Did you mean 'completeness'"),
        (
            {"metrics": {"mine": {"metric": "soundness", "epsilom": 1}}},
            "`metrics.mine` must be one of performance, .*'epsilom'",
        ),
        ({"engine": "steam"}, "`engine` must be one of local, ray; got 'steam'"),
        ({"performance": "acuracy"}, "`performance` must be one of accuracy, .*; got 'acuracy'. .*'accuracy'"),
        ({"imputer": "liner"}, "`imputer` must be one of linear, .*; got 'liner'. Did you mean 'linear'"),
        ({"levels": (0.2, 0.5)}, "`levels` must decrease within .*; got 0.2 then 0.5. Sort them in descending order"),
        ({"part": "0/4"}, r"`part` must be K/N with 1 <= K <= N, such as 3/16; got '0/4'\."),
        (
            {"part": "1/2", "engine": "ray", "out": "run"},
            "`part` belongs to engine 'local', and `engine` is 'ray'. Leave one of them out",
        ),
        ({"part": "1/2"}, "`part` needs `out`, a directory that all jobs of the run share; got none"),
        ({"address": "auto"}, "`address` belongs to engine 'ray', and `engine` is 'local'"),
    ],
)
def test_a_remedy_is_named(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Options(**options)


def test_an_unknown_option_is_refused_before_any_work(tmp_path):
    with pytest.raises(TypeError, match=r"`options` must be one of .*; got 'epsilom'. Did you mean 'epsilon'"):
        evaluate(tiny_model(), samples(), out=tmp_path / "run", epsilom=0.1, **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_metrics_are_resolved_once(monkeypatch):
    options = Options(metrics=["soundness", tl.Completeness(relative=False)], epsilon=0.2)
    assert options.metric_values is options.metric_values
    assert [metric.epsilon for metric in options.metric_values.values() if isinstance(metric, tl.Soundness)] == [0.2]


def test_jobs_and_stopping_rules_print_as_they_are_written():
    assert str(Job.read("3/16")) == "3/16"
    assert [str(Until.read(rule)) for rule in (0.02, "0.02", "decided", "decided:0.05")] == [
        "0.02", "0.02", "decided:0.02", "decided:0.05"
    ]  # fmt: skip
