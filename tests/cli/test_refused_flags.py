"""What cannot work is refused on the command line in one line that names the option, with exit code 2."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import twinlens as tl
from tests.tiny import image_folder, model_file, tiny_model
from twinlens.cli.main import main

INPUTS, LABELS = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
MAPS = INPUTS[:, 0].abs()


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refusals")
    data = image_folder(folder / "images")
    return folder, ["--model", model_file(folder), "--data", data, "--batch-size", "16", "--methods", "random"]


def refused(capsys, tmp_path, arguments, name):
    code = main(["evaluate", *arguments, "--metrics", "deletion", "--out", str(tmp_path / "run"), "--quiet"])
    captured = capsys.readouterr()
    assert (code, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert f"`{name}`" in captured.err
    return captured.err


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("device", ["cuda:99", "nonsense", "meta", "mps:7", ""]),
        ("threads", ["-1", "nan"]),
        ("limit", ["x"]),
        ("epsilon", ["1e400"]),
        ("mean", ["nan,0,0", "inf,0,0", "1e400,0,0", "x"]),
        ("std", ["nan,1,1", "inf,1,1", "0,1,1"]),
        ("levels", ["0.5,inf"]),
        ("resize", ["0", "1" + 30 * "0", "x"]),
        ("crop", ["-1", "1" + 30 * "0", "x"]),
    ],
)
def test_flags(subject, capsys, tmp_path, flag, values):
    for value in values:
        refused(capsys, tmp_path, [*subject[1], f"--{flag}={value}"], flag.replace("-", "_"))
        assert not (tmp_path / "run").exists()


def test_flags_of_ray(subject, capsys, tmp_path):
    for flag in ("cpus-per-unit", "gpus-per-unit"):
        for value in ("nan", "inf", "-1"):
            refused(capsys, tmp_path, [*subject[1], "--engine=ray", f"--{flag}={value}"], flag.replace("-", "_"))
            assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("x = " + 5000 * "[" + 5000 * "]", "run.toml"),
        ("x = " + 5000 * "{a=" + "1" + 5000 * "}", "run.toml"),
        (b"\xff\xfe\x00", "run.toml"),
        ("methods = [[1]]", "methods"),
        ("[methods]\nrandom = 3", "methods"),
        ('[preprocessing]\nmean = "x"', "mean"),
        ("[preprocessing]\nresize = 1.5", "resize"),
        ("[preprocessing]\ncrop = true", "crop"),
        ('[preprocessing]\nsquash = "no"', "squash"),
        ("[preprocessing]\ninterpolation = 3", "interpolation"),
        ('[imputer]\nname = "blur"\nsigma = inf', "imputer blur.sigma"),
        ('out = "\\u0000"', "out"),
    ],
)
def test_files_of_options(subject, capsys, tmp_path, monkeypatch, content, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    rest = subject[1][:-2] if "methods" in str(content) else subject[1]
    code = main(["evaluate", "run.toml", *rest, *([] if name == "out" else ["--out", str(tmp_path / "run")])])
    captured = capsys.readouterr()
    assert (code, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert f"`{name}`" in captured.err


@pytest.mark.parametrize(
    "text",
    [
        "sys.exit(3)",
        "def build(): sys.exit()",
        "class M(torch.nn.Module):\n  def forward(self, x): sys.exit(0)\nbuild = M",
    ],
)
def test_a_model_that_ends_the_program(subject, capsys, tmp_path, text):
    (tmp_path / "ending.py").write_text(f"import sys, torch\n{text}\n")
    said = refused(capsys, tmp_path, ["--model", f"{tmp_path}/ending.py:build", *subject[1][2:]], "model")
    assert "called sys.exit(" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "--limit"], "argument --limit: expected one argument"),
        (["evaluate", "--quiet=3"], "argument --quiet: ignored explicit argument '3'"),
        (["evaluate", "--nothing"], "unrecognized arguments: --nothing"),
        (["report", "RUN", "--table", "word"], "argument --table: invalid choice: 'word'"),
        (["report", "RUN", "--columns", "all"], "`columns` is an option of tables: add --table latex|markdown|csv."),
        (["report", "RUN", "--table", "latex", "--columns", "x"], "`columns` must be one of headline, all, "),
        (["report", "RUN", "--table", "latex", "--columns", ","], "`columns` must name at least one column"),
        (["report", "RUN", "--table", "latex", "--digits", "x"], "argument --digits: invalid int value: 'x'"),
        (["report", "RUN", "--table", "latex", "--digits", "9"], "`digits` must be 1 to 6; got 9"),
        (["report", "RUN", "--table", "csv", "--digits", "2"], "`digits` is for latex and markdown"),
        (["report", "RUN", "--table", "latex", "--intervals", "up"], "argument --intervals: invalid choice: 'up'"),
        (["report", "RUN", "--table", "latex", "--names", "x=Ours"], "`names` must be one of "),
        (
            ["report", "RUN", "--table", "latex", "--names", "x="],
            "`names` must be NAME=TITLE or the path of a TOML file",
        ),
        (["report", "RUN", "--table", "latex", "--names", "Ours"], "`names` must be NAME=TITLE or the path of a TOML"),
        (["report", "RUN", "--table", "latex", "--names", "RUN/run.json"], "run.json` is not a valid TOML file"),
        (["report", "RUN", "--out", "\0"], "`out` must be the path of a file or a folder; got '\\x00'"),
        (["report", "RUN", "--out", "."], "`out` must be the path of a file; got '.'"),
        (["compare", "RUN", "--out", ""], "`out` must be the path of a file or a folder; got ''"),
        (["report", "RUN", "--figures", "RUN/run.json"], "`figures` 'RUN/run.json' cannot be written: File exists"),
        (["compare", "RUN", "--out", "a" * 300], "`out` 'aaa"),
        (["evaluate", "--out", "a" * 300], "`out` 'aaa"),
        (["evaluate", "--out", "s3://"], "`out` must be the path of a directory; got 's3://'"),
        (["evaluate", "\0"], "`\\x00` is not a valid TOML file: embedded null byte"),
        (["--nothing"], "unrecognized arguments: --nothing"),
    ],
)
def test_flags_are_refused_in_one_line_that_names_them(subject, tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    if "RUN" in arguments:
        tl.evaluate(
            tiny_model(), (INPUTS.numpy(), LABELS.numpy()), "random", metrics="deletion", out="RUN", resamples=9
        )
    if arguments[0] == "evaluate":
        arguments = [*arguments, *subject[1]]
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.slow
def test_what_a_library_says_of_a_bad_image_is_not_shown_beside_the_error(subject, tmp_path):
    image_folder(tmp_path / "images")
    content = io.BytesIO()
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(content, "tiff")
    # the number of samples per pixel, tag 277: type 3, count 1, value 3
    bent = content.getvalue().replace(b"\x15\x01\x03\x00\x01\x00\x00\x00\x03", b"\x15\x01\x03\x00\x01\x00\x00\x00\x0b")
    assert bent != content.getvalue()
    (tmp_path / "images" / "ant" / "bent.tif").write_bytes(bent)
    words = ["evaluate", *subject[1], "--metrics", "deletion", "--out", str(tmp_path / "run"), "--quiet"]
    words[words.index("--data") + 1] = str(tmp_path / "images")
    done = subprocess.run([sys.executable, "-m", "twinlens", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "'ant/bent.tif' cannot be read" in done.stderr
