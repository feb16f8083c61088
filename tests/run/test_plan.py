import twinlens as tl
from twinlens.metrics.catalogue import METRICS
from twinlens.run.manifest import Settings
from twinlens.run.plan import needed_sweeps, plan_sweeps

PAPER = tl.metrics.PROTOCOLS["paper"]
FEATURES = 784


def bound(names="default", **options):
    metrics = tl.Options(metrics=names, **options).metric_values
    return {name: metric.bound(tl.LinearImputer(), neighbours=True) for name, metric in metrics.items()}


def wanted(names="default", control="none", **options):
    metrics = bound(names, **options)
    asked = tl.Options(control=control)
    return Settings.of(metrics, tl.LinearImputer(), asked, samples=9).sweeps(metrics, FEATURES)


def test_no_probe_is_planned_twice():
    sweeps = plan_sweeps(wanted("all"), [])
    assert [sweep.name for sweep in sweeps] == [
        "area-lerf-linear", "area-morf-linear", "value-morf-linear", "area-morf-constant", "area-lerf-blur"
    ]  # fmt: skip
    # The pair takes levels of the paper's and the untouched input; ROAD adds no other.
    assert len(sweeps[0].schedule.levels) == len(PAPER.levels) + 1
    assert plan_sweeps(wanted("all"), sweeps) == []


def test_the_default_is_the_pair_of_sweeps_and_the_thresholds_of_completeness():
    sweeps = plan_sweeps(wanted(), [])
    assert {sweep.name: len(sweep.schedule.levels) for sweep in sweeps} == {
        "area-lerf-linear": 20,
        "area-morf-linear": 20,
        "value-morf-linear": 10,
    }
    assert plan_sweeps(wanted("headline"), []) == sweeps[:2]
    # At its own levels, the paper's soundness needs those that the pair does not have.
    [more] = plan_sweeps(wanted("paper"), sweeps)
    assert len(more.schedule.levels) == len(PAPER.levels) - 19


def test_the_control_covers_short_sweeps_or_all():
    own = plan_sweeps(wanted("all"), [])
    assert {sweep.exchanged for sweep in own} == {0.0}
    shuffled, everything = (plan_sweeps(wanted("all", control=control), own) for control in ("shuffled", "all"))
    assert [sweep.name for sweep in shuffled] == [f"{sweep.name}-exchanged" for sweep in own]
    assert {sweep.exchanged for sweep in shuffled} == {1.0}  # of a small run
    assert len(shuffled[0].schedule.levels) < len(PAPER.levels) / 2 < len(everything[0].schedule.levels)


def test_a_metric_that_is_added_needs_only_new_levels():
    first = plan_sweeps(wanted(["road_lerf"]), [])
    more = plan_sweeps(wanted(["road_lerf", "soundness"]), first)
    assert [sweep.name for sweep in more] == ["area-lerf-linear-2"]
    there, added = set(first[0].schedule.levels), set(more[0].schedule.levels)
    assert not there & added
    assert there | added == {0.0, *PAPER.levels}


def test_another_imputer_is_another_sweep_and_another_epsilon_is_not():
    first = plan_sweeps(wanted(["soundness"]), [])
    assert plan_sweeps(wanted(["soundness"], epsilon=0.5), first) == []
    other = METRICS["soundness"].bound(tl.LinearImputer(noise=0.5), neighbours=True)
    assert [sweep.name for sweep in plan_sweeps(other.sweeps(FEATURES), first)] == ["area-lerf-linear-2"]


def test_only_sweeps_that_are_read_are_needed():
    there = plan_sweeps(wanted("all", control="all"), [])
    needed = needed_sweeps(wanted(["deletion", "soundness"]), there)
    assert [sweep.name for sweep, _ in needed] == ["area-lerf-linear", "area-morf-constant"]
    assert [imputer for _, imputer in needed] == [tl.LinearImputer(), tl.ConstantImputer(0.0)]
