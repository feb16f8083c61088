import pytest

from tests.data.folders import save


@pytest.fixture
def birds(tmp_path):
    root = tmp_path / "birds"
    save(root / "wren" / "b.png", color=(1, 2, 3))
    save(root / "wren" / "deep" / "a.JPG")
    save(root / "jay" / "c.bmp", "L", color=7)
    return root
