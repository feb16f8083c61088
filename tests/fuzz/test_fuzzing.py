from tests.fuzz.fuzzing import CaseError, Fuzzer, fuzz


def test_a_hundred_bad_inputs_end_clearly():
    """The short part of `make fuzz`, with a fixed seed."""
    done = fuzz(seed=7, cases=120)
    assert done.failures == []
    assert done.counts["refused"] > 40
    assert done.counts["accepted"] > 5


def test_what_counts_as_a_failure(tmp_path):
    fuzzer = Fuzzer(tmp_path, seed=0)

    def traceback():
        raise KeyError("x")

    def outside():
        (tmp_path / "tiny_model.py").write_text("changed")
        return 0

    def many_lines():
        raise ValueError("one\ntwo")

    def silent():
        raise CaseError("NaN without a word")

    for case in (traceback, many_lines, silent, outside):
        fuzzer.outcome(case.__name__, case)
    assert [failure.partition(":")[0] for failure in fuzzer.failures] == [
        "traceback",
        "many_lines",
        "silent",
        "outside",
    ]
    assert fuzzer.counts == {"failed": 4}
