"""Flags and run.toml: every option, read and refused by its name."""

import argparse
import json

import pytest

import twinlens as tl
from tests.tiny import read_results
from twinlens.cli.flags import read_arguments, read_flag, split_option
from twinlens.cli.main import main
from twinlens.metrics.catalogue import find_metrics
from twinlens.options import Options
from twinlens.support.fields import fields_of


def test_the_same_as_a_file(tmp_path, run, subject):
    config = tmp_path / "run.toml"
    config.write_text(
        f"""
        model = "{subject[1]}"
        data = "{subject[3]}"
        metrics = ["deletion"]
        batch_size = "auto"
        limit = 6
        out = "{tmp_path / "run"}"
        [preprocessing]
        resize = 8
        [methods.few_steps]
        method = "integrated_gradients"
        steps = 4
        [methods.random]
        """
    )
    code, output, _ = run("evaluate", config, "--metrics", "road_morf", "--json", "--mean", "0.1,0.2,0.3")
    assert code == 0
    summary = json.loads(output)
    assert summary["samples"] == 6
    assert list(summary["areas"]) == ["few_steps", "random"]
    assert list(summary["areas"]["random"]) == ["road_morf"]
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["methods"]["few_steps"]["options"] == {"steps": 4}
    assert (manifest["model"]["preprocessing"]["resize"], manifest["model"]["preprocessing"]["mean"]) == (
        8,
        [0.1, 0.2, 0.3],
    )


def test_metrics_in_a_file(tmp_path, run, subject):
    config = tmp_path / "run.toml"
    config.write_text(
        f"""
        model = "{subject[1]}"
        data = "{subject[3]}"
        methods = "random"
        out = "{tmp_path / "run"}"
        batch_size = 16
        shard_size = 5
        [imputer]
        name = "constant"
        value = 0.5
        [metrics.mine]
        metric = "soundness"
        epsilon = 0.02
        levels = [0.9, 0.1]
        [metrics.completeness]
        """
    )
    code, _, error = run("evaluate", config, "--quiet")
    assert (code, error) == (0, "")
    settings = read_results(tmp_path / "run")["settings"]
    assert list(settings["metrics"]) == ["mine", "completeness"]
    assert settings["metrics"]["mine"]["epsilon"] == 0.02
    assert settings["imputer"] == {"name": "constant", "value": 0.5}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["execution"]["shard_size"] == 5


def test_a_config_with_an_unknown_option(tmp_path, run):
    (tmp_path / "run.toml").write_text("modle = 'x'")
    code, _, error = run("evaluate", tmp_path / "run.toml")
    assert code == 2
    assert "`option` must be one of model, data, methods, weights" in error
    (tmp_path / "run.toml").write_text("model = ")
    code, _, error = run("evaluate", tmp_path / "run.toml")
    assert code == 2
    assert "is not a valid TOML file" in error


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('skip_bad = "no"', "`skip_bad` must be true or false; got 'no'."),
        ("limit = true", "`limit` must be a whole number; got True."),
        ("batch_size = 1.5", "`batch_size` must be a whole number; got 1.5."),
        ('epsilon = "x"', "`epsilon` must be a number; got 'x'."),
        ("maps = 3", "`maps` must be a table; got 3."),
        ("epsilon = -1", "`epsilon` must be >= 0, such as 0.01; got -1.0."),
        ('performance = "acc"', "`performance` must be one of accuracy"),
        ("model = 3", "`model` must be text; got 3."),
        ('sign = "absolut"', "Did you mean 'absolute'?"),
        ('[methods.gradcam]\nlayr = "x"', "`layr` is no option of gradcam; its options are"),
        ('metrics = "completenes"', "Did you mean 'completeness'?"),
        ('[metrics.mine]\nmetric = "soundness"\nepsilon = "x"', "`epsilon` must be a number; got 'x'."),
        ('show = ["nobody"]', "`show` must hold ids of samples of this run, such as 'ant/0.png'; got 'nobody'"),
    ],
)
def test_wrong_values_in_a_file_are_refused_by_name(tmp_path, run, subject, line, message):
    head = f'out = "{tmp_path / "run"}"\n' + ("" if "model" in line else f'model = "{subject[1]}"\n')
    (tmp_path / "run.toml").write_text(f'{head}data = "{subject[3]}"\n{line}\n')
    code, output, error = run("evaluate", tmp_path / "run.toml")
    assert (code, output) == (2, "")
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_one_name_stands_for_a_list(tmp_path, run, subject):
    (tmp_path / "run.toml").write_text('metrics = "completeness"\nmethods = "random"\n')
    code, _, error = run("evaluate", tmp_path / "run.toml", *subject, "--out", tmp_path / "run", "--quiet")
    assert (code, error) == (0, "")
    assert list(read_results(tmp_path / "run")["methods"]["random"]["metrics"]) == ["completeness"]


def test_all_stands_for_every_method():
    namespace = argparse.Namespace(methods="all")
    assert read_arguments(namespace)["methods"] == list(tl.METHODS)


def test_every_option_is_a_flag_and_a_key(capsys):

    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    output = " ".join(capsys.readouterr().out.split())
    for field in fields_of(Options):
        if field.name not in ("on_result", "preprocessing", "progress", "target", "tokenizer"):
            assert f"--{field.name.replace('_', '-')}" in output
            assert " ".join(field.help.rstrip(".").split()[:4]) in output
    for flag in ("--resize", "--crop", "--mean", "--std", "--compile", "--imputer", "--sign", "--channels"):
        assert flag in output


def test_options_reach_the_metrics_of_a_group(tmp_path):
    def metrics(*options, config=None, **flags):
        return Options(**read_arguments(argparse.Namespace(option=options, config=config, **flags))).metric_values

    usual = Options().metric_values
    changed = metrics("soundness.epsilon=0.02", "road_gain.levels=[0.5]")
    assert list(changed) == list(usual)
    assert changed["soundness"] == tl.Soundness(steps=20, epsilon=0.02)
    assert changed["road_gain"] == tl.RoadGain(levels=(0.5,))
    assert all(changed[name] == usual[name] for name in usual if name not in ("soundness", "road_gain"))
    assert metrics("soundness.epsilon=0.02", metrics="paper")["soundness"] == tl.Soundness(epsilon=0.02)
    pair = metrics("soundness_rank.steps=10", metrics="headline,deletion")
    assert list(pair) == ["soundness_rank", "completeness_share", "deletion"]
    assert pair["soundness_rank"] == tl.Soundness(estimator="rank", steps=10)
    (tmp_path / "run.toml").write_text("[metrics.soundness_rank]\nsteps = 5\n")
    kept = metrics(config=tmp_path / "run.toml", metrics="headline")
    assert kept == {**find_metrics("headline"), "soundness_rank": tl.Soundness(estimator="rank", steps=5)}
    with pytest.raises(ValueError, match="'soundness' is not among the metrics; add it to --metrics"):
        metrics("soundness.epsilon=0.02", metrics="headline")


def test_text_becomes_what_an_option_takes():
    limit = next(field for field in fields_of(Options) if field.name == "limit")
    assert [read_flag(text, limit) for text in ("5", "five", "auto")] == [5, "five", None]
    assert split_option("occlusion.window=7") == ("occlusion", "window", 7)
    assert split_option("soundness.performance=probability") == ("soundness", "performance", "probability")
