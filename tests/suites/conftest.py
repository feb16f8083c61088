import json

import pytest

from tests.suites.suites import run_tiny, suite_file
from twinlens.suites.running import open_suite_run
from twinlens.suites.submission import make_submission
from twinlens.support.fields import to_json


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The file and the run of the tiny suite; nothing may change them."""
    folder = tmp_path_factory.mktemp("suite")
    path = suite_file(folder)
    run_tiny(path, folder / "run")
    return path, folder / "run"


@pytest.fixture
def stored(tiny):
    """The submission of the tiny suite as JSON."""
    return json.loads(json.dumps(to_json(make_submission(open_suite_run(str(tiny[1]))))))
