"""What doctests need as the tests do: torchvision, which torchmetrics imports, made to import with any build of torch."""

import tests.conftest  # noqa: F401
