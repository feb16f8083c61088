from tests.report.runs import changed
from twinlens.report.styles import method_styles


def test_styles_tell_methods_apart(run):
    methods = {f"m{k:02d}": run.results.methods["saliency"] for k in range(12)}
    many = changed(run, methods=methods)
    styles = [(style.colour, style.dash, style.symbol) for style in method_styles([many]).values()]
    assert len(set(styles)) == 12


def test_controls_are_grey(run):
    styles = method_styles([run])
    assert [name for name, style in styles.items() if style.baseline] == ["random", "sobel"]
    assert styles["random"].colour == styles["sobel"].colour != styles["saliency"].colour
    assert styles["random"].symbol != styles["sobel"].symbol
