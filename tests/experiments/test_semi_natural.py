import numpy as np

from twinlens.experiments import semi_natural, semi_natural_road
from twinlens.experiments.pictures import Pictures
from twinlens.experiments.semi_natural_road import MARKED, REAL, SYNTHETIC, make_sets
from twinlens.experiments.watermarks import drawn_images
from twinlens.laboratory.localisation import interval_of_mean


def test_the_three_sets_have_the_same_watermarks():
    images = drawn_images(30, 32)
    found = make_sets(
        Pictures(
            name="x",
            train=images[:20],
            train_labels=np.arange(20) % 10,
            test=images[20:],
            test_labels=np.arange(10),
            classes=10,
        ),
        seed=3,
    )
    assert np.array_equal(found[REAL].train, images[:20])
    assert np.array_equal(found[MARKED].test_labels, found[SYNTHETIC].test_labels)
    assert not np.array_equal(found[MARKED].train_labels, found[REAL].train_labels)
    changed = (found[MARKED].test != images[20:]).any(axis=3)
    drawn = (found[SYNTHETIC].test != 128).any(axis=3)
    assert not (changed & ~drawn).any()
    assert np.array_equal(found[MARKED].test[drawn], found[SYNTHETIC].test[drawn])


def test_claims_about_watermarks_need_intervals_that_do_not_overlap():
    def share(mean, spread):
        values = mean + spread * np.linspace(-1, 1, 50)
        return interval_of_mean(values, [str(k) for k in range(50)])

    def holds(rect, pooling):
        row = {"accuracy": 1.0, "attr": {"Rect": rect, "Pooling": pooling}}
        return [claim.holds for claim in semi_natural._claims({"number": row, "stripe": row})][:2]

    assert holds(share(0.8, 0.1), share(0.2, 0.1)) == [True, False]
    assert holds(share(0.2, 0.1), share(0.8, 0.1)) == [False, True]
    assert holds(share(0.52, 0.4), share(0.5, 0.4)) == [False, False]


def test_rankings_are_certain_refuted_or_open():
    generator = np.random.default_rng(0)
    losses = {name: value + 0.02 * generator.normal(size=200) for name, value in (("a", 0.8), ("b", 0.5), ("c", 0.51))}

    def holds(better, worse):
        return semi_natural_road._ranked(losses, better, worse, text="t", source="s").holds

    assert holds(["a"], ["b", "c"]) is True
    assert holds(["b"], ["a", "c"]) is False
    assert holds(["b"], ["c"]) is None
