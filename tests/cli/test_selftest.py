"""The command selftest."""

import json
from pathlib import Path

import pytest


def test_selftest_loads_no_code_that_run_json_names(tmp_path, run, subject):
    out, trace = tmp_path / "run", tmp_path / "trace"
    command = ("evaluate", *subject, "--methods", "random", "--metrics", "completeness", "--out", out, "--quiet")
    assert run(*command) == (0, "", "")
    (tmp_path / "evil.py").write_text(f"open({str(trace)!r}, 'w')\n")
    (tmp_path / "evil.pt2").write_text("nothing that torch.export wrote")
    (tmp_path / "evil").mkdir()
    stored = json.loads((out / "run.json").read_text())
    for spec in (f"{tmp_path}/evil.py:build", f"{tmp_path}/evil.pt2", f"timm:local-dir:{tmp_path}/evil"):
        stored["source"]["model"] = spec
        (out / "run.json").write_text(json.dumps(stored))
        code, output, error = run("selftest", out)
        assert (code, output, error.count("\n")) == (2, "", 1)
        assert f"names the model '{spec}', which is code" in error
        assert f"pass --model {spec}" in error
        assert not trace.exists()
    code, _, error = run("selftest", out, "--model", tmp_path / "evil.pt2")
    assert code == 2
    assert "pass --allow-code" in error
    code, _, error = run("selftest", out, "--model", f"{tmp_path}/tiny_model.py:other")
    assert code == 2
    assert "no function of that name" in error


def test_a_run_without_metrics_is_refused(tmp_path, run, subject):
    assert run("attribute", *subject, "--methods", "random", "--out", tmp_path / "run", "--quiet")[0] == 0
    code, output, error = run("selftest", tmp_path / "run", "--model", subject[1])
    assert (code, output, error.count("\n")) == (2, "", 1)
    assert "holds maps only" in error


@pytest.mark.slow
def test_selftest_of_a_run(tmp_path, run, subject):
    metrics = "soundness_rank,completeness"
    command = ("evaluate", *subject, "--methods", "saliency,random", "--metrics", metrics, "--out", tmp_path / "run")
    assert run(*command)[0] == 0
    own = ("--model", subject[1])
    code, output, error = run("selftest", tmp_path / "run", *own, "--limit", "6", "--methods", "saliency", "--json")
    assert (code, error) == (0, "")
    rows = json.loads(output)
    assert [(row["method"], row["metric"]) for row in rows] == [
        ("saliency", "soundness_rank"),
        ("saliency", "completeness"),
    ]
    for row in rows:
        assert row["correlation"] is None or -1 <= row["correlation"] <= 1
        assert {"share 0", "share 0.25", "share 1", "departure_low", "difference_high", "blurred"} <= set(row)
    code, output, _ = run("selftest", tmp_path / "run", *own, "--limit", "6")
    assert code == 0
    assert output.count("saliency") >= 2
    assert output.count("random") >= 2
    assert "• soundness_rank " in output
    code, _, error = run("selftest", tmp_path / "run", "--methods", "gradcam")
    assert (code, error) == (2, "twinlens: error: `methods` must be one of saliency, random; got 'gradcam'.\n")
    (tmp_path / "images" / "ant" / "0.png").unlink()
    code, _, error = run("selftest", tmp_path / "run", *own)
    assert code == 2
    assert "no longer has sample 'ant/0.png'" in error


@pytest.mark.parametrize("command", [("selftest",), ("check", "max-sensitivity")])
def test_swapped_images_are_refused(tmp_path, run, subject, command):
    out = tmp_path / "run"
    made = ("evaluate", *subject, "--methods", "saliency", "--metrics", "completeness", "--out", out, "--quiet")
    assert run(*made) == (0, "", "")
    stored = json.loads((out / "run.json").read_text())["source"]
    images = sorted(Path(stored["data"]).rglob("*.png"))
    for image in images:
        image.write_bytes(images[0].read_bytes())
    arguments = (*command, out) if command == ("selftest",) else (command[0], command[1], out)
    code, output, error = run(*arguments, "--model", stored["model"])
    assert (code, output) == (2, "")
    assert "is not what it was when it was first read" in error
