"""Signals on the page: lines per channel that can be read back, attribution, and what the model sees."""

import numpy as np
import pytest

from tests.report.kinds import signal_run, unpacked
from twinlens.report.explorer import describe_samples
from twinlens.report.scene import set_scene
from twinlens.report.signal_view import view_signal


def read(lines, ranges):
    """The numbers of some channels."""
    return np.stack(
        [low + unpacked(line) / 255 * (high - low) for line, (low, high) in zip(lines, ranges, strict=True)]
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return signal_run(tmp_path_factory.mktemp("signal") / "run", feature_names=["left", "right"], sampling_rate=20.0)


def test_lines_are_those_of_the_input_and_of_what_the_model_saw(run):
    shown, scene = describe_samples(run, budget=10**6), set_scene(run)
    assert (shown["kind"], shown["note"]) == ("signal", "")
    for place, sample in enumerate(shown["samples"]):
        view = sample["input"]
        assert (view["names"], view["steps"], view["rate"], view["of"]) == (["left", "right"], 40, 20.0, 2)
        np.testing.assert_allclose(read(view["lines"], view["ranges"]), scene.selected.inputs[place], atol=0.02)
        for method in ("saliency", "random"):
            shown, keep = sample["methods"][method]["view"], scene.keep_at_levels(place, method)
            frames = scene.impute_at_levels(place, keep)
            (marks,) = shown["marks"]
            for k, frame in enumerate(frames):
                np.testing.assert_allclose(read(shown["frames"][k], view["ranges"]), frame, atol=0.02)
                assert (unpacked(marks["stays"]) > k).tolist() == keep[k].tolist()
            own = scene.maps[method][place]
            assert unpacked(marks["strength"]).tolist() == pytest.approx((100 * own / own.max()).tolist(), abs=0.51)
            assert unpacked(marks["false"]).astype(bool).tolist() == scene.false[method][place].tolist()


def test_single_channels_have_their_own_attribution(tmp_path):
    evaluation = signal_run(tmp_path / "run", features="channels")
    scene = set_scene(evaluation)
    for place, sample in enumerate(describe_samples(evaluation, budget=10**6)["samples"]):
        for method in ("saliency", "random"):
            marks, keep = sample["methods"][method]["view"]["marks"], scene.keep_at_levels(place, method)
            own, false = scene.maps[method][place], scene.false[method][place]
            assert len(marks) == 2
            for channel, each in enumerate(marks):
                strength = (100 * own[channel] / own.max()).tolist()
                assert unpacked(each["strength"]).tolist() == pytest.approx(strength, abs=0.51)
                assert unpacked(each["false"]).astype(bool).tolist() == false[channel].tolist()
                assert unpacked(each["stays"]).tolist() == keep[:, channel].sum(dim=0).tolist()


def test_long_signals_keep_their_extremes_and_many_channels_are_counted(tmp_path):
    evaluation = signal_run(tmp_path / "run", steps=5000, channels=18)
    shown, scene = describe_samples(evaluation, budget=2_000_000), set_scene(evaluation)
    view, signal = shown["samples"][0]["input"], scene.selected.inputs[0]
    assert (len(view["lines"]), view["of"], view["names"][15]) == (16, 18, "channel 15")
    lines = read(view["lines"], view["ranges"])
    assert 60 <= lines.shape[1] <= 1000
    np.testing.assert_allclose(lines.max(axis=1), signal[:16].amax(dim=1), atol=0.05)
    np.testing.assert_allclose(lines.min(axis=1), signal[:16].amin(dim=1), atol=0.05)
    (marks,) = shown["samples"][0]["methods"]["saliency"]["view"]["marks"]
    strength = unpacked(marks["strength"])
    assert len(strength) == lines.shape[1] // 2
    peak = int(scene.maps["saliency"][0].argmax())
    assert strength[peak * len(strength) // 5000] == 100


def test_a_constant_channel_has_a_line(tmp_path):
    evaluation = signal_run(tmp_path / "run", rows=4)
    scene = set_scene(evaluation)
    scene.selected.inputs.zero_()
    object.__setattr__(scene, "imputer", None)
    view, marks = view_signal(scene, 0, 10**6)
    assert np.abs(read(view["lines"], view["ranges"])).max() < 0.01
    assert marks["random"]["frames"] is None
