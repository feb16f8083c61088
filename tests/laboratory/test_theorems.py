"""The paper's theorems, by enumerating all sets of twelve features.

Theorem 4.12 follows from Assumption 4.10. Theorem 4.11 needs the converse as well: equal performance has to imply equal
information. With Assumption 4.10 alone, |A*| / |A_inc| is a lower bound of the soundness.

Shapes: F features, 2^F sets of them. A set is a row of booleans, and its number has bit k if feature k belongs to it.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

import twinlens as tl
from twinlens.laboratory import true_completeness, true_soundness

FEATURES = 12
ZERO = tl.ConstantImputer(0.0)


def all_sets(features):
    """(2^F, F) every set."""
    return (np.arange(2**features)[:, None] >> np.arange(features) & 1).astype(bool)


def performance(sets, information, measure):
    """ρ(f(S)) of every set, by a model that adds up the information of what it sees."""
    weights = torch.from_numpy(information)

    def model(x):  # class 0 wins where the information seen is more than a third of all
        return torch.stack([x @ weights, (weights.sum() / 3).expand(len(x))], dim=1)

    inputs = torch.ones(sets.shape, dtype=torch.float64)
    logits = model(ZERO(inputs, torch.from_numpy(sets), [0] * len(sets)))
    if measure == "accuracy":
        return (logits.argmax(dim=1) == 0).double().numpy()
    return (logits[:, 0] - logits[:, 1]).numpy()  # the log-odds, which are never rounded to a certainty


def assumption_holds(rho, seen):
    """Assumption 4.10, for each pair of sets: better performance implies more information."""
    better, more = (values[:, None] < values[None] for values in (rho, seen))
    return not (better & ~more).any()


def converse_holds(rho, seen):
    """More information implies better performance, so that equal performance implies equal information."""
    better, more = (values[:, None] < values[None] for values in (rho, seen))
    return not (more & ~better).any()


def smallest(rho, mass, number):
    """|A*|_η: the least attribution of any subset of A_inc on which the model does as well as on A_inc."""
    numbers = np.arange(len(rho))
    within = (numbers & ~number) == 0
    return mass[within & (rho == rho[number])].min()


@pytest.fixture(scope="module", params=[0, 1])
def case(request):
    """Information of twelve features, of which five have none, and attribution of which some is false."""
    rng = np.random.default_rng(request.param)
    information = rng.permutation([0, 0, 0, 0, 0, 3, 5, 9, 17, 33, 65, 130]).astype(float)
    attribution = rng.integers(1, 100, FEATURES) * (rng.random(FEATURES) < 0.8)
    return information, attribution.astype(float)


def test_the_counterexample_to_theorem_4_11():
    """I = {a, b}, η = (3, 1), and a model that any one of both satisfies."""
    sets, attribution, information = all_sets(2), np.array([3.0, 1.0]), np.array([1.0, 1.0])
    rho = sets.any(axis=1).astype(float)
    assert assumption_holds(rho, sets @ information)
    assert not converse_holds(rho, sets @ information)
    assert true_soundness(attribution[None], information > 0) == [1.0]
    assert smallest(rho, sets @ attribution, number=3) / attribution.sum() == 0.25
    # Both algorithms include a first. Algorithm 1 stops there; Algorithm 3 finds that b gains nothing.
    model = lambda x: torch.stack([x.amax(dim=1), torch.full((len(x),), 0.5)], dim=1)  # noqa: E731
    inputs, maps = torch.ones(4, 2), torch.tensor([[3.0, 1.0]] * 4)
    curve = tl.soundness(model, inputs, [0] * 4, maps, levels=(0.5, 0.0), imputer=ZERO)
    assert curve.performance.tolist() == [1.0, 1.0]
    assert curve.at(1.0) == 1.0
    assert curve.values.tolist() == [1.0, 0.75]
    assert curve.false_features(maps)[0].tolist() == [False, True]


def test_assumption_4_10_alone_bounds_soundness_from_below(case):
    """Accuracy saturates: with a third of the information all is well."""
    information, attribution = case
    sets = all_sets(FEATURES)
    rho, seen, mass = performance(sets, information, "accuracy"), sets @ information, sets @ attribution
    assert set(rho) == {0.0, 1.0}
    assert assumption_holds(rho, seen)
    assert not converse_holds(rho, seen)
    attributed = attribution > 0
    included = [k for k in range(len(sets)) if not (sets[k] & ~attributed).any() and rho[k] > 0]
    bound = np.array([smallest(rho, mass, k) / mass[k] for k in included])
    true = true_soundness(sets[included] * attribution, information > 0)
    assert (bound <= true + 1e-12).all()
    assert (bound < true - 0.1).mean() > 0.5  # and far below it for most sets


def test_theorem_4_11_under_the_stronger_assumption(case):
    """Where log-odds are the performance, more information is always better performance, and the converse."""
    information, attribution = case
    sets = all_sets(FEATURES)
    rho, seen, mass = performance(sets, information, "log-odds"), sets @ information, sets @ attribution
    assert assumption_holds(rho, seen)
    assert converse_holds(rho, seen)
    attributed, predictive = attribution > 0, information > 0
    included = [k for k in range(len(sets)) if not (sets[k] & ~attributed).any() and (sets[k] & predictive).any()]
    assert len(included) > 400
    bound = np.array([smallest(rho, mass, k) / mass[k] for k in included])
    true = true_soundness(sets[included] * attribution, predictive)
    assert bound == pytest.approx(true, abs=1e-12)
    assert len(np.unique(true.round(6))) > 100


@pytest.mark.parametrize("measure", ["accuracy", "log-odds"])
def test_theorem_4_12(case, measure):
    """For every pair of attributed sets: less performance without the first implies that it is more complete."""
    information, _ = case
    sets = all_sets(FEATURES)
    rho = performance(sets, information, measure)
    assert assumption_holds(rho, sets @ information)
    complete = true_completeness(sets.astype(float), information)
    without = rho[::-1]  # the set with all bits changed is the one without these features
    assert np.array_equal(~sets, sets[::-1])
    worse = without[:, None] < without[None]
    assert worse.any()
    assert (complete[:, None] > complete[None])[worse].all()
    # Equal performance decides nothing: where it saturates, sets of any completeness are alike.
    alike = without[:, None] == without[None]
    apart = np.abs(complete[:, None] - complete[None])[alike].max()
    assert apart > 0.5 if measure == "accuracy" else apart == 0


@pytest.mark.slow
def test_saturation_in_the_laboratory():
    """Exact maps have a soundness of 1; docs/concepts/theory.md has what Algorithm 3 finds."""
    found = {"accuracy": [], "probability": []}
    for make in (tl.laboratory.linear, tl.laboratory.sparse_linear, tl.laboratory.interaction, tl.laboratory.network,
                 tl.laboratory.suppressor):  # fmt: skip
        task = make(120, seed=1)
        exact = task.information
        assert true_soundness(exact, task.predictive) == pytest.approx(1.0)
        for measure, values in found.items():
            curve = tl.soundness(task.model, task.inputs, task.labels, exact, imputer=task.imputer, performance=measure)
            values.append(curve.values[-1])
    assert all(by_accuracy < each < 1 for by_accuracy, each in zip(*found.values(), strict=True))
    page = " ".join((Path(__file__).resolve().parents[2] / "docs" / "concepts" / "theory.md").read_text().split())
    ranges = [f"{min(values):.2f} to {max(values):.2f}" for values in found.values()]
    assert f"finds {ranges[0]} for the whole map by accuracy, and {ranges[1]} by the probability" in page
