"""Stored results: kept by key, and refused if the file is damaged."""

import pytest

from twinlens.checks.result_store import ResultStore, digest_of
from twinlens.errors import RunError


def test_results_survive_in_the_file(tmp_path):
    store = ResultStore(tmp_path / "results.json")
    store.put("a", [1, 2])
    store.put("b", 0.5)
    again = ResultStore(tmp_path / "results.json")
    assert (again.get("a"), again.get("b"), again.get("c")) == ([1, 2], 0.5, None)


def test_without_a_file_results_stay_in_memory():
    store = ResultStore(None)
    store.put("a", 1)
    assert store.get("a") == 1


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": 1}', '{"format": 2, "results": {}}', '{"format": 1, "results": 3}', "[" * 10**5],
)
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(RunError, match=r"'.*results\.json' holds no stored results, or is damaged"):
        ResultStore(path)


def test_digests_differ_with_every_part():
    assert len({digest_of(1, b"a"), digest_of(2, b"a"), digest_of(1, b"b"), digest_of("1", b"a")}) == 4
