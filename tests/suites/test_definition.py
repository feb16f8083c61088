"""Suite files: what they may hold, what is refused with a remedy, and what their digest covers."""

from pathlib import Path

import pytest

from tests.suites.suites import suite_file
from twinlens.attribution import METHODS
from twinlens.suites.definition import built_in_suites, find_suite, requested_methods, with_overrides

DIGESTS = {
    "cifar10@1": "6ad6715281d00b64466de131643a4a5d",
    "cifar10-slow@1": "a194376fadd0a161179c67bddacc8fda",
    "digits-vit@1": "4b85e4250aa768a5e40ca308a3c42a18",
    "digits@1": "67d8aaf5126a4b702137974420dfea22",
    "grammar@1": "304c72926016b9f46725d62549bf20ce",
    "imagenet@1": "e89da5e88badec2b6c7fbaaf2c187fa0",
    "imagenet-lite1@1": "c63a481ad04626f872a7b6acb458c325",
    "imagenet-lite2@1": "2df94e55e99d29204b1a08e32208c677",
    "laboratory@1": "38140b8a90735c2dab3c0ef70cb529df",
    "photos20@1": "ae153b5815facfdd571b67b4347e0aed",
    "tables@1": "d5db70abcf022fe2d87a8265eaf35fda",
    "text@1": "3b91a797e79a307d7bbb240e4727bbde",
}
"""A suite whose digest changes needs another version: two papers may have cited it."""


def test_built_in_suites_never_change():
    assert {name: suite.digest() for name, suite in built_in_suites().items()} == DIGESTS


def test_built_in_suites_name_known_methods_and_say_what_they_ask():
    for name, suite in built_in_suites().items():
        assert set(suite.methods) <= set(METHODS)
        assert suite.question.endswith("?")
        assert name == f"{suite.name}@{suite.version}"


def test_a_suite_is_found_by_its_name_or_as_a_file(tmp_path):
    assert str(find_suite("digits")) == str(find_suite("digits@1")) == "digits@1"
    assert str(find_suite(suite_file(tmp_path))) == "tiny@1"
    with pytest.raises(ValueError, match=r"must be one of cifar10@1.*Did you mean 'digits@1'"):
        find_suite("digits@2")
    with pytest.raises(FileNotFoundError):
        find_suite(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("version = 1", "version = 2"),
        ('"calibration"]', '"road_gain"]'),
        ("resamples = 100", "resamples = 101"),
        ('kind = "images"', 'kind = "images"\nlimit = 5'),
        ('kind = "images"', 'kind = "images"\nseed = 1'),
        ('kind = "images"', 'kind = "images"\nids = ["ant/0.png", "ant/1.png"]'),
        ("[tasks.images]", "[tasks.pictures]"),
    ],
)
def test_whatever_changes_a_number_changes_the_digest(tmp_path, old, new):
    before, after = find_suite(suite_file(tmp_path)), find_suite(suite_file(tmp_path, old, new))
    assert before.digest() != after.digest()


def test_what_changes_no_number_leaves_the_digest(tmp_path):
    before = find_suite(suite_file(tmp_path)).digest()
    for old, new in (
        ("Tiny images", "Others"),
        ("the tiny model?", "it?"),
        ('"saliency", ', ""),
        ('kind = "images"', 'kind = "images"\nexpected = { confidence = 0.5 }'),
    ):
        assert find_suite(suite_file(tmp_path, old, new)).digest() == before


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ('name = "tiny"', "", "`suite` must have 'name'; it is missing"),
        ('name = "tiny"', 'name = "Tiny suite"', "`name` must be small letters, digits and hyphens; got 'Tiny suite'"),
        ("version = 1", 'version = "1"', "`suite.version` must be a whole number; got '1'"),
        ("version = 1", "version = 0", "`version` must be at least 1; got 0"),
        ('title = "', 'titel = "', "`suite` must be one of .* got 'titel'. Did you mean 'title'"),
        ('kind = "images"', 'kind = "pictures"', "`suite.tasks.images.kind` must be one of images, .* got 'pictures'"),
        ('kind = "images"', 'kind = "images"\nfirst = 2\nlimit = 3', "`first` and `limit` both choose samples"),
        ('kind = "images"', 'kind = "images"\nlimit = -3', "`limit` must be at least 1; got -3"),
        ('kind = "images"', 'kind = "images"\nsource = "wine/forest"', "`source` brings its own model and data"),
        (
            'metrics = ["soundness_rank"',
            'metrics = ["soundness_rang"',
            "must be one of .* Did you mean 'soundness_rank'",
        ),
        ("resamples = 100", "resample = 100", "`options` must be one of .* Did you mean 'resamples'"),
        ("resamples = 100", 'resamples = "many"', "`resamples` must be a whole number"),
        ("resamples = 100", "out = '/tmp'", "`options` must be one of .* got 'out'"),
        ("resamples = 100", "epsilon = nan", "`options.epsilon` must be text, a finite number.* got nan"),
        ("resamples = 100", "epsilon = 1979-05-27", "`options.epsilon` must be text, .* got 1979-05-27"),
        ("[tasks.images]", '[tasks."../up"]', "`tasks` must be named with letters"),
        ("version = 1", "version = ", "is not a valid TOML file"),
    ],
)
def test_mistakes_are_named_with_what_to_write(tmp_path, old, new, error):
    path = suite_file(tmp_path, old, new)
    with pytest.raises((ValueError, TypeError), match=error):
        find_suite(path)


def test_a_suite_without_tasks_is_refused(tmp_path):
    path = Path(suite_file(tmp_path))
    path.write_text(path.read_text().partition("[tasks")[0] + "tasks = {}\n")
    with pytest.raises(ValueError, match="add a table"):
        find_suite(str(path))


def test_methods_keep_the_options_that_the_suite_gives_them(tmp_path):
    path = suite_file(
        tmp_path,
        'methods = ["saliency", "random"]',
        'methods = { ig = { method = "integrated_gradients", steps = 4 } }',
    )
    suite = find_suite(path)
    assert requested_methods(suite, None) == {"ig": {"method": "integrated_gradients", "steps": 4}}
    assert requested_methods(suite, ["random", "ig"])["ig"]["steps"] == 4
    assert requested_methods(suite, ["random"]) == {"random": "random"}


def test_what_a_suite_leaves_open_is_required_and_nothing_else_is_taken():
    suite = find_suite("cifar10@1")
    with pytest.raises(ValueError, match="`model` is missing: cifar10@1 needs --model"):
        with_overrides(suite, weights=None, model=None, data="images")
    tasks = with_overrides(suite, weights="w.safetensors", model="mnist-cnn", data="images")
    assert (tasks["resnet20"].model, tasks["resnet20"].weights) == ("mnist-cnn", "w.safetensors")
    with pytest.raises(ValueError, match="`data` belongs to digits@1, which names its own"):
        with_overrides(find_suite("digits@1"), weights=None, model=None, data="mnist")


def test_a_missing_package_is_named_with_its_command(tmp_path):
    suite = find_suite(suite_file(tmp_path, "version = 1", 'version = 1\npackages = ["no-such-package"]'))
    with pytest.raises(ImportError, match=r"tiny@1 needs no-such-package, which is not installed. Run: pip install"):
        suite.check_packages()
