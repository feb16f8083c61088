"""The ceiling: on tasks of the laboratory, where the best order is known."""

import itertools
import json

import numpy as np
import pytest
import torch

import twinlens as tl
from tests.tiny import tiny_model
from twinlens import laboratory
from twinlens.data.segments import equal_parts
from twinlens.metrics.curves import loss_area

LEVELS = (0.25, 0.5, 0.75)


def best_of_all(task, order, levels=LEVELS):
    """The best area over all orders, by every set of features there is: features are set to zero one by one."""
    features = task.inputs.shape[1]
    sets = np.array(list(itertools.product([False, True], repeat=features)))  # True where a feature is kept
    best = []
    for row, label in zip(task.inputs, task.labels, strict=True):
        chances = torch.softmax(task.model(row * torch.from_numpy(sets)), dim=1)[:, label].numpy()
        of_set = {tuple(keep): chance for keep, chance in zip(sets.tolist(), chances, strict=True)}
        areas = []
        for ranked in itertools.permutations(range(features)):  # the most relevant first
            kept = []
            for level in levels:
                removed = round(features * level)
                gone = ranked[:removed] if order == "morf" else ranked[features - removed :]
                kept.append(of_set[tuple(k not in gone for k in range(features))])
            areas.append(of_set[(True,) * features] - np.array(kept))
        areas = loss_area(np.array(levels), np.array(areas))
        best.append(areas.max() if order == "morf" else areas.min())
    return np.array(best)


def search(task, metric="deletion", levels=LEVELS, **given):
    kinds = {"deletion": tl.Deletion, "insertion": tl.Insertion}
    asked = kinds[metric](levels=levels, performance="probability", imputer=tl.ConstantImputer(0.0))
    return tl.checks.ceiling(task.model, task.inputs, task.labels, metric=asked, **given)


def of_maps(found, task, maps):
    return found.share(found.measure(task.model, task.inputs, task.labels, maps)).value


@pytest.mark.parametrize("metric", ["deletion", "insertion"])
def test_greedy_finds_the_optimum_where_evidence_adds_up(metric):
    task = laboratory.linear(4, features=6, seed=1)
    found = search(task, metric, width=1)
    assert found.values == pytest.approx(best_of_all(task, "morf" if metric == "deletion" else "lerf"), abs=1e-12)
    towards = np.where(task.labels == 1, 1.0, -1.0)[:, None] * task.inputs.numpy()
    # The maps rank features by what they contribute, as far as levels can tell.
    for ranked, worth in zip(found.maps.numpy(), towards, strict=True):
        first, second = (set(np.argsort(-values)[:3]) for values in (ranked, worth))
        assert first == second


@pytest.mark.parametrize("metric", ["deletion", "insertion"])
def test_a_wide_beam_finds_the_optimum_where_features_interact(metric):
    task = laboratory.interaction(4, features=6, groups=3, seed=2)
    best = best_of_all(task, "morf" if metric == "deletion" else "lerf")
    wide = search(task, metric, width=64)
    assert wide.values == pytest.approx(best, abs=1e-12)


def test_looking_ahead_finds_what_greedy_cannot_see():
    """Of products neither partner gains anything alone."""
    task = laboratory.interaction(12, features=8, groups=4, seed=3)
    levels = tuple(k / 8 for k in range(1, 8))
    greedy, wide = (search(task, "insertion", levels, width=width) for width in (1, 6))
    assert wide.values.mean() < greedy.values.mean() - 0.01  # a loss: less is better
    assert (wide.calls > greedy.calls).all()


def test_shares_go_from_chance_to_the_ceiling():
    task = laboratory.linear(40, features=12, seed=4)
    found = search(task, levels=(0.2, 0.4, 0.6), orders=30)
    towards = np.where(task.labels == 1, 1.0, -1.0)[:, None] * task.inputs.numpy()
    truth = towards - towards.min()
    assert of_maps(found, task, truth) == pytest.approx(1)
    assert of_maps(found, task, truth.max() - truth) < -0.5
    random = np.random.default_rng(0).random(truth.shape)
    chance = found.share(found.measure(task.model, task.inputs, task.labels, random))
    assert chance.low < 0 < chance.high
    half = found.share(found.measure(task.model, task.inputs, task.labels, task.information))
    assert 0.5 < half.low < half.value < half.high < 1.2  # blind to evidence against the label
    assert found.values == pytest.approx(
        found.measure(task.model, task.inputs, task.labels, found.maps).area_per_sample()
    )


def test_batches_and_company_change_nothing():
    model, inputs = tiny_model(), torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    given = {"metric": "road_morf", "width": 2, "orders": 2, "seed": 3}
    parts = equal_parts((8, 8), 9).expand(3, 8, 8)
    whole = tl.checks.ceiling(model, inputs, [0, 1, 2], ids=["a", "b", "c"], segments=parts, **given)
    small = tl.checks.ceiling(model, inputs, [0, 1, 2], ids=["a", "b", "c"], segments=parts, batch_size=3, **given)
    alone = tl.checks.ceiling(model, inputs[1:2], [1], ids=["b"], segments=parts[:1], **given)
    assert torch.equal(whole.maps, small.maps)
    assert torch.equal(whole.maps[1], alone.maps[0])
    assert whole.chance[1] == pytest.approx(alone.chance[0], abs=1e-6)
    # At least as good as every random order that it was compared with.
    assert (whole.values >= whole.chance).all()


def test_inputs_are_cut_into_squares_by_default():
    model, inputs = tiny_model(), torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    found = tl.checks.ceiling(
        model, inputs, [0], metric=tl.Deletion(levels=(0.02,), performance="logit"), width=1, orders=1
    )
    assert found.segments.unique().tolist() == list(range(49))
    assert found.calls.tolist() == [49]  # one square is removed, and each of them was tried


def test_places_that_are_no_feature_always_stay():
    task = laboratory.linear(3, features=5, seed=1)
    segments = torch.tensor([[0, 0, 1, 2, -1]]).expand(3, -1)
    seen = []

    def model(x):
        seen.append(x[:, 4].clone())
        return task.model(x)

    found = tl.checks.ceiling(model, task.inputs, task.labels, width=1, orders=1, segments=segments)
    assert all(bool(torch.isin(values, task.inputs[:, 4]).all()) for values in seen)
    assert (found.maps[:, 4] == 0).all()
    assert (found.maps[:, 0] == found.maps[:, 1]).all()


def test_a_search_goes_on_where_it_was_interrupted(tmp_path):
    task, file = laboratory.linear(4, features=6, seed=1), tmp_path / "orders.json"
    whole = search(task, width=1)

    rows = [0]

    def failing(x):
        rows[0] += len(x)
        if rows[0] > 10 * 4 * 4 + 60:
            raise KeyboardInterrupt
        return task.model(x)

    with pytest.raises(KeyboardInterrupt):
        tl.checks.ceiling(failing, task.inputs, task.labels, metric=whole.metric, width=1, out=file)
    done = len(json.loads(file.read_text())["results"])
    assert 0 < done < 4
    again = search(task, width=1, out=file)
    assert torch.equal(again.maps, whole.maps)
    assert (again.calls == 0).sum() == done
    assert (search(task, width=1, out=file).calls == 0).all()


def test_orders_of_another_search_or_model_are_not_used(tmp_path):
    task, file = laboratory.linear(3, features=5, seed=1), tmp_path / "orders.json"
    first = search(task, width=1, out=file)
    assert (search(task, width=2, out=file).calls > 0).all()
    other = tl.checks.ceiling(
        lambda x: task.model(x) * 2, task.inputs, task.labels, metric=first.metric, width=1, out=file
    )
    assert (other.calls > 0).all()
    assert (search(task, width=1, out=file).calls == 0).all()
    file.write_text("{}")
    with pytest.raises(tl.RunError, match="holds no stored results, or is damaged"):
        search(task, width=1, out=file)


def test_what_cannot_be_searched_is_refused():
    task = laboratory.linear(3, features=5)
    for given, error, message in (
        ({"metric": "soundness"}, ValueError, "`metric` must be one of deletion, insertion, road_morf, road_lerf"),
        ({"metric": tl.Completeness()}, TypeError, "`metric` must depend on ranks only"),
        ({"metric": tl.Deletion()}, ValueError, "too coarse for a search"),
        ({"width": 0}, ValueError, "`width` must be at least 1"),
        ({"orders": 0}, ValueError, "`orders` must be at least 1"),
    ):
        with pytest.raises(error, match=message):
            tl.checks.ceiling(task.model, task.inputs, task.labels, **given)
    found = search(task, width=1)
    with pytest.raises(ValueError, match="`curve` must have the ceiling's samples"):
        found.share(tl.deletion(task.model, task.inputs[:2], task.labels[:2], task.inputs[:2].abs()))
