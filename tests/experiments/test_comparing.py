import pytest

import twinlens as tl
from tests.experiments.watching import Watch
from twinlens.experiments import benchmark, ensembles


@pytest.mark.slow
def test_ensembles(tiny, monkeypatch):
    small = {name: {"method": name, "samples": 2, "steps": 2} for name in ensembles.ENSEMBLES}
    monkeypatch.setattr(ensembles, "PAPER", {ensembles.BASE: {"method": ensembles.BASE}, **small})
    outcome = ensembles.run(tiny, Watch())
    areas = {name: own["completeness"]["area"] for name, own in outcome.numbers["methods"].items()}
    better = [name for name in ensembles.ENSEMBLES if areas[name] > areas[ensembles.BASE]]
    assert outcome.claims[1].holds is (better == ["ig_sg"])
    assert f"ig_sq {areas['ig_sq']:z.3f}" in outcome.claims[1].measured


def test_gains_have_the_sign_of_the_metric(tiny, monkeypatch):
    monkeypatch.setattr(ensembles, "ENSEMBLES", ("random",))
    run = tl.evaluate(
        tiny.model, tiny.data, [ensembles.BASE, "random"], metrics=["road_morf", "road_lerf"], out=tiny.out
    )
    for metric, sign in (("road_morf", 1), ("road_lerf", -1)):
        areas = {name: run.results.area(name, metric) for name in run.methods}
        assert ensembles.gains(run, metric) == {"random": sign * (areas["random"] - areas[ensembles.BASE])}


@pytest.mark.slow
def test_benchmark(tiny, monkeypatch):
    monkeypatch.setattr(benchmark, "METHODS", ("gradcam", "extremal_perturbation", "random"))
    monkeypatch.setattr(benchmark, "_SMALL", {})
    monkeypatch.setattr(tl.METHODS["extremal_perturbation"], "__kwdefaults__", {
        **tl.METHODS["extremal_perturbation"].__kwdefaults__, "steps": 3,
    })  # fmt: skip
    outcome = benchmark.run(tiny, Watch())
    assert [claim.source for claim in outcome.claims] == [
        "Section 5.3, Fig. 8", "Section 5.3, Fig. 8b", "Section 5.3, Fig. 8a",
    ]  # fmt: skip
    assert "iba has no area" in outcome.claims[2].measured
    assert outcome.claims[2].holds is False


def test_places():
    areas = {"a": 0.5, "b": 0.7, "c": 0.5}
    assert [benchmark._rank(areas, name) for name in "abcd"] == [2, 1, 2, 4]
    assert benchmark._place(areas, "b") == "b is number 1 of 3 with an area of 0.700"
