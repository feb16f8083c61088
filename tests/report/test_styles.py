"""One colour per method in every figure and on every page."""

import itertools

import numpy as np
import pytest

from tests.report.runs import changed
from twinlens.attribution import BASELINES, METHODS
from twinlens.report.styles import BUILT_IN, GREY, method_styles, styles_of
from twinlens.support.plotting import COLOURS

# How colours look without one kind of cone (Machado et al. 2009, severity 1), in linear RGB.
SIGHT = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    rgb = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    parts = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(parts > 0.008856, np.cbrt(parts), 7.787 * parts + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one, other):
    low, high = sorted(float(XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sight", SIGHT)
def test_colours_differ_for_everybody(sight):
    seen = [lab(SIGHT[sight] @ linear(colour)) for colour in COLOURS]
    assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) > 17


def test_colours_can_be_seen_on_white_and_on_black():
    for colour in (*COLOURS, GREY):
        assert contrast(colour, "#fbfaf8") > 2
        assert contrast(colour, "#151619") > 2


def test_every_built_in_method_has_its_own_style():
    assert BUILT_IN.keys() == METHODS.keys()
    assert {name for name, style in BUILT_IN.items() if style.baseline} == BASELINES
    methods = [style for style in BUILT_IN.values() if not style.baseline]
    for parts in ("colour dash", "colour symbol"):
        shown = [tuple(getattr(style, part) for part in parts.split()) for style in methods]
        assert len(set(shown)) == len(methods)
    assert len({(style.dash, style.symbol) for style in BUILT_IN.values() if style.baseline}) == len(BASELINES)


def test_methods_that_are_often_compared_differ_in_colour():
    for names in (
        ("integrated_gradients", "ig_sg", "guided_backprop", "deeplift", "gradcam", "occlusion"),
        ("integrated_gradients", "ig_sg", "ig_sq", "ig_var", "gradcam", "deepshap", "extremal_perturbation", "iba"),
        ("saliency", "input_x_gradient", "smoothgrad", "guided_backprop", "integrated_gradients", "gradcam"),
        ("kernel_shap", "occlusion", "rise", "integrated_gradients", "saliency"),
    ):
        assert len({BUILT_IN[name].colour for name in names}) == len(names)


def test_a_method_keeps_its_style_whatever_it_is_compared_with():
    alone = styles_of(["integrated_gradients", "mine"])
    many = styles_of([*METHODS, "mine", "other"], BASELINES)
    assert {name: many[name] for name in METHODS} == BUILT_IN
    assert alone["integrated_gradients"] == many["integrated_gradients"]
    assert styles_of(["mine", "random"], ["random"])["mine"] == styles_of(["mine"])["mine"]
    assert styles_of(["b", "a"]) == styles_of(["a", "b"])


def test_other_names_take_colours_that_are_free():
    names = ["integrated_gradients", "gradcam", *(f"mine {k}" for k in range(6))]
    assert len({style.colour for style in styles_of(names).values()}) == 8
    many = styles_of([*METHODS, *(f"m{k:02d}" for k in range(40))], BASELINES).values()
    assert len({(style.colour, style.dash, style.symbol) for style in many}) == len(many)


def test_styles_tell_methods_apart(run):
    methods = {f"m{k:02d}": run.results.methods["saliency"] for k in range(12)}
    many = changed(run, methods=methods)
    styles = [(style.colour, style.dash) for style in method_styles([many]).values()]
    assert len(set(styles)) == 12


def test_baselines_are_grey(run):
    styles = method_styles([run])
    assert [name for name, style in styles.items() if style.baseline] == ["random", "sobel"]
    assert styles["random"].colour == styles["sobel"].colour == GREY != styles["saliency"].colour
    assert styles["random"].symbol != styles["sobel"].symbol
    own = styles_of(["noise", "random"], ["noise"])
    assert (own["noise"].colour, own["noise"].baseline) == (GREY, True)
    assert own["random"].colour != GREY  # a method of yours that is called so
