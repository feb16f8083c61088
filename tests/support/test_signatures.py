"""Options that are declared once show in every signature and docstring that takes them."""

import inspect
from typing import Annotated, TypedDict, Unpack

import pytest

import twinlens as tl
from tests.docstrings import entries
from twinlens.options import Options
from twinlens.probing.probe import ProbeOptions
from twinlens.support.fields import REQUIRED, Default, fields_of
from twinlens.support.signatures import lists_options

PROBING = {
    function.__name__: function
    for function in (
        tl.probe,
        tl.metrics.measure_metric,
        tl.soundness,
        tl.completeness,
        tl.road,
        tl.deletion,
        tl.insertion,
        tl.laboratory.selftest,
    )
}


def first_lowered(text):
    return text if text[1].isupper() else text[0].lower() + text[1:]


def check_lists(function, declared):
    parameters = inspect.signature(function).parameters
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters.values())
    documented = entries(function)
    assert sorted(documented) == sorted(parameters)
    options = fields_of(declared)
    assert options
    for option in options:
        shown = parameters[option.name]
        assert shown.kind is shown.KEYWORD_ONLY
        assert shown.annotation == option.type
        assert shown.default == (inspect.Parameter.empty if option.default is REQUIRED else option.default)
        assert option.help
        assert documented[option.name] == first_lowered(option.help), option.name
    return [option.name for option in options]


@pytest.mark.parametrize("name", PROBING)
def test_functions_that_probe_list_the_options_of_probing(name):
    listed = check_lists(PROBING[name], ProbeOptions)
    assert listed == [
        "sign", "channels", "resize", "output", "target", "features", "segments", "ids", "seed", "batch_size", "device",
        "progress",
    ]  # fmt: skip


def test_soundness_lists_its_own_options_too():
    parameters = inspect.signature(tl.soundness).parameters
    assert list(parameters)[:4] == ["model", "inputs", "labels", "maps"]
    assert parameters["epsilon"].default == 0.01
    assert parameters["seed"].default == 0
    assert parameters["sign"].default == "error"
    assert "Seed of ties and noise" not in tl.soundness.__doc__  # it goes on in lower case after the colon
    assert "seed: seed of ties and noise." in tl.soundness.__doc__


def test_evaluate_lists_every_option_of_a_run():
    listed = check_lists(tl.evaluate, Options)
    assert list(inspect.signature(tl.evaluate).parameters)[:3] == ["model", "data", "methods"]
    assert set(listed) == {option.name for option in fields_of(Options)}
    assert {"metrics", "epsilon", "imputer", "sign", "channels", "shard_size", "skip_bad", "engine"} <= set(listed)


def test_the_options_of_metrics_are_the_arguments_of_their_functions():
    values = {"soundness": tl.Soundness, "completeness": tl.Completeness, "road": tl.Road, "deletion": tl.Deletion,
              "insertion": tl.Insertion}  # fmt: skip
    for name, kind in values.items():
        parameters = inspect.signature(PROBING[name]).parameters
        for option in fields_of(kind):
            assert option.help, (name, option.name)
            if option.name != "imputer":  # None stands for the imputer of a run
                assert parameters[option.name].default == option.default, (name, option.name)


def test_a_function_of_ones_own():
    class How(TypedDict, total=False):
        seed: Annotated[int, Default(3)]
        """Seed of it."""

    @lists_options
    def draw(count: int, **how: Unpack[How]) -> int:
        """Draw.

        Args:
            count: how many.

        Returns:
            What was drawn.
        """
        return count + how.get("seed", 3)

    assert str(inspect.signature(draw)) == "(count: int, *, seed: int = 3) -> int"
    assert inspect.getdoc(draw).splitlines() == [
        "Draw.",
        "",
        "Args:",
        "    count: how many.",
        "    seed: seed of it.",
        "",
        "Returns:",
        "    What was drawn.",
    ]
    assert draw(1, seed=2) == 3
