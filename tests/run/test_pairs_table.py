from twinlens.run.pairs_table import pairs_text, read_pairs
from twinlens.statistics.verdicts import Pair
from twinlens.support.estimate import Estimate


def test_pairs_survive_csv():
    difference = Estimate(value=0.1, low=0.0, high=0.2, samples=9, p=0.1)
    pair = Pair(
        metric="completeness", first="a", second="b", difference=difference, p_alone=0.05, wins=0.9, sample_wins=None
    )
    assert read_pairs(pairs_text([pair]), ["completeness"]) == (pair,)
