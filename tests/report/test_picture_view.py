"""Volumes on the page: every slice in one picture, in which it is found again."""

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.report.kinds import volume_run
from tests.report.runs import decoded
from twinlens.report.explorer import describe_samples
from twinlens.report.picture_view import _mosaic
from twinlens.report.scene import set_scene


def tile(sheet, view, place):
    """One slice of a sheet, without its border."""
    (height, width), across = view["shape"], view["across"]
    top, left = place // across * (height + 2) + 1, place % across * (width + 2) + 1
    return decoded(sheet)[top : top + height, left : left + width]


def test_every_slice_is_found_in_its_sheet(tmp_path):
    evaluation = volume_run(tmp_path / "run")
    shown, scene = describe_samples(evaluation, budget=10**6), set_scene(evaluation)
    assert shown["kind"] == "volume"
    for place, sample in enumerate(shown["samples"]):
        view, volume = sample["input"], scene.selected.inputs[place, 0]
        assert (view["numbers"], view["of"], view["shape"], view["across"]) == ([*range(6)], 6, [5, 4], 3)
        assert view["start"] == int(scene.density(place).sum(dim=(1, 2)).argmax())
        grey = 255 * (volume - volume.min()) / (volume.max() - volume.min())
        keep = scene.keep_at_levels(place, "random")
        frames = scene.impute_at_levels(place, keep)
        zero = float(255 * -volume.min() / (volume.max() - volume.min()))
        for number in range(6):
            np.testing.assert_allclose(tile(view["sheet"], view, number)[..., 0], grey[number], atol=0.51)
            for k, sheet in enumerate(sample["methods"]["random"]["view"]["frames"]):
                expected = torch.where(keep[k, number], grey[number], zero)
                np.testing.assert_allclose(tile(sheet, view, number)[..., 0], expected, atol=0.51)
        assert frames.shape[1:] == (1, 6, 5, 4)
        # The map lies over the input: blue where it stands, orange where it was judged false.
        over = np.stack([tile(sample["methods"]["saliency"]["view"]["map"], view, n) for n in range(6)]).astype(int)
        values = scene.maps["saliency"][place]
        peak = np.unravel_index(int(values.argmax()), values.shape)
        false = bool(scene.false["saliency"][place][peak])
        assert over[peak].tolist() == ([230, 80, 0] if false else [0, 114, 178])


@pytest.mark.parametrize(("shape", "budget"), [((70, 9, 8), 10**6), ((40, 75, 45), 75_000)])
def test_large_volumes_keep_to_their_budget(tmp_path, shape, budget):
    evaluation = volume_run(
        tmp_path / "run", shape=shape, rows=2, channels=2, metrics=[tl.Soundness(estimator="rank", steps=2)]
    )
    shown = describe_samples(evaluation, budget=budget)
    view = shown["samples"][0]["input"]
    assert view["of"] == shape[0]
    assert len(view["numbers"]) <= 64
    assert (view["numbers"][0], view["numbers"][-1]) == (0, shape[0] - 1)
    assert 0 <= view["start"] < len(view["numbers"])
    methods = shown["samples"][0]["methods"].values()
    sizes = [len(view["sheet"]), *(len(uri) for m in methods for uri in (m["view"]["map"], *m["view"]["frames"]))]
    assert sum(sizes) <= budget // 2
    sheet = decoded(view["sheet"])
    assert sheet.shape[1] == view["across"] * (view["shape"][1] + 2)


def test_a_volume_of_four_axes_has_slices_as_well(tmp_path):
    scene = set_scene(volume_run(tmp_path / "run"))
    sheet = _mosaic(torch.arange(48.0).reshape(2, 3, 2, 4), numbers=torch.tensor([0, 5]), side=9)
    assert sheet[1, [1, 7]].tolist() == [0, 40]
    assert scene.kind == "volume"
