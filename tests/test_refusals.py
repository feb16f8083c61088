"""What cannot work is refused in one line that names the argument: on the command line with exit code 2, in Python as
ValueError or TypeError."""

import dataclasses
import io
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from PIL import Image

import twinlens as tl
from tests.tiny import image_folder, model_file, tiny_model
from twinlens.cli.main import main
from twinlens.data.sources import open_data
from twinlens.data.stored_maps import open_maps
from twinlens.errors import DataError, ModelError
from twinlens.models.loading import load_model

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
        ("threads", ["-1", "0", "1" + 30 * "0", "nan"]),
        ("resamples", ["-1", "1" + 15 * "0", "inf"]),
        ("workers", ["0", "1" + 30 * "0"]),
        ("batch-size", ["0", "1" + 30 * "0", "1.5"]),
        ("shard-size", ["0", "1" + 30 * "0"]),
        ("limit", ["0", "1" + 30 * "0", "x"]),
        ("seed", ["inf", "nan", "1.5"]),
        ("epsilon", ["nan", "inf", "1e400", "x"]),
        ("mean", ["nan,0,0", "inf,0,0", "1e400,0,0", "x"]),
        ("std", ["nan,1,1", "inf,1,1", "0,1,1"]),
        ("levels", ["nan", "0.5,inf", "x"]),
        ("resize", ["0", "1" + 30 * "0", "x"]),
        ("crop", ["-1", "1" + 30 * "0", "x"]),
    ],
)
def test_flags(subject, capsys, tmp_path, flag, values):
    for value in values:
        rest = [word for word in subject[1] if flag != "batch-size" or word not in ("--batch-size", "16")]
        refused(capsys, tmp_path, [*rest, f"--{flag}={value}"], flag.replace("-", "_"))
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
        ("methods = 3", "methods"),
        ("methods = [3]", "methods"),
        ("methods = [[1]]", "methods"),
        ("[methods]\nrandom = 3", "methods"),
        ('[preprocessing]\nmean = "x"', "mean"),
        ("[preprocessing]\nmean = [[1]]", "mean"),
        ('[preprocessing]\nresize = "x"', "resize"),
        ("[preprocessing]\nresize = 1.5", "resize"),
        ("[preprocessing]\ncrop = true", "crop"),
        ('[preprocessing]\nsquash = "no"', "squash"),
        ("[preprocessing]\ninterpolation = 3", "interpolation"),
        ('[imputer]\nname = "blur"\nsigma = inf', "imputer blur.sigma"),
        ('out = "\\u0000"', "out"),
        ("allow_code = 1", "allow_code"),
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


def ending(*_, **__):
    sys.exit(7)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        *(({which: value}, which) for which in ("inputs", "maps", "labels") for value in (
            torch.rand(4, 3, 8, 8).to_sparse(),
            torch.rand(4, 3, 8, 8, device="meta"),
            torch.rand(4, 3, 8, 8).to(torch.float8_e4m3fn),
            [[1], [1, 2]],
            None,
            "text",
            np.array([object()]),
        )),
        *(({"seed": value}, "seed") for value in (float("inf"), float("nan"), None, "x", 1.5, True)),
        *(({"batch_size": value}, "batch_size") for value in (0, 1.5, "x", float("nan"))),
        *(({"device": value}, "device") for value in ("bogus", "cuda:99", "meta")),
        *(({"imputer": value}, "imputer") for value in (
            lambda *_: None, lambda *_: 3, lambda x, *_: x[:, :1], lambda x, *_: x.to_sparse(), ending)),
        *(({"model": value}, "model") for value in (
            3, ending, lambda x: None, lambda x: torch.rand(len(x), 3).to_sparse(),
            lambda x: torch.rand(len(x), 3, device="meta"), lambda x: torch.full((len(x), 3), torch.inf))),
        ({"ids": 3}, "ids"),
        ({"levels": 3}, "levels"),
    ],
)  # fmt: skip
def test_arguments(changed, name):
    given = {"model": tiny_model(), "inputs": INPUTS, "labels": LABELS, "maps": MAPS, "levels": (0.5, 0.2)} | changed
    plain = [given.pop(each) for each in ("model", "inputs", "labels", "maps")]
    with pytest.raises((ValueError, TypeError), match=f"`{name}`"):
        tl.soundness(*plain, **given)


@pytest.mark.parametrize("method", ["saliency", "rise", "random", "gradcam"])
def test_arguments_of_attribution(method):
    model = tiny_model()
    for changed, name in (
        ({"seed": float("inf")}, "seed"),
        ({"inputs": INPUTS.to_sparse()}, "inputs"),
        ({"inputs": INPUTS.to("meta")}, "inputs"),
        ({"targets": LABELS.to_sparse()}, "targets"),
    ):
        given = {"inputs": INPUTS, "targets": LABELS, "seed": 0} | changed
        with pytest.raises((ValueError, TypeError), match=f"`{name}`"):
            tl.attribute(model, given["inputs"], given["targets"], method, seed=given["seed"])
    with pytest.raises(ValueError, match=r"`method` called sys\.exit"):
        tl.attribute(model, INPUTS, LABELS, ending)


STATE = tiny_model().state_dict()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({0: torch.zeros(1)}, "must hold tensors by name; one is called 0"),
        ({**STATE, None: 1}, "must hold tensors by name; one is called None"),
        ({(1, 2): 1}, "must hold tensors by name"),
        ({name: value.to("meta") for name, value in STATE.items()}, "'0.weight' cannot be used.*device meta"),
        ({name: value.to_sparse() for name, value in STATE.items()}, "'0.weight' cannot be used.*sparse"),
        (
            {name: value.to(torch.complex64) for name, value in STATE.items()},
            "the model has no complex numbers in .0.weight.",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_weights(tmp_path, subject, state, message):
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(ModelError, match=message) as raised:
        load_model(subject[1][1], weights=str(tmp_path / "w.pt"))
    assert len(str(raised.value).splitlines()) == 1


def test_attributes_of_a_model_that_make_no_sense(tmp_path):
    for attribute in ("preprocessing", "classes"):
        (tmp_path / "m.py").write_text(
            f"from torch import nn\ndef build():\n  m = nn.Flatten(); m.{attribute} = 3; return m\n"
        )
        with pytest.raises(ModelError, match="preprocessing must be a dict, and classes a list"):
            load_model(f"{tmp_path}/m.py:build")


def write_bomb(path, name, shape):
    """An archive of a few megabytes that would unpack to gigabytes of zeros."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            file.write(header.getvalue())
            for _ in range(70):
                file.write(bytes(1 << 24))
        archive.writestr("labels.npy", b"")


@pytest.mark.slow
def test_archives_made_to_exhaust_memory(tmp_path, subject, monkeypatch):
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", lambda *_: pytest.fail("it was unpacked"))
    write_bomb(tmp_path / "data.npz", "inputs", (1000, 3, 500, 1000))
    with pytest.raises(DataError, match=r"data\.npz' cannot be read: it has \d+ bytes and would unpack to \d+"):
        open_data(str(tmp_path / "data.npz"))
    write_bomb(tmp_path / "maps.npz", "maps", (12, 10_000, 10_000))
    with pytest.raises(DataError, match=r"maps\.npz' cannot be read: it has \d+ bytes and would unpack to \d+"):
        open_maps(str(tmp_path / "maps.npz"), open_data(subject[1][3]))
    os.rename(tmp_path / "maps.npz", tmp_path / "weights.pt")
    with pytest.raises(ModelError, match=r"weights\.pt' cannot be read: it has \d+ bytes and would unpack to \d+"):
        load_model(subject[1][1], weights=str(tmp_path / "weights.pt"))
    os.rename(tmp_path / "weights.pt", tmp_path / "model.pt2")
    with pytest.raises(ModelError, match=r"it has \d+ bytes and would unpack to \d+"):
        load_model(str(tmp_path / "model.pt2"), allow_code=True)


def test_folders_very_deep_or_linked_in_circles(tmp_path):
    deep = tmp_path / "deep"
    (deep / "a").mkdir(parents=True)
    folder = os.open(deep / "a", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("x", dir_fd=folder)
        inner = os.open("x", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    with pytest.raises(DataError, match="`data` must have at most 100 folders in each other"):
        open_data(str(deep))
    names = "abcdefgh"
    for name in names:
        image_folder(tmp_path / "circle" / name, classes=["x"], per_class=1)
        for other in names:
            (tmp_path / "circle" / name / f"to_{other}").symlink_to(tmp_path / "circle" / other)
    with pytest.raises(DataError, match="`data` must lead to each folder by at most 3 links"):
        open_data(str(tmp_path / "circle"))


@pytest.mark.slow
def test_damaged_descriptions_of_a_run(tmp_path, capsys):
    """Whatever field of run.json or results.json is missing or of another type, the file and the field are named."""
    out = tmp_path / "run"
    tl.evaluate(tiny_model(), (INPUTS.numpy(), LABELS.numpy()), ["random"], metrics=["deletion"], out=out, resamples=20)
    for name in ("run.json", "results.json"):
        text = (out / name).read_text()
        for path in paths(json.loads(text)):
            for value in (None, [], {}, "x", 3, -1, True, REMOVED):
                stored = json.loads(text)
                put(stored, path, value)
                (out / name).write_text(json.dumps(stored))
                for command in (["report", str(out), "--table", "csv"], ["ask", str(out), "--quiet"]):
                    code = main(command)
                    said = capsys.readouterr().err
                    assert code in (0, 2), (path, value, command)
                    assert (code == 0) or said.count("\n") == 1, (path, value, command, said)
                (out / name).write_text(text)
        for broken in ("", "{", 9999 * "[", "null", '"x"', "\x00"):
            (out / name).write_text(broken)
            assert main(["report", str(out), "--table", "csv"]) == 2
            assert capsys.readouterr().err.count("\n") == 1
        (out / name).write_text(text)


REMOVED = object()


def paths(value, above=()):
    """Yields the place of each value in a JSON document; of a list only the first."""
    if above:
        yield above
    items = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, inner in items:
        yield from paths(inner, (*above, key))


def put(document, path, value):
    *above, last = path
    for key in above:
        document = document[key]
    if value is REMOVED:
        del document[last]
    else:
        document[last] = value


@pytest.mark.parametrize("metric", [tl.soundness, tl.completeness, tl.road, tl.deletion, tl.insertion])
def test_maps_of_zeros_are_warned_of(metric):
    with pytest.warns(UserWarning, match="`maps` are zero everywhere for all 4 samples"):
        metric(tiny_model(), INPUTS, LABELS, torch.zeros_like(MAPS))


class Infinite(torch.nn.Module):
    def forward(self, images):
        return torch.stack([images.sum(dim=(1, 2, 3)) / 0, *2 * [images.sum(dim=(1, 2, 3))]], dim=1)


@pytest.mark.parametrize("method", ["rise", "occlusion", "saliency", "integrated_gradients"])
def test_maps_of_a_model_that_returns_infinity_are_refused(method):
    options = {"rise": {"masks": 20}}.get(method, {})
    with pytest.raises(ValueError, match="`model` leads to NaN or infinity in the map of sample 'a'"):
        tl.attribute(Infinite(), INPUTS, 4 * [0], method, ids="abcd", **options)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda table: "abc", "must return numbers; it returned str"),
        (lambda table: object(), "must return numbers; it returned object"),
        (lambda table: np.full(table.kept_mass.shape, np.nan), "must be a number at every level; at 1 it is none"),
        (lambda table: np.array([1.0, np.inf] * 5), "must be a number at every level; at 0.9 it is none"),
    ],
)
def test_a_performance_that_is_none(function, error):
    with pytest.raises((ValueError, TypeError), match=f"`performance` {error}"):
        tl.completeness(tiny_model(), INPUTS, LABELS, MAPS, performance=function, imputer=tl.ConstantImputer(0.0))


@pytest.mark.parametrize("confidence", ["a", None, 0, 1.5, True, float("nan")])
def test_a_confidence_that_is_none(confidence):
    curve = tl.completeness(tiny_model(), INPUTS, LABELS, MAPS, imputer=tl.ConstantImputer(0.0))
    with pytest.raises(ValueError, match="`confidence` must lie within"):
        curve.interval(confidence, resamples=5)


TABLE = tl.probe(tiny_model(), INPUTS, LABELS, MAPS, schedule=tl.Schedule(by="area", order="lerf", levels=(0.9, 0.5)))
CURVE = tl.completeness(tiny_model(), INPUTS, LABELS, MAPS, thresholds=(0.5,), performance="probability")
HUGE, ROWS = 10**40, (torch.nn.Linear(5, 3), torch.ones(4, 5))


def explain(method, **changed):
    return tl.METHODS[method](**{"model": tiny_model(), "inputs": INPUTS, "targets": LABELS} | changed)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        # options of methods: types, counts and numbers beyond reason, arrays of other shapes
        ("steps", lambda: explain("integrated_gradients", steps=HUGE)),
        ("steps", lambda: explain("integrated_gradients", steps=1.5)),
        ("samples", lambda: explain("ig_sg", samples=2**31)),
        ("variance", lambda: explain("ig_sg", variance="x")),
        ("baseline", lambda: explain("integrated_gradients", baseline="x")),
        ("baseline", lambda: explain("deeplift", baseline=float("inf"))),
        ("background", lambda: explain("deepshap", background=range(10**12))),
        ("sigma", lambda: explain("iba", sigma=1e300)),
        ("sigma", lambda: explain("iba", sigma=1e-300)),
        ("lr", lambda: explain("extremal_perturbation", lr=-1e300)),
        ("layer", lambda: explain("gradcam", layer=[])),
        ("ids", lambda: explain("random", ids=range(10**12))),
        ("ids", lambda: explain("random", ids=np.array(3))),
        ("seed", lambda: explain("random", seed={})),
        ("targets", lambda: explain("saliency", targets=LABELS[:1])),
        ("inputs", lambda: explain("sobel", inputs=INPUTS.double() * 1e300)),
        ("coalitions", lambda: explain("kernel_shap", model=ROWS[0], inputs=ROWS[1], coalitions="x")),
        ("background", lambda: explain("kernel_shap", model=ROWS[0], inputs=ROWS[1], background=[1, 2])),
        # models and functions of the caller's
        ("model", lambda: explain("saliency", model=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(7, 3)))),
        ("model", lambda: explain("ig_var", model=torch.nn.Module())),
        ("model", lambda: explain("rise", model=torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(3)))),
        ("model", lambda: explain("random", model=tiny_model().to("meta"))),
        ("model", lambda: tl.deletion(lambda: None, INPUTS, LABELS, MAPS)),
        ("model", lambda: tl.model_randomisation(tiny_model(), INPUTS[..., None], LABELS)),
        ("method", lambda: tl.attribute(tiny_model(), INPUTS, LABELS, lambda *_, **__: MAPS * torch.nan)),
        ("method", lambda: tl.model_randomisation(tiny_model(), INPUTS, LABELS, lambda *_, **__: MAPS[:1])),
        ("imputer", lambda: tl.deletion(tiny_model(), INPUTS, LABELS, MAPS, imputer=lambda: None)),
        ("performance", lambda: tl.soundness_from_probes(TABLE, performance=ending)),
        ("performance", lambda: tl.soundness_from_probes(TABLE, performance=lambda a, b: a)),
        ("build", lambda: tl.roar(lambda: 3, (INPUTS, LABELS), (INPUTS, LABELS), "random")),
        ("test_data", lambda: tl.roar(tiny_model, (INPUTS, LABELS), 3, "random")),
        ("retrainings", lambda: tl.roar(tiny_model, (INPUTS, LABELS), (INPUTS, LABELS), "random", retrainings=2**64)),
        # imputers, schedules, protocols
        ("sigma", lambda: tl.BlurImputer(sigma="x")),
        ("sigma", lambda: tl.BlurImputer(sigma=1e300)),
        ("value", lambda: tl.ConstantImputer([1, 2])),
        ("value", lambda: tl.ConstantImputer(1e300)),
        ("noise", lambda: tl.LinearImputer(noise=HUGE)),
        ("mean", lambda: tl.MeanImputer(b"x")),
        ("mean", lambda: tl.MeanImputer(torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))),
        ("keep", lambda: tl.impute_linear(INPUTS, (MAPS > 0).to_sparse())),
        ("levels", lambda: tl.Schedule(by="area", order="lerf", levels=3)),
        ("mass_offset", lambda: dataclasses.replace(tl.PROTOCOLS["soco"], mass_offset=[1])),
        ("score", lambda: dataclasses.replace(tl.PROTOCOLS["soco"], score="x")),
        ("cpus_per_unit", lambda: tl.Cluster(cpus_per_unit="x")),
        ("features", lambda: tl.opposite_schedule(TABLE.settings.schedule, -HUGE)),
        # tables, curves and statistics
        ("table", lambda: tl.soundness_from_probes(None)),
        ("curve", lambda: tl.bootstrap(3)),
        ("resamples", lambda: tl.bootstrap(CURVE, resamples=HUGE)),
        ("exchanged", lambda: tl.skill(CURVE, None)),
        ("baselines", lambda: tl.compare({"a": {"c": CURVE}, "b": {"c": CURVE}}, baselines=np.array(3))),
        ("maps", lambda: tl.exchange_maps(3.0, LABELS)),
        ("labels", lambda: tl.exchange_maps(MAPS, LABELS * torch.nan)),
        ("maps", lambda: tl.remove_attribution(MAPS.to(torch.complex64))),
        ("maps", lambda: tl.deletion(tiny_model(), INPUTS, LABELS, np.full((4, 8, 8), 2**64 - 1, dtype=np.uint64))),
        # models, data and runs
        ("preprocessing", lambda: load_model("mnist-cnn", weights="none", preprocessing=3.0)),
        ("data", lambda: tl.evaluate(tiny_model(), 3, ["random"])),
        ("ids", lambda: tl.from_arrays(INPUTS, LABELS, ids=len)),
        ("labels", lambda: tl.from_arrays(INPUTS, LABELS.float().to(torch.float8_e4m3fn))),
        ("path", lambda: tl.open_evaluation("\0")),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning", "ignore:Lazy modules:UserWarning")
def test_what_the_fuzz_suite_found(name, call):
    with pytest.raises((ValueError, TypeError), match=f"`{name}`") as raised:
        call()
    assert len(str(raised.value).splitlines()) == 1


class Branching(torch.nn.Module):
    """Runs one operation more for inputs than for a baseline of zeros."""

    def __init__(self):
        super().__init__()
        self.inner = tiny_model()

    def forward(self, x):
        answer = self.inner(x)
        return answer.relu() if x.any() else answer


class Padded(torch.nn.Module):
    """Attention over the places of a feature map, with a padding mask."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = torch.nn.MultiheadAttention(3, 1, batch_first=True), torch.nn.Linear(3, 3)

    def forward(self, x):
        places = x.flatten(2).transpose(1, 2)
        absent = torch.zeros(places.shape[:2], dtype=torch.bool)
        return self.head(self.attention(places, places, places, absent, need_weights=False)[0].mean(dim=1))


def regress(performance):
    return tl.deletion(lambda x: x.sum(dim=(1, 2, 3)), INPUTS, [1.5] * 4, MAPS, performance=performance)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: explain("deeplift", model=Branching()), "`model` must run the same operations for every input"),
        (lambda: explain("lrp", model=Padded()), r"attention with extra keys or a padding mask.* Use integrated_grad"),
        (lambda: explain("attention_rollout", model=Padded()), "attention with extra keys or a padding mask"),
        (lambda: explain("kernel_shap", model=ROWS[0], inputs=ROWS[1], targets=[0, 1, 2, 3]), "with class 3 among"),
        (lambda: tl.evaluate(tiny_model(), ({"attention_mask": LABELS[None]}, [0]), ["random"]),
         r"`inputs` must hold 'input_ids' and 'attention_mask'; got \['attention_mask'\]"),
        (lambda: tl.evaluate(tiny_model(), (INPUTS, LABELS), ["random"], maps={"random": MAPS}),
         "`maps` and `methods` must have different names; 'random' is in both"),
        (lambda: tl.evaluate(tiny_model(), (INPUTS, LABELS), ["random"], preprocessing={"center": 3}),
         "`preprocessing` has no 'center'; it has resize, crop"),
        (lambda: regress("r2"), "'r2' and 'neg_mse' need labels that differ; all labels are equal"),
        (lambda: regress("neg_mse"), "'r2' and 'neg_mse' need labels that differ; all labels are equal"),
        (lambda: tl.deletion(tiny_model(), INPUTS, LABELS, MAPS, protocol="papre"),
         "`protocol` must be one of paper, soco, or a Protocol; got 'papre'. Did you mean 'paper'?"),
        (lambda: dataclasses.replace(tl.PROTOCOLS["soco"], count_offset=1.0),
         r"`count_offset` must lie within \[0, 1\); got 1.0"),
        (lambda: dataclasses.replace(tl.PROTOCOLS["soco"], mass_offset=-1e-9), "`mass_offset` must lie within"),
    ],
)  # fmt: skip
def test_what_a_person_can_do_about_it_is_said(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_numbers_of_unusual_types_are_taken():
    wide = MAPS.numpy().astype(np.longdouble)
    assert torch.equal(tl.exchange_maps(wide, LABELS), tl.exchange_maps(MAPS.double(), LABELS))
    assert tl.from_arrays(INPUTS.bfloat16(), LABELS).read(0).dtype == np.float32
    assert explain("integrated_gradients", steps=np.int8(3), baseline=0).shape == MAPS.shape


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "--limit"], "argument --limit: expected one argument"),
        (["evaluate", "--quiet=3"], "argument --quiet: ignored explicit argument '3'"),
        (["evaluate", "--nothing"], "unrecognized arguments: --nothing"),
        (["report", "RUN", "--table", "word"], "argument --table: invalid choice: 'word'"),
        (["report", "RUN", "--out", "\0"], "`out` must be the path of a file or a folder; got '\\x00'"),
        (["report", "RUN", "--out", "."], "`out` must be the path of a file; got '.'"),
        (["compare", "RUN", "--out", ""], "`out` must be the path of a file or a folder; got ''"),
        (["report", "RUN", "--figures", "RUN/run.json"], "`figures` 'RUN/run.json' cannot be written: File exists"),
        (["compare", "RUN", "--out", "a" * 300], "`out` 'aaa"),
        (["evaluate", "--out", "a" * 300], "`out` 'aaa"),
        (["evaluate", "--out", "s3://"], "`out` must be the path of a directory; got 's3://'"),
        (["evaluate", "\0"], "`\\x00` is no TOML file: embedded null byte"),
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


def test_an_object_store_that_cannot_be_reached(monkeypatch):
    def answer(*_, **__):
        raise RuntimeError("Unable to locate credentials")

    monkeypatch.setattr(MemoryFileSystem, "info", answer)
    monkeypatch.setattr(MemoryFileSystem, "exists", answer)
    with pytest.raises(tl.RunError, match="`out` 'memory://a/b' cannot be used: Unable to locate credentials"):
        tl.evaluate(tiny_model(), (INPUTS.numpy(), LABELS.numpy()), "random", out="memory://a/b")


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
