import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import twinlens as tl
from tests.resnet20 import ResNet20, normalise
from tests.tiny import image_folder, model_file
from twinlens import experiments
from twinlens.cli import main
from twinlens.experiments import Claim, Experiment, Options, Outcome, benchmark, ensembles, order_vs_value, synthetic
from twinlens.experiments.order_vs_value import Modified
from twinlens.experiments.page import build_page
from twinlens.experiments.settings import Embedded, find_subject, some_of_each_class
from twinlens.experiments.stored import read_stored
from twinlens.modifications import MODIFICATIONS
from twinlens.ordering import stream
from twinlens.results import open_evaluation
from twinlens.runs import RunError
from twinlens.samples import from_arrays
from twinlens.statistics import hausdorff


def quietly(what, done, total):
    assert 0 <= done <= total, (what, done, total)


@pytest.fixture
def tiny(tmp_path):
    """Options for a model and six images that take moments."""
    data = image_folder(tmp_path / "images", per_class=2, size=8)
    return Options(out=tmp_path / "out", data=data, model=model_file(tmp_path))


class TestSynthetic:
    @pytest.mark.parametrize("every", [1, 2])
    @pytest.mark.parametrize("change", ["truth", synthetic.REMOVE, synthetic.INTRODUCE])
    def test_trials_are_what_the_metrics_give(self, every, change):
        data = synthetic.linear_set(50, every=every, seed=3)
        maps = data.information if change == "truth" else synthetic.modify(data, change, 7, seed=3)
        measured = synthetic.measure(data, maps)

        # The evidence itself as the input of a model that sums it up: a zero is what imputation puts in its place.
        def model(x):
            return torch.stack([x.sum(dim=1), -x.sum(dim=1)], dim=1)

        arguments = (model, torch.from_numpy(data.evidence), [0] * 50, maps)
        options = {"imputer": tl.ConstantImputer(0.0), "seed": 3}
        soundness, completeness = tl.soundness(*arguments, **options), tl.completeness(*arguments, **options)
        assert np.array_equal(measured.accuracy, soundness.performance)
        assert np.allclose(measured.soundness, soundness.values, rtol=0, atol=1e-12)
        assert np.allclose(measured.completeness, completeness.values, rtol=0, atol=1e-12)
        assert measured.at(0.9) == pytest.approx(soundness.at(0.9))

    def test_changes_touch_what_they_may(self):
        data = synthetic.linear_set(30, every=2)
        removed, introduced = (synthetic.modify(data, change, 0) for change in (synthetic.REMOVE, synthetic.INTRODUCE))
        kept = removed > 0
        assert np.array_equal(removed[kept], data.information[kept])
        assert 0.4 < kept.sum() / data.predictive.sum() < 0.6
        new = introduced != data.information
        assert not new[:, ::2].any()
        assert 0.4 < new[:, 1::2].mean() < 0.6
        assert introduced.max() <= data.information.max()

    def test_a_small_run(self, tmp_path):
        told = []
        options = Options(out=tmp_path, limit=3)
        outcome = synthetic.run(options, lambda *step: told.append(step))
        assert [step[1:] for step in told] == [(k, 12) for k in range(1, 13)]
        by_text = {claim.text: claim.holds for claim in outcome.claims}
        assert len(by_text) == 11
        assert by_text["On the paper's set, introducing attribution lowers soundness."] is True
        assert by_text["On the paper's set, removing attribution lowers completeness."] is True
        assert by_text["On the set with zero weights, introducing attribution does not lower completeness."] is True
        # The paper's prose contradicts its own expectation, and what is measured.
        assert [claim.holds for claim in outcome.claims if "prose" in claim.source] == [False]
        json.dumps(outcome.numbers, allow_nan=False)
        assert outcome.numbers == synthetic.run(options, quietly).numbers
        assert outcome.numbers != synthetic.run(replace(options, seed=1), quietly).numbers

    def test_refusals(self, tmp_path):
        with pytest.raises(ValueError, match="`model` is not used by this experiment, because it draws its own data"):
            synthetic.run(Options(out=tmp_path, model="mnist-cnn"), quietly)
        with pytest.raises(ValueError, match="`limit` must be at least 1"):
            synthetic.run(Options(out=tmp_path, limit=0), quietly)


class TestOrderVsValue:
    def test_a_small_run(self, tiny, monkeypatch):
        own = replace(order_vs_value.OWN, methods={name: {"method": name} for name in ("gradcam", "saliency")})
        monkeypatch.setattr(order_vs_value, "OWN", own)
        outcome = order_vs_value.run(tiny, quietly)
        distances = outcome.numbers["distances"]
        assert set(distances) == {"gradcam", "saliency"}
        for of_method in distances.values():
            for scheme in ("constant", "random"):
                assert [of_method[scheme][m]["least"] for m in order_vs_value.ORDER_BASED] == [0, 0]
            assert of_method["constant"]["road_morf"] == dict.fromkeys(of_method["constant"]["road_morf"], 0)
        least = [
            of_scheme["soundness"]["least"] for of_method in distances.values() for of_scheme in of_method.values()
        ]
        assert outcome.numbers["summary"]["soundness"]["mean"] == pytest.approx(np.mean(least))
        assert outcome.numbers["rank_correlation"]["constant"] == pytest.approx(1)
        assert outcome.numbers["rank_correlation"]["random"] < 1
        assert outcome.numbers["by_scheme"]["random"]["road_morf"] == 0
        assert len(outcome.claims) == 5
        assert outcome.claims[2].measured.endswith("ROAD 0.000, deletion 0.000")
        assert set(outcome.figures) == {"order-vs-value", "distances"}

    def test_curves_of_maps_with_the_order_of_others_are_their_own(self, tiny):
        """Soundness that was read from another map's probes is what a sweep of its own would give."""
        sizes = replace(order_vs_value.OWN, methods={"gradcam": {"method": "gradcam"}})
        subject = find_subject(tiny, order_vs_value.PHOTOGRAPHS)
        curves, _ = order_vs_value._measure(subject, sizes, tiny, quietly)
        evaluation = open_evaluation(tiny.out / "orders")
        modified = Modified(evaluation)
        inputs = torch.stack([subject.model.preprocessing(subject.samples.read(i)) for i in range(6)])
        ids = list(subject.samples.ids)
        for scheme, change in (("constant", "remove"), ("constant", "introduce"), ("random", "remove")):
            maps = MODIFICATIONS[change](modified.originals("gradcam", ids), scheme, ids=ids).float()
            arguments = (subject.model.module, inputs, subject.samples.labels, maps)
            expected = tl.soundness(*arguments, ids=ids, batch_size=32)
            found = curves["gradcam", scheme][change]
            assert np.array_equal(found["soundness"].performance, expected.performance)
            assert np.allclose(found["soundness"].values, expected.values, atol=1e-9, equal_nan=True)
            assert np.array_equal(found["deletion"].values, tl.deletion(*arguments, ids=ids, batch_size=32).values)
            # By hand: how many samples are recognised without what exceeds a threshold of the modified map.
            imputer, kept = tl.LinearImputer(), (maps <= 0.3) & (maps != maps.amax(dim=(1, 2), keepdim=True))
            streams = [stream(0, name, 0.3) for name in ids]
            answers = subject.model.module(imputer(inputs, kept, streams)).argmax(dim=1).numpy()
            expected = found["completeness"].baseline - (answers == subject.samples.labels).mean()
            assert found["completeness"].at(0.3) == pytest.approx(expected)

    def test_maps_are_found_whatever_the_shards(self, tmp_path, tiny):
        subject = find_subject(tiny, order_vs_value.PHOTOGRAPHS)
        evaluation = tl.evaluate(
            subject.model, subject.samples, ["gradcam"], metrics=[], out=tmp_path / "shards", shard_size=4
        )
        ids = [subject.samples.ids[k] for k in (5, 0, 3)]
        assert torch.equal(Modified(evaluation).originals("gradcam", ids), evaluation.maps("gradcam")[[5, 0, 3]])

    def test_real_photographs(self, shared_data):
        """On CIFAR-10, constants change what completeness and soundness see, and nothing that ROAD and deletion see."""
        stored = np.load(shared_data / "cifar10" / "cifar10_dev.npz")
        network = ResNet20()
        network.load_state_dict(load_file(shared_data / "cifar10" / "resnet20.safetensors"), strict=False)
        network.eval()
        images, labels = normalise(stored["x_test"][:40]), stored["y_test"][:40].reshape(-1).astype(np.int64)
        maps = tl.attribute(network, images, labels, "gradcam")
        versions = [maps, *(change(maps) for change in MODIFICATIONS.values())]
        options = {"performance": "probability", "batch_size": 40}

        def least(metric, **own):
            curves = [metric(network, images, labels, each, **options, **own) for each in versions]
            return min(hausdorff(curves[a], curves[b]) for a, b in ((0, 1), (0, 2), (1, 2)))

        shares = {"levels": (0.2, 0.5, 0.8)}
        assert least(tl.road, **shares) == least(tl.deletion, **shares) == 0
        assert least(tl.completeness, thresholds=(0.8, 0.5, 0.2)) > 0.1
        assert least(tl.soundness, levels=tuple(percent / 100 for percent in range(95, 0, -10))) > 0.02


class TestComparisons:
    def test_ensembles(self, tiny, monkeypatch):
        small = {name: {"method": name, "samples": 2, "steps": 2} for name in ensembles.ENSEMBLES}
        monkeypatch.setattr(ensembles, "PAPER", {ensembles.BASE: {"method": ensembles.BASE}, **small})
        outcome = ensembles.run(tiny, quietly)
        areas = {name: own["completeness"]["area"] for name, own in outcome.numbers["methods"].items()}
        better = [name for name in ensembles.ENSEMBLES if areas[name] > areas[ensembles.BASE]]
        assert outcome.claims[1].holds is (better == ["ig_sg"])
        assert f"ig_sq {areas['ig_sq']:.3f}" in outcome.claims[1].measured

    def test_gains_have_the_sign_of_the_metric(self, tiny, monkeypatch):
        monkeypatch.setattr(ensembles, "ENSEMBLES", ("random",))
        run = tl.evaluate(
            tiny.model, tiny.data, [ensembles.BASE, "random"], metrics=["road_morf", "road_lerf"], out=tiny.out
        )
        for metric, sign in (("road_morf", 1), ("road_lerf", -1)):
            areas = {name: run.results["methods"][name]["metrics"][metric]["area"] for name in run.methods}
            assert ensembles.gains(run, metric) == {"random": sign * (areas["random"] - areas[ensembles.BASE])}

    def test_benchmark(self, tiny, monkeypatch):
        monkeypatch.setattr(benchmark, "METHODS", ("gradcam", "extremal_perturbation", "random"))
        monkeypatch.setattr(benchmark, "_SMALL", {})
        monkeypatch.setattr(tl.METHODS["extremal_perturbation"], "__kwdefaults__", {
            **tl.METHODS["extremal_perturbation"].__kwdefaults__, "steps": 3,
        })  # fmt: skip
        outcome = benchmark.run(tiny, quietly)
        assert [claim.source for claim in outcome.claims] == [
            "Section 5.3, Fig. 8", "Section 5.3, Fig. 8b", "Section 5.3, Fig. 8a",
        ]  # fmt: skip
        assert "iba has no area" in outcome.claims[2].measured
        assert outcome.claims[2].holds is False

    def test_places(self):
        areas = {"a": 0.5, "b": 0.7, "c": 0.5}
        assert [benchmark._rank(areas, name) for name in "abcd"] == [2, 1, 2, 4]
        assert benchmark._place(areas, "b") == "b is number 1 of 3 with an area of 0.700"


class TestSubject:
    default = Embedded(model="mnist-cnn", data="mnist", limit=5)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"paper": True}, "`data` is missing: the paper's settings need a folder of ImageNet images"),
            ({"weights": "w.pt"}, "`weights` belongs to model of yours, and none is given. Pass --model, too"),
            ({"classes": "c.txt"}, "`classes` belongs to data of yours, and none is given. Pass --data, too"),
        ],
    )
    def test_refusals(self, tmp_path, options, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            find_subject(Options(out=tmp_path, **options), self.default)

    def test_own_data_is_taken_whole_but_for_a_limit(self, tiny):
        assert len(find_subject(tiny, self.default).samples) == 6
        assert len(find_subject(replace(tiny, limit=4), self.default).samples) == 4
        assert not find_subject(tiny, self.default).embedded

    def test_the_paper_takes_five_images_of_each_class(self, tmp_path):
        data = image_folder(tmp_path / "many", per_class=7)
        options = Options(out=tmp_path, paper=True, data=data, model=model_file(tmp_path))
        assert np.bincount(find_subject(options, self.default).samples.labels).tolist() == [5, 5, 5]

    def test_which_samples_of_a_class_depends_on_the_seed_alone(self):
        samples = from_arrays(np.eye(40), np.arange(40) % 2)
        chosen = some_of_each_class(samples, 3, seed=0)
        shuffled = samples.take(np.random.default_rng(0).permutation(40))
        assert set(some_of_each_class(shuffled, 3, seed=0).ids) == set(chosen.ids)
        assert set(some_of_each_class(samples, 3, seed=1).ids) != set(chosen.ids)


def draw(figure):
    figure.subplots().plot([0, 1], [0, 1])


class Calls:
    """An experiment that counts how often it is done."""

    def __init__(self, *, fails=False, title="It <works>", claim="Water & wine"):
        self.count, self.fails, self.claim = 0, fails, claim
        self.experiment = Experiment(title=title, source="Fig. 0", run=self.run)

    def run(self, options, tell):
        self.count += 1
        tell("working", 1, 1)
        if self.fails:
            raise ValueError("<b>no luck</b>")
        claims = [
            Claim(text=self.claim, source="Fig. 0a", measured="0.5", holds=holds) for holds in (True, False, None)
        ]
        return Outcome(numbers={"seed": options.seed}, claims=tuple(claims), figures={"second": draw, "first": draw})


@pytest.fixture
def calls(monkeypatch):
    """Three experiments, of which the second fails."""
    made = {"one": Calls(), "two": Calls(fails=True), "three": Calls()}
    monkeypatch.setattr(experiments, "EXPERIMENTS", {name: each.experiment for name, each in made.items()})
    monkeypatch.setattr("twinlens.cli.EXPERIMENTS", experiments.EXPERIMENTS)
    return made


class TestReproduce:
    def test_what_is_left_on_disk(self, tmp_path, calls):
        stored = experiments.reproduce("one", Options(out=tmp_path / "out", seed=4), quietly)
        assert stored == read_stored(tmp_path / "out")
        assert stored.figures == ("second", "first")
        names = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
        figures = {f"figures/{name}.{kind}" for name in stored.figures for kind in ("png", "pdf", "svg")}
        files = {
            "experiment.json",
            "results.json",
            "claims.json",
            "timings.json",
            "report.html",
            "figures/figures.json",
        }
        assert names == figures | files
        assert json.loads((tmp_path / "out" / "results.json").read_text()) == {"seed": 4}
        assert "seconds" not in (tmp_path / "out" / "results.json").read_text()

    def test_it_is_done_once(self, tmp_path, calls):
        options = Options(out=tmp_path)
        first = experiments.reproduce("one", options, quietly)
        assert experiments.reproduce("one", options, quietly) == first
        assert calls["one"].count == 1
        with pytest.raises(RunError, match="holds another experiment: seed is 0 there and 1 here"):
            experiments.reproduce("one", replace(options, seed=1), quietly)
        with pytest.raises(RunError, match="holds another experiment: name is 'one' there and 'three' here"):
            experiments.reproduce("three", options, quietly)

    def test_one_that_was_stopped_is_done_again(self, tmp_path, calls):
        experiments.reproduce("one", Options(out=tmp_path), quietly)
        (tmp_path / "claims.json").unlink()
        experiments.reproduce("one", Options(out=tmp_path), quietly)
        assert calls["one"].count == 2

    def test_one_of_another_version_is_done_again(self, tmp_path, calls, monkeypatch):
        experiments.reproduce("one", Options(out=tmp_path), quietly)
        monkeypatch.setattr("twinlens.experiments.stored.version", lambda package: "99")
        experiments.reproduce("one", Options(out=tmp_path), quietly)
        assert calls["one"].count == 2

    def test_the_same_numbers_give_the_same_bytes(self, tmp_path, calls):
        for folder in ("a", "b"):
            experiments.reproduce("one", Options(out=tmp_path / folder), quietly)
        for path in [*(tmp_path / "a" / "figures").iterdir(), tmp_path / "a" / "results.json"]:
            assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path

    def test_a_damaged_file_is_named(self, tmp_path, calls):
        experiments.reproduce("one", Options(out=tmp_path), quietly)
        (tmp_path / "experiment.json").write_text("{")
        with pytest.raises(RunError, match=r"experiment.json' cannot be read"):
            experiments.reproduce("one", Options(out=tmp_path), quietly)

    def test_all_of_them_though_one_fails(self, tmp_path, calls):
        told = []
        found, failures = experiments.reproduce_all(Options(out=tmp_path), lambda *step: told.append(step[0]))
        assert [stored.name for stored in found] == ["one", "three"]
        assert list(failures) == ["two"]
        assert told == ["1/3 one: working", "2/3 two: working", "3/3 three: working"]
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "two: &lt;b&gt;no luck&lt;/b&gt;" in page
        assert page.count('<section class="experiment"') == 2
        calls["two"].fails = False
        found, failures = experiments.reproduce_all(Options(out=tmp_path), quietly)
        assert (len(found), failures) == (3, {})
        assert [each.count for each in calls.values()] == [1, 2, 1]

    def test_all_of_them_refuse_what_belongs_to_one(self, tmp_path, calls):
        with pytest.raises(ValueError, match="`data` is not used by this experiment, because all of them run in their"):
            experiments.reproduce_all(Options(out=tmp_path, data="mnist"), quietly)

    def test_every_experiment_of_the_paper_has_a_name(self):
        assert list(experiments.EXPERIMENTS) == [
            "synthetic", "retraining", "spurious-edge", "semi-natural", "semi-natural-road", "order-vs-value",
            "ensembles", "benchmark",
        ]  # fmt: skip


class TestPage:
    def test_it_is_self_contained_and_trusts_no_text(self, tmp_path, monkeypatch):
        made = Calls(title="</style><script>alert(1)</script>", claim='"><img src=x>')
        monkeypatch.setattr(experiments, "EXPERIMENTS", {"one": made.experiment})
        stored = experiments.reproduce("one", Options(out=tmp_path), quietly)
        page = build_page([replace(stored, options={**stored.options, "data": "a b<i>"})])
        assert "<script" not in page
        assert "<img src=x>" not in page
        assert "<i>" not in page
        assert "--data &#x27;a b&lt;i&gt;&#x27;" in page
        assert re.search(r'Content-Security-Policy" content="default-src \'none\';', page)
        assert re.findall(r'(?:src|href)="([^"]{0,22})', page) == ["data:image/svg+xml;bas"] * 2
        assert page.index("one: second") < page.index("one: first")
        assert [page.count(word) for word in ("✓ holds", "✗ does not", "? open")] == [1, 1, 1]

    def test_a_drawing_that_is_too_large_is_shown_as_pixels(self, tmp_path, calls, monkeypatch):
        monkeypatch.setattr("twinlens.experiments.page._LARGEST_DRAWING", 10)
        stored = experiments.reproduce("one", Options(out=tmp_path), quietly)
        assert build_page([stored]).count("data:image/png;base64,iVBOR") == 2


class TestCommand:
    def run(self, capsys, *arguments):
        code = main(["reproduce", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    def test_one_experiment(self, tmp_path, capsys, calls):
        code, shown, said = self.run(capsys, "one", "--seed", 3, "--out", tmp_path)
        assert (code, said) == (0, "")
        for text in ("one: It <works>", "Water & wine", "does not", f"1 of 3 claims hold here: {tmp_path}/report.html"):
            assert text in shown
        assert json.loads((tmp_path / "experiment.json").read_text())["options"]["seed"] == 3

    def test_json_and_quiet(self, tmp_path, capsys, calls):
        code, shown, _ = self.run(capsys, "one", "--out", tmp_path, "--json")
        [found] = json.loads(shown)
        assert (code, found["experiment"], len(found["claims"])) == (0, "one", 3)
        assert self.run(capsys, "one", "--out", tmp_path, "--quiet") == (0, "", "")

    def test_all_of_them(self, tmp_path, capsys, calls):
        code, shown, said = self.run(capsys, "all", "--out", tmp_path)
        assert code == 2
        assert "2 of 6 claims hold here" in shown
        assert "1 of 3 experiments failed. two: <b>no luck</b> The others are kept." in said

    def test_refusals(self, tmp_path, capsys, calls):
        code, _, said = self.run(capsys, "four")
        assert (code, said) == (2, "twinlens: error: `name` must be one of one, two, three, or all; got 'four'.\n")
        assert self.run(capsys, "two", "--out", tmp_path)[0] == 2

    def test_by_default_each_has_a_directory_of_its_own(self, tmp_path, capsys, calls, monkeypatch):
        monkeypatch.chdir(tmp_path)
        self.run(capsys, "one")
        assert (tmp_path / "twinlens-reproduce-one" / "claims.json").exists()
