import twinlens as tl
from twinlens.laboratory.tasks import map_grid, sparse_linear
from twinlens.statistics.sensitivity import sensitivity

SWEEP = tl.Schedule(by="area", order="lerf", levels=tuple(p / 100 for p in range(98, 0, -2)))


def test_sensitivity_varies_one_choice_at_a_time():
    task = sparse_linear(400, features=60)
    maps = map_grid(task)["introduced 0.5"]
    table = tl.probe(task.model, task.inputs, task.labels, maps, schedule=SWEEP, imputer=task.imputer)
    opposite = tl.probe(task.model, task.inputs, task.labels, maps, schedule=tl.opposite_schedule(SWEEP, 60),
                        imputer=task.imputer)  # fmt: skip
    frame = sensitivity(table, level=0.5, opposite=opposite).set_index(["varied", "to"])
    base = tl.soundness_from_probes(table)
    assert frame.loc[("none", ""), "area"] == base.area()
    assert frame.loc[("none", ""), "at 0.5"] == base.at(0.5)
    for key in (("epsilon", "0.01"), ("start level", "None"), ("protocol", "paper"), ("performance", "accuracy")):
        assert frame.loc[key, "last"] == base.values[-1], key
    assert frame.loc[("epsilon", "0"), "last"] >= frame.loc[("epsilon", "0.05"), "last"]
    soco = tl.soundness_from_probes(table, protocol="soco")
    assert frame.loc[("protocol", "soco"), "last"] == soco.values[-1]
    assert frame.loc[("performance", "logit"), "area"] == tl.soundness_from_probes(table, performance="logit").area()
    two = tl.soundness_from_probes(table, estimator="two_sided", opposite=opposite)
    assert frame.loc[("estimator", "two_sided"), "area"] == two.area()
    assert "at 0.5" not in sensitivity(table).columns
