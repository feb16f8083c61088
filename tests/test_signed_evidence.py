"""Signed maps: positive values are judged as evidence for the target, negative values as evidence against it."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import twinlens as tl
from tests.small_runs import CountingModel, contents, samples
from tests.tiny import image_folder, model_file, tiny_model
from twinlens.cli.main import main
from twinlens.probing.maps import negative_share
from twinlens.report.run_summary import describe_run
from twinlens.run import job_array

N, F = 40, 60
DRAW = torch.Generator().manual_seed(0)
WEIGHTS = torch.zeros(N, F, dtype=torch.float64)
for row in WEIGHTS:  # three features for the target, three against it: one step each
    chosen = torch.randperm(F, generator=DRAW)[:6]
    row[chosen] = torch.tensor([3.0, 2.5, 2.0, -2.0, -2.5, -3.0], dtype=torch.float64)
INPUTS = WEIGHTS.clone()
ZERO = {"imputer": tl.ConstantImputer(0.0), "sign": "signed"}
AGAINST = ["soundness_rank_against", "completeness_share_against"]
QUICK = {"batch_size": 16, "threads": 1, "memory_format": "contiguous", "shard_size": 4, "resamples": 50}
QUICK |= {"imputer": {"name": "constant", "value": 0.1}, "progress": False}


def linear(x):
    """Two classes whose log-odds are the sum of the features."""
    total = x.sum(dim=1)
    return torch.stack([torch.zeros_like(total), total], dim=1)


def scores(maps, evidence, *, model=linear, inputs=INPUTS, labels=None, **options):
    """Soundness as a rank and completeness as a share of each sample, (2, N)."""
    labels = [1] * len(inputs) if labels is None else labels
    how = {**ZERO, "evidence": evidence, **options}
    curves = [
        tl.soundness(model, inputs, labels, maps, estimator="rank", **how),
        tl.completeness(model, inputs, labels, maps, estimator="share", **how),
    ]
    return np.stack([curve.area_per_sample() for curve in curves])


def with_negatives(values):
    """The exact map with other negative values, at features that it does not mark as positive."""
    return torch.where(WEIGHTS > 0, WEIGHTS, values.to(WEIGHTS))


RANDOM = torch.rand(N, F, generator=DRAW)
MIXED = torch.randn(N, F, generator=DRAW, dtype=torch.float64)


def test_an_exact_signed_map_is_sound_and_complete_in_both_parts():
    for evidence in ("for", "against"):
        assert np.allclose(scores(WEIGHTS, evidence)[0], 1)
        assert np.allclose(scores(WEIGHTS, evidence)[1], 0.975, atol=0.01)  # half of the first step is missed


def test_wrong_negatives_fall_in_the_evidence_against_alone():
    useless = with_negatives(-RANDOM * (WEIGHTS == 0))
    assert np.array_equal(scores(useless, "for"), scores(WEIGHTS, "for"))
    assert scores(useless, "against")[0].mean() == pytest.approx(0.5, abs=0.03)
    assert scores(useless, "against")[1].max() < 0.1  # the features that count come last


def test_random_negatives_are_near_chance_and_uniform_ones_are_chance():
    sound, complete = scores(-RANDOM, "against")
    assert sound.mean() == pytest.approx(0.5, abs=0.03)
    assert complete.mean() == pytest.approx(0.5, abs=0.1)
    assert np.allclose(scores(-torch.ones(N, F), "against")[0], 0.5, rtol=0, atol=1e-12)


@pytest.mark.parametrize("segments", [None, torch.arange(F).expand(N, -1) // 4])
def test_evidence_against_a_class_is_evidence_for_the_other_class(segments):
    inputs = torch.randn(N, F, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    against = scores(MIXED, "against", inputs=inputs, segments=segments)
    mirrored = scores(-MIXED, "for", inputs=inputs, labels=[0] * N, segments=segments)
    assert np.allclose(against, mirrored, equal_nan=True)
    assert not np.allclose(against, scores(MIXED, "for", inputs=inputs, segments=segments), equal_nan=True)


def test_the_positive_part_is_what_dropping_negatives_leaves():
    assert np.array_equal(scores(MIXED, "for"), scores(MIXED, "for", sign="positive"))
    paper = [
        tl.road(linear, INPUTS, [1] * N, MIXED, imputer=ZERO["imputer"], sign=sign) for sign in ("signed", "positive")
    ]
    assert np.array_equal(paper[0].values, paper[1].values)


def test_a_model_that_only_lowers_has_evidence_against_alone():
    inputs = INPUTS.abs()
    own = {"model": lambda x: linear(-x), "inputs": inputs}
    sound, complete = scores(-inputs, "against", **own)
    assert sound.mean() > 0.9
    assert complete.mean() > 0.9
    assert np.isnan(scores(inputs, "for", **own)[1]).all()  # nothing speaks for the target


def test_calibration_of_negative_values():
    inputs = torch.randn(N, F, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def distance(maps):
        metric = tl.Calibration(evidence="against", imputer=ZERO["imputer"])
        return tl.metrics.measure_metric(metric, linear, inputs, [1] * N, maps, sign="signed")

    exact, wrong = distance(inputs), distance(torch.where(inputs > 0, inputs, inputs**3))
    assert exact.area() < 0.02
    assert wrong.area() > 0.1
    assert not exact.higher_is_better


def test_samples_without_negative_values_are_left_out():
    maps = MIXED.clone()
    maps[3] = maps[3].abs()
    assert np.isnan(scores(maps, "against")).any(axis=0).nonzero()[0].tolist() == [3]
    with pytest.warns(UserWarning, match="`maps` have no negative values for all 40 samples"):
        tl.soundness(linear, INPUTS, [1] * N, MIXED.abs(), estimator="rank", evidence="against", **ZERO)


def test_requests_that_cannot_be_met_are_refused():
    with pytest.raises(
        ValueError, match="`sign` must be 'signed' to judge evidence against the target; got 'positive'"
    ):
        scores(MIXED, "against", sign="positive")
    with pytest.raises(ValueError, match="`evidence` 'against' belongs to the estimators 'rank' and 'share'"):
        tl.Soundness(evidence="against")
    both = [
        tl.probe(linear, INPUTS, [1] * N, MIXED, schedule=sweep.schedule, **ZERO)
        for metric, k in ((tl.METRICS["soundness_rank"], 0), (tl.METRICS[AGAINST[0]], 1))
        for sweep in [metric.sweeps(F)[k]]
    ]
    with pytest.raises(ValueError, match="`opposite` must hold the same samples as the table"):
        tl.METRICS["soundness_rank"].read(both)


def test_a_regression_model():
    labels = INPUTS.sum(dim=1).numpy()
    own = {"model": lambda x: x.sum(dim=1, keepdim=True), "labels": labels}
    assert np.allclose(scores(WEIGHTS, "against", **own)[0], 1)


class Classifier(nn.Module):
    """Adds up what each token says for one of two classes."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embeddings, self.head = nn.Embedding(12, 6), nn.Linear(6, 2)

    def forward(self, input_ids):
        return self.head(self.embeddings(input_ids).tanh().sum(dim=1))


def test_tokens():
    model, ids = Classifier().eval(), torch.randint(1, 12, (10, 8), generator=torch.manual_seed(0))
    labels = model(ids).argmax(dim=1)
    how = {"metrics": "headline", "sign": "signed", "imputer": tl.TokenImputer(0), "progress": False}
    evaluation = tl.evaluate(model, (ids, labels), ["integrated_gradients"], **how)
    values = evaluation.summary().set_index("metric")["value"]
    assert list(values.index) == ["soundness_rank", "completeness_share", *AGAINST]
    assert (values > 0.55).all()


def test_the_signs_of_methods():
    inputs, targets = (torch.from_numpy(each) for each in samples())
    for name in tl.METHODS:
        if name in ("iba", "inputiba", "extremal_perturbation", "cam") or "attention" in name:
            continue  # slow, or for other networks
        try:
            plain = tl.attribute(tiny_model(), inputs, targets, name)
        except ValueError:
            continue  # it does not explain this network
        signed = tl.attribute(tiny_model(), inputs, targets, name, sign="signed")
        assert torch.equal(plain, signed.clamp(min=0)), name
    assert (tl.attribute(tiny_model(), inputs, targets, "integrated_gradients", sign="signed") < 0).any()


def test_the_negative_share_of_maps():
    maps = torch.tensor([[3.0, -1.0], [0.0, 0.0], [2.0, 1.0]])
    assert negative_share(maps).tolist() == pytest.approx([0.25, np.nan, 0.0], nan_ok=True)


METHODS = {"ig": "integrated_gradients", "saliency": "saliency", "own": lambda model, x, y: x.sum(dim=1)}


def evaluated(out, sign="signed", methods=METHODS, model=None, **options):
    return tl.evaluate(model or tiny_model(), samples(), methods, out=out, sign=sign, **{**QUICK, **options})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return evaluated(tmp_path_factory.mktemp("signed") / "run")


def test_a_run_judges_both_parts(whole, tmp_path):
    summary = whole.summary().set_index(["method", "metric"])
    dropped = evaluated(tmp_path / "run", sign="positive").summary().set_index(["method", "metric"])
    assert list(summary.loc["ig"].index) == [*dropped.loc["ig"].index, *AGAINST]
    assert summary.drop(AGAINST, level=1).equals(dropped)
    ids, (inputs, labels) = whole.ids(), samples()
    how = {"imputer": tl.ConstantImputer(0.1), "ids": ids, "sign": "signed", "batch_size": 16}
    for method in ("ig", "own"):
        maps = whole.maps(method, signed=True)
        assert (maps < 0).any()
        assert torch.equal(whole.maps(method), maps.clamp(min=0))
        direct = tl.soundness(tiny_model(), inputs, labels, maps, estimator="rank", evidence="against", **how)
        assert summary.loc[method, AGAINST[0]].value == pytest.approx(direct.area(), abs=1e-4)
    assert summary.loc[(["ig", "own"], AGAINST), "skill"].notna().all()
    assert whole.results.sides == ("soundness_rank", "completeness_share")


def test_methods_without_negative_values_have_no_evidence_against(whole, tmp_path):
    summary = whole.summary().set_index(["method", "metric"])
    assert summary.loc[("saliency", AGAINST), "value"].isna().all()
    assert any(
        text == "saliency: no negative values to judge; soundness (against) and completeness (against) are undefined."
        for text in whole.results.warnings
    )
    calls = []
    for sign in ("positive", "signed"):
        model = CountingModel()
        evaluated(tmp_path / sign, sign, {"saliency": "saliency"}, model, metrics="headline")
        calls.append(model.inputs)
    assert calls[0] == calls[1]  # nothing is ranked, and the model is not called


def test_the_page_tells_what_was_done_with_negative_values(whole, tmp_path):
    negative = {method["name"]: method["about"]["negative"] for method in describe_run(whole, "run")["methods"]}
    for name in ("ig", "own"):
        assert re.fullmatch(r"judged as evidence against, [0-9.]+% of all attribution", negative[name])
    assert negative["saliency"] == "none"
    inputs, _ = samples()
    own = {"mine": {"maps": inputs.sum(axis=1), "sign": "absolute"}}
    other = evaluated(tmp_path / "run", "error", {"ig": "integrated_gradients"}, maps=own, metrics="headline")
    said = {name: method.negative for name, method in other.results.methods.items()}
    share = whole.results.methods["ig"].properties["negative"].value
    assert said["ig"] == f"dropped, {share:.1%} of all attribution"
    assert said["mine"].startswith("taken as magnitudes, ")
    stored = json.loads((tmp_path / "run" / "results.json").read_text())["methods"]
    assert [stored[name]["sign"] for name in said] == ["positive", "absolute"]


def test_stored_maps_alone_may_be_signed(tmp_path):
    inputs, _ = samples()
    maps = {"mine": {"maps": inputs.sum(axis=1), "sign": "signed"}}
    run = evaluated(tmp_path, "error", ["random"], maps=maps, metrics=["against"])
    values = run.summary().set_index(["method", "metric"])["value"]
    assert values["mine"].notna().all()
    assert values["random"].isna().all()


def test_interrupted_runs_shards_and_jobs_end_with_the_same_bytes(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(job_array, "_PATIENCE", -1.0)
    monkeypatch.setattr(job_array, "_UNITS_OF_PATIENCE", 0.0)
    expected, methods = contents(whole.path), {**METHODS, "own": METHODS["own"]}
    for number in (1, 2, 1):
        evaluated(tmp_path / "jobs", methods=methods, part=f"{number}/2")
    assert contents(tmp_path / "jobs") == expected
    evaluated(tmp_path / "jobs")
    lost = [name for name in expected if re.search(r"negative/00001|ig/00000|results", name)]
    assert len(lost) > 5
    for name in lost:
        (tmp_path / "jobs" / name).unlink()
    evaluated(tmp_path / "jobs")
    assert contents(tmp_path / "jobs") == expected
    shards = evaluated(tmp_path / "shards", shard_size=7)
    assert shards.summary().equals(whole.summary())


def test_maps_whose_negatives_were_dropped_cannot_be_judged_later(tmp_path):
    evaluated(tmp_path, "positive", ["saliency"], metrics="headline")
    with pytest.raises(tl.RunError, match=r"methods\.saliency\.options\.sign is None there and 'signed' here"):
        evaluated(tmp_path, "signed", ["saliency"], metrics="headline")


def test_tables_of_the_positive_part_are_written_as_before(whole):
    table = whole.curve("ig", "soundness_rank").table
    assert "part" not in table.settings.described()["schedule"]
    against = whole.curve("ig", AGAINST[0]).table
    assert against.settings.schedule.part == "negative"
    assert tl.ProbeTable.from_bytes(against.to_bytes()) == against
    assert dataclasses.replace(against, settings=table.settings) != against


def test_the_command_line(tmp_path, capsys):
    torch.manual_seed(0)
    arguments = ["--model", model_file(tmp_path), "--data", image_folder(tmp_path / "images"), "--batch-size", "16"]
    arguments += ["--methods", "integrated_gradients,gradcam", "--metrics", "headline", "--sign", "signed", "--quiet"]
    assert main(["evaluate", *arguments, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run"), "--table", "markdown", "--columns", "all"]) == 0
    heads, _, *rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    column = [head.strip() for head in heads].index("soundness (against) ↑")
    cells = {row[1].strip(): row[column].strip() for row in rows}
    assert cells.pop("GradCAM") == "–"
    assert all(re.search(r"0\.\d", cell) for cell in cells.values())


def test_features_are_judged_false_by_the_evidence_for_the_target(whole):
    assert whole.curve("ig", "soundness_rank").false_share is not None
    assert whole.curve("ig", AGAINST[0]).false_share is None
