from dataclasses import replace

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.reproduction.watching import Watch
from twinlens.reproduction import ExperimentOptions, benchmark
from twinlens.reproduction.map_readings import MapReading, Readings, in_bits, list_readings, reduce_channels

ATTRIBUTIONS = torch.tensor([[[[3.0, -1.0], [0.5, -0.25]], [[-1.0, -2.0], [0.5, 1.25]]]])


def test_the_text_drops_negative_sums_and_the_code_averages_magnitudes():
    assert reduce_channels(ATTRIBUTIONS, "positive").tolist() == [[[2.0, 0.0], [1.0, 1.0]]]
    assert reduce_channels(ATTRIBUTIONS, "absolute").tolist() == [[[2.0, 1.5], [0.5, 0.75]]]


def test_few_bits_are_what_an_image_file_would_hold():
    maps = torch.rand(5, 7, 9, generator=torch.Generator().manual_seed(0)) * 3 + 1
    stored = in_bits(maps, 8).numpy()
    for own, values in zip(stored, maps.numpy(), strict=True):
        # The authors' lines: scale to 0 and 1, times 255, cut off to uint8.
        scaled = (values - values.min()) / (values.max() - values.min())
        pixels = (scaled * 255.0).astype(np.uint8)
        assert np.abs(np.rint(own * 255) - pixels).max() <= 1  # float64 here, float32 there
        assert (np.rint(own * 255) == pixels).mean() > 0.95
    assert (stored.min(), stored.max()) == (0.0, 1.0)
    assert in_bits(torch.full((1, 2, 2), 0.7), 8).tolist() == [[[0.0, 0.0], [0.0, 0.0]]]
    assert len(np.unique(in_bits(maps, 3).numpy())) == 8


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [MapReading()]),
        ({"noise": "both"}, [MapReading(), MapReading(noise="variance")]),
        ({"bits": 8}, [MapReading(bits=8)]),
        (
            {"protocol": "both", "noise": "variance"},
            [MapReading(noise="variance"), MapReading(noise="variance", protocol="soco", bits=8)],
        ),
    ],
)
def test_options_name_readings(options, expected, tmp_path):
    readings = list_readings(ExperimentOptions(out=tmp_path, **options))
    assert readings == expected
    assert (
        len({reading.words for reading in readings}) == len({reading.folder for reading in readings}) == len(expected)
    )


def test_bits_out_of_range_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`bits` must lie within 1 and 16, such as 8; got 0"):
        ExperimentOptions(out=tmp_path, bits=0)


def test_readings_are_made_from_stored_attributions(tiny):
    common = {"metrics": [], "features": "channels", "sign": "signed", "shard_size": 4}
    stored = Readings(tl.evaluate(tiny.model, tiny.data, ["integrated_gradients"], out=tiny.out / "all", **common))
    signed = stored.runs[0].load_maps("integrated_gradients", 0, signed=True)
    assert signed.dim() == 4
    assert (signed < 0).any()
    text = stored.methods({"IG": "integrated_gradients"}, MapReading())
    code = stored.methods({"code": "integrated_gradients"}, MapReading(protocol="soco", bits=8))
    run = tl.evaluate(tiny.model, tiny.data, text | code, metrics=[], out=tiny.out / "read")
    direct = tl.evaluate(tiny.model, tiny.data, ["integrated_gradients"], metrics=[], out=tiny.out / "direct")
    torch.testing.assert_close(run.maps("IG"), direct.maps("integrated_gradients"))
    torch.testing.assert_close(run.maps("code")[:4], in_bits(signed.abs().mean(dim=1), 8))


@pytest.mark.slow
def test_the_benchmark_follows_the_authors_code(tiny, monkeypatch):
    monkeypatch.setattr(benchmark, "METHODS", ("gradcam", "iba", "integrated_gradients", "random"))
    outcome = benchmark.run(replace(tiny, protocol="both"), Watch())
    text, code = outcome.numbers["readings"].values()
    assert list(text["methods"]) == list(code["methods"])
    lengths = [len(each["methods"]["gradcam"]["soundness"]["levels"]) for each in (text, code)]
    assert lengths == [98, 96]
    assert "soundness_rank" not in code["methods"]["gradcam"]
    assert {claim.reading for claim in outcome.claims if not claim.ours} == {
        "0.3 as a standard deviation", "0.3 as a standard deviation, the authors' code",
    }  # fmt: skip
