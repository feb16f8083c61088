from tests.reproduction.watching import accuracy_of
from twinlens.reproduction import spurious_edge


def test_claims_about_the_edge_follow_the_numbers():
    def verdicts(clean, marked):
        original = {"clean": accuracy_of(0.9), "marked": accuracy_of(0.9)}
        retrained = {"clean": accuracy_of(clean), "marked": accuracy_of(marked)}
        return [claim.verdict for claim in spurious_edge._claims({"original": original, "retrained": retrained})]

    assert verdicts(0.5, 1.0) == ["holds", "holds"]
    assert verdicts(0.8, 0.9) == ["does not hold", "does not hold"]
    assert verdicts(0.5, 0.6) == ["holds", "does not hold"]
    assert verdicts(0.5, 0.8) == ["holds", "does not hold"]
    assert verdicts(0.75, 1.0) == ["open", "holds"]
