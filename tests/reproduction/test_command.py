import json

import pytest

from twinlens import reproduction
from twinlens.cli.main import main


@pytest.fixture(autouse=True)
def _registered(calls, monkeypatch):
    monkeypatch.setattr("twinlens.cli.reproduce.EXPERIMENTS", reproduction.EXPERIMENTS)


def run(capsys, *arguments):
    code = main(["reproduce", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_one_experiment(tmp_path, capsys, calls):
    code, shown, said = run(capsys, "one", "--seed", 3, "--out", tmp_path)
    assert (code, said) == (0, "")
    counts = "The paper's statements: 1 of 3 hold, 1 does not, 1 open. Our own: 0 of 1 hold, 1 by construction."
    for text in (
        "one: It <works>",
        "A smoke run: wine < water. Claims",
        "Water & wine",
        "does not",
        "(so & so)",
        counts,
    ):
        assert text in shown
    assert f"{tmp_path}/report.html" in shown
    assert json.loads((tmp_path / "experiment.json").read_text())["options"]["seed"] == 3


def test_json_and_quiet(tmp_path, capsys, calls):
    code, shown, _ = run(capsys, "one", "--out", tmp_path, "--json")
    [stored] = json.loads(shown)
    assert (code, stored["name"], len(stored["claims"])) == (0, "one", 4)
    assert (stored["smoke"], stored["options"]["out"]) == ("wine < water", str(tmp_path))
    assert [claim["verdict"] for claim in stored["claims"]][-1] == "by construction"
    assert run(capsys, "one", "--out", tmp_path, "--quiet") == (0, "", "")


@pytest.mark.slow
def test_all_of_them(tmp_path, capsys, calls):
    code, shown, said = run(capsys, "all", "--out", tmp_path)
    assert code == 2
    assert "The paper's statements: 2 of 6 hold, 2 do not, 2 open. Our own: 0 of 2 hold, 2 by construction." in shown
    assert "1 of 3 experiments failed. two: <b>no luck</b> The others are complete." in said


def test_refusals(tmp_path, capsys, calls):
    code, _, said = run(capsys, "four")
    assert (code, said) == (2, "twinlens: error: `name` must be one of one, two, three, all; got 'four'.\n")
    assert run(capsys, "two", "--out", tmp_path)[0] == 2


def test_the_help_names_every_reading(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    shown = capsys.readouterr().out
    assert "--noise deviation|variance|both" in shown
    assert "--protocol paper|soco|both" in shown


def test_by_default_each_has_a_directory_of_its_own(tmp_path, capsys, calls, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(capsys, "one")
    assert (tmp_path / "twinlens-reproduce-one" / "experiment.json").exists()
