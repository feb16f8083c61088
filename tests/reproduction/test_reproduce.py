import json
import re
from dataclasses import replace

import pytest

from tests.reproduction.counting import Calls
from tests.reproduction.watching import Watch
from twinlens import reproduction
from twinlens.errors import RunError
from twinlens.reproduction import ExperimentOptions
from twinlens.reproduction.experiment_page import build_page
from twinlens.reproduction.experiment_storage import command, read_stored
from twinlens.support.estimate import Estimate


class TestReproduce:
    def test_what_is_left_on_disk(self, tmp_path, calls):
        stored = reproduction.reproduce("one", ExperimentOptions(out=tmp_path / "out", seed=4), Watch())
        assert stored == read_stored(tmp_path / "out")
        assert stored.figures == ("second", "first")
        names = {path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*.*")}
        figures = {f"figures/{name}.{kind}" for name in stored.figures for kind in ("png", "pdf", "svg")}
        assert names == figures | {"experiment.json", "results.json", "report.html"}
        assert json.loads((tmp_path / "out" / "results.json").read_text()) == {"seed": 4}
        assert "seconds" not in (tmp_path / "out" / "results.json").read_text()

    def test_it_is_done_once(self, tmp_path, calls):
        options = ExperimentOptions(out=tmp_path)
        first = reproduction.reproduce("one", options, Watch())
        assert reproduction.reproduce("one", options, Watch()) == first
        assert calls["one"].count == 1
        about = json.loads((tmp_path / "experiment.json").read_text())
        del about["options"]["compile"]  # as of a version that had no such option
        (tmp_path / "experiment.json").write_text(json.dumps(about))
        assert reproduction.reproduce("one", options, Watch()) == first
        assert reproduction.reproduce("one", replace(options, allow_code=True), Watch()) == first
        with pytest.raises(RunError, match="'twinlens reproduce one', not 'twinlens reproduce one --seed 1'"):
            reproduction.reproduce("one", replace(options, seed=1), Watch())
        with pytest.raises(RunError, match="'twinlens reproduce one', not 'twinlens reproduce three'"):
            reproduction.reproduce("three", options, Watch())

    def test_one_that_was_stopped_is_done_again(self, tmp_path, calls):
        reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
        (tmp_path / "experiment.json").unlink()
        reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
        assert calls["one"].count == 2

    def test_one_of_another_version_is_done_again(self, tmp_path, calls, monkeypatch):
        reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
        monkeypatch.setattr("twinlens.reproduction.experiment_storage.environment", lambda: {"twinlens": "99"})
        reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
        assert calls["one"].count == 2

    def test_the_same_numbers_give_the_same_bytes(self, tmp_path, calls):
        for folder in ("a", "b"):
            reproduction.reproduce("one", ExperimentOptions(out=tmp_path / folder), Watch())
        for path in [*(tmp_path / "a" / "figures").iterdir(), tmp_path / "a" / "results.json"]:
            assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path

    def test_one_of_another_format_is_refused(self, tmp_path, calls):
        reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
        file = tmp_path / "experiment.json"
        about = json.loads(file.read_text())
        for changed, reason in (
            ({"format": 1}, "its format is 1"),
            ({"judged": 3}, "judged"),
            ({"claims": 3}, "claims"),
        ):
            file.write_text(json.dumps(about | changed))
            with pytest.raises(RunError, match=f"was written by another version of twinlens: .*{reason}"):
                reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
        file.write_text("[]")
        with pytest.raises(RunError, match="was written by another version of twinlens"):
            reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())

    def test_a_damaged_file_is_named(self, tmp_path, calls):
        reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
        (tmp_path / "experiment.json").write_text("{")
        with pytest.raises(RunError, match=r"experiment.json' cannot be read"):
            reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())

    def test_all_of_them_though_one_fails(self, tmp_path, calls):
        progress = Watch()
        complete, failures = reproduction.reproduce_all(ExperimentOptions(out=tmp_path), progress)
        assert [stored.name for stored in complete] == ["one", "three"]
        assert list(failures) == ["two"]
        assert list(filter(None, progress.notes)) == ["1/3 one", "2/3 two", "3/3 three"]
        assert progress.advances == [("working", 1)] * 3
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "two: &lt;b&gt;no luck&lt;/b&gt;" in page
        assert page.count('<section class="experiment"') == 2
        calls["two"].fails = False
        complete, failures = reproduction.reproduce_all(ExperimentOptions(out=tmp_path), Watch())
        assert (len(complete), failures) == (3, {})
        assert [each.count for each in calls.values()] == [1, 2, 1]

    def test_all_of_them_refuse_what_belongs_to_one(self, tmp_path, calls):
        with pytest.raises(ValueError, match="`data` is not used by this experiment, because all of them run in their"):
            reproduction.reproduce_all(ExperimentOptions(out=tmp_path, data="mnist"), Watch())

    def test_every_experiment_of_the_paper_has_a_name(self):
        assert list(reproduction.EXPERIMENTS) == [
            "synthetic", "retraining", "spurious-edge", "semi-natural", "semi-natural-road", "order-vs-value",
            "ensembles", "benchmark",
        ]  # fmt: skip


class TestPage:
    def test_it_is_self_contained_and_trusts_no_text(self, tmp_path, monkeypatch):
        calls = Calls(title="</style><script>alert(1)</script>", claim='"><img src=x>')
        monkeypatch.setattr(reproduction, "EXPERIMENTS", {"one": calls.experiment})
        stored = reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
        page = build_page([replace(stored, options=replace(stored.options, data="a b<i>"))])
        assert "<script" not in page
        assert "<img src=x>" not in page
        assert "<i>" not in page
        assert "--data &#x27;a b&lt;i&gt;&#x27;" in page
        assert re.search(r'Content-Security-Policy" content="default-src \'none\';', page)
        assert re.findall(r'(?:src|href)="([^"]{0,22})', page) == ["data:image/svg+xml;bas"] * 2
        assert page.index("one: second") < page.index("one: first")
        assert [page.count(word) for word in ("✓ holds", "✗ does not", "? open", "= by construction")] == [1, 1, 1, 1]
        assert "A smoke run: wine &lt; water." in page
        assert "The paper's statements: 1 of 3 hold, 1 does not, 1 open" in page
        assert "Our own: 0 of 1 hold, 1 by construction" in page
        assert "Open: so &amp; so" in page

    def test_margins_are_shown_and_runs_with_own_data_are_no_smoke_runs(self, tmp_path, calls):
        stored = reproduction.reproduce("one", ExperimentOptions(out=tmp_path, data="mnist"), Watch())
        assert stored.smoke == ""
        margin = Estimate(value=0.25, low=0.1, high=0.4, samples=50)
        judged = replace(stored.claims[0], estimate=margin, unit="test images")
        page = build_page([replace(stored, claims=(judged,))])
        assert "Margin: +0.250 [+0.100, +0.400] over 50 test images." in page
        assert "smoke" not in page
        assert "Our own" not in page

    def test_the_command_names_what_differs_from_the_default(self, tmp_path, calls):
        stored = reproduction.reproduce("one", ExperimentOptions(out=tmp_path), Watch())
        assert command("one", stored.options) == "twinlens reproduce one"
        options = replace(stored.options, paper=True, seed=3, device="cpu")
        assert command("one", options) == "twinlens reproduce one --paper --seed 3 --device cpu"
