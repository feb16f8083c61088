"""What the page says about each method: where its maps come from, its options, its time, its negative values."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from twinlens.attribution import METHODS
from twinlens.attribution.method import options_of
from twinlens.run.manifest import MethodRecord
from twinlens.run.stored_run import StoredRun
from twinlens.support.fields import JSON, to_json

_LONGEST = 60  # characters of a setting
_WITHOUT_EFFECT = ("batch_size", "sign")  # maps do not depend on the first; the second is told by what it did


def describe_method(evaluation: StoredRun, name: str, seconds: Mapping[str, float]) -> dict[str, JSON]:
    """Return the description of a method's maps as the run computed them."""
    record = evaluation.manifest.methods.get(name, MethodRecord())
    changed, usual = split_options(record)
    return {
        "description": _description(record),
        "changed": [[option, show_setting(value)] for option, value in changed.items()],
        "usual": [[option, show_setting(value)] for option, value in usual.items()],
        "seconds": seconds.get(name),
        "negative": evaluation.results.methods[name].negative,
    }


def split_options(record: MethodRecord) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Return the options that differ from their defaults, and the others, without those that were left open.

    Example:
        >>> split_options(MethodRecord(method="integrated_gradients", options={"steps": 8, "batch_size": 128}))
        ({'steps': 8}, {'baseline': 0.0})
    """
    changed = {name: value for name, value in changed_options(record).items() if name not in _WITHOUT_EFFECT}
    silent, defaults = {*changed, *_WITHOUT_EFFECT}, _defaults(record)
    return changed, {name: value for name, value in defaults.items() if name not in silent and value is not None}


def changed_options(record: MethodRecord) -> dict[str, JSON]:
    """Return the options that differ from their defaults and may change the maps."""
    defaults = _defaults(record)
    own = {name: value for name, value in record.options.items() if name != "batch_size"}
    return {name: value for name, value in own.items() if name not in defaults or value != defaults[name]}


def _defaults(record: MethodRecord) -> dict[str, JSON]:
    options = options_of(METHODS[record.method]) if record.method in METHODS else {}
    return {name: to_json(parameter.default) for name, parameter in options.items()}


def _description(record: MethodRecord) -> str:
    """Return the first sentence about a built-in method, or where the maps come from."""
    if record.method in METHODS:
        return (inspect.getdoc(METHODS[record.method]) or "").split("\n\n")[0].replace("\n", " ")
    if record.function is not None:
        return f"Your function {record.function}, digest {str(record.source)[:8]}."
    return "Your maps." if record.maps is None else f"Your maps, digest {record.maps[:8]}."


def show_setting(value: JSON) -> str:
    """Return a setting as text of limited length."""
    text = ", ".join(map(show_setting, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
