"""Pictures of what soundness judged false."""

import csv

import numpy as np
import pytest
import torch
from PIL import Image

import twinlens as tl
from tests.small_runs import make_run
from tests.tiny import image_folder, model_file, tiny_model
from twinlens.cli.main import main
from twinlens.report import write_false_features
from twinlens.report.false_features import file_names

QUICK = {"batch_size": 16, "memory_format": "contiguous", "resamples": 50}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run on twelve images in three shards, with the headline and the paper's soundness."""
    folder = tmp_path_factory.mktemp("false")
    metrics = ["headline", tl.Soundness(levels=(0.9, 0.5, 0.1), epsilon=0.2, performance="probability")]
    return tl.evaluate(
        model_file(folder), image_folder(folder / "images"), ["saliency", "random"], metrics=metrics,
        out=folder / "run", shard_size=5, **QUICK,
    )  # fmt: skip


@pytest.mark.parametrize("metric", [None, "soundness"])
def test_pictures_are_the_false_features_of_the_curve(made, tmp_path, metric):
    paths = write_false_features(made, tmp_path / "masks", metric=metric)
    assert len(paths) == 24
    with (tmp_path / "masks" / "index.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [tmp_path / "masks" / row["file"] for row in rows] == paths
    for method in ("saliency", "random"):
        expected = made.curve(method, metric or "soundness_rank").false_features(made.maps(method)).numpy()
        assert expected.any()
        assert not expected.all()
        for name, false in zip(made.ids(), expected, strict=True):
            [file] = [row["file"] for row in rows if (row["id"], row["method"]) == (name, method)]
            with Image.open(tmp_path / "masks" / file) as picture:
                assert picture.mode == "L"
                assert np.array_equal(np.asarray(picture), np.where(false, 255, 0))


def test_the_command(made, tmp_path, capsys):
    masks = tmp_path / "masks"
    assert main(["report", str(made.path), "--false-features", str(masks)]) == 0
    assert capsys.readouterr().out == f"24 pictures in {masks}\n"
    assert (masks / "saliency" / "ant-0.png").exists()
    assert main(["report", str(made.path), str(made.path), "--false-features", str(tmp_path / "both")]) == 0
    assert len(list((tmp_path / "both").iterdir())) == 2
    (tmp_path / "file").write_text("")
    assert main(["report", str(made.path), "--false-features", str(tmp_path / "file")]) == 2
    assert "`false_features`" in capsys.readouterr().err


def test_runs_without_such_pictures(made, tmp_path, capsys):
    with pytest.raises(ValueError, match=r"`metric` must be one of soundness_rank, soundness; got 'completeness'"):
        write_false_features(made, tmp_path, metric="completeness")
    with pytest.raises(ValueError, match=r"`evaluation` must have a measure of soundness, .* has deletion\. Evaluate"):
        write_false_features(make_run(tmp_path / "deletion"), tmp_path / "masks")
    assert main(["report", str(tmp_path / "deletion"), "--false-features", str(tmp_path / "masks")]) == 2
    assert "error: `false_features`: " in capsys.readouterr().err
    rows = tl.evaluate(
        torch.nn.Linear(5, 3), (torch.randn(6, 5), [0, 1, 2] * 2), ["saliency"], metrics=["soundness_rank"],
        out=tmp_path / "rows", **QUICK,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"must be of images; its maps have shape \(5,\)\. In Python, use"):
        write_false_features(rows, tmp_path / "masks")
    parts = tl.evaluate(
        tiny_model(), (np.random.default_rng(0).random((4, 3, 8, 8), np.float32), [0, 1, 2, 0]), ["saliency"],
        metrics=["soundness_rank"], segments="grid:4", out=tmp_path / "parts", **QUICK,
    )  # fmt: skip
    with pytest.raises(ValueError, match="has segments as features"):
        write_false_features(parts, tmp_path / "masks")
    assert not (tmp_path / "masks").exists()


def test_names_of_files_are_safe_and_differ():
    ids = ["a/b.jpg", "a-b", "A/B.png", "../../etc/passwd", "..", "", "x" * 400, "é ü", "n01/ILSVRC_1.JPEG", "C:\\con"]
    names = file_names(ids)
    assert len({name.lower() for name in names}) == len(ids)
    for name in names:
        assert 0 < len(name) < 200
        assert not name.startswith((".", "-"))
        assert "/" not in name
        assert "\\" not in name
    assert names[8] == "n01-ILSVRC_1"
    assert file_names(ids[:1]) == ["a-b"]
    assert file_names(ids)[0] == file_names([*ids, "another"])[0]
