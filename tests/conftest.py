import signal
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# Compiling, cold caches and other jobs make examples slow; neither a deadline nor the time that it takes to draw them
# may turn that into failures.
settings.register_profile("twinlens", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("twinlens")

# A shell starts background jobs with interrupts ignored, and they and their children would never see one.
signal.signal(signal.SIGINT, signal.default_int_handler)

# torchvision's wheels register operators that some builds of torch do not know; declared first, they import with any.
for operator in ("nms", "qnms"):
    try:
        torch.library.define(f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:
        continue  # this torch knows it

# Checks that several modules share say what they compared, as those in test modules do.
pytest.register_assert_rewrite("tests.attribution.planted", "tests.small_runs")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def golden() -> Path:
    folder = SHARED / "golden"
    if not folder.is_dir():
        pytest.skip("the reference values of ../shared/golden are not on this machine")
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    folder = SHARED / "data"
    if not folder.is_dir():
        pytest.skip("the data sets of ../shared/data are not on this machine")
    return folder
