import pytest

from tests.report.browser import Browser
from tests.report.runs import make_run, shared_run, with_skills
from twinlens.report import write_report


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    return shared_run(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def paired(tmp_path_factory):
    """A run of the pair that has a chance level, over the same steps."""
    metrics = ["soundness_rank", "completeness_share", "completeness"]
    return make_run(tmp_path_factory.mktemp("paired") / "run", metrics=metrics)


@pytest.fixture(scope="session")
def judged(run):
    """The run with skills that are known: on both sides, on one, on none."""
    return with_skills(run)


@pytest.fixture(scope="session")
def page(run, tmp_path_factory):
    return write_report([run], tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One browser for all tests of a session."""
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.driver.quit()
