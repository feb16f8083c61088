"""The commands methods and metrics."""

import twinlens as tl


def test_methods_are_listed_and_described(run):
    code, output, _ = run("methods")
    assert code == 0
    for name in ("extremal_perturbation", "input_iba", "road_lerf"):
        assert name in output
    code, output, _ = run("methods", "rise")
    assert code == 0
    assert "masks=4000" in output
    code, _, error = run("methods", "raise")
    assert code == 2
    assert "got 'raise'" in error
    code, output, _ = run("methods", "soundness")
    assert code == 0
    assert "epsilon: A step that gains less performance than this adds false attribution. (0.01)" in output


def test_metrics_are_listed_and_described(run):
    code, output, _ = run("metrics")
    assert code == 0
    assert all(name in output for name in tl.METRICS)
    assert "gradcam" not in output
    assert "twinlens metrics NAME" in output
    code, output, _ = run("metrics", "insertion")
    assert code == 0
    assert "into a blurred input first; less is better.\n\nOptions, as in --option insertion.KEY=VALUE:\n" in output
    assert "  levels: Shares of features still blurred, increasing. (0.1, 0.2" in output
    assert run("methods", "insertion") == (0, output, "")
    code, _, error = run("metrics", "gradcam")
    assert code == 2
    assert "`name` must be one of soundness_rank, " in error


def test_a_method_is_described_line_by_line(run):
    code, output, _ = run("methods", "occlusion")
    assert code == 0
    assert "\n\nArgs:\n    model: a module that returns logits" in output
    assert "\\n" not in output
