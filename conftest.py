"""For doctests as for tests: torchvision, which torchmetrics imports, can be imported with any build of torch."""

import tests.conftest  # noqa: F401
