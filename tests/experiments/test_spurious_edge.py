from twinlens.experiments import spurious_edge


def test_claims_about_the_edge_follow_the_numbers():
    def holds(clean, marked):
        found = {"original": {"clean": 0.9, "marked": 0.9}, "retrained": {"clean": clean, "marked": marked}}
        return [claim.holds for claim in spurious_edge._claims(found)]

    assert holds(0.5, 1.0) == [True, True]
    assert holds(0.8, 0.9) == [False, False]
    assert holds(0.5, 0.6) == [True, False]
    assert holds(0.5, 0.8) == [True, False]
