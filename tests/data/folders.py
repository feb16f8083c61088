"""A folder of images, and the error with which checking it fails."""

import pytest
from PIL import Image

from twinlens.data.samples import check
from twinlens.data.sources import open_data
from twinlens.errors import DataError


def save(path, mode="RGB", size=(6, 4), color=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, *([] if color is None else [color])).save(path, **options)


def rejected(root, **options):
    """The one line with which checking fails, after it was seen that skipping leaves out just that sample."""
    samples = open_data(str(root), **options)
    with pytest.raises(DataError) as raised:
        check(samples, skip_bad=False)
    good, skipped, *_ = check(samples, skip_bad=True)
    assert len(skipped) == 1
    assert set(good.ids) == set(samples.ids) - {skipped[0].id}
    message = str(raised.value)
    assert message == f"{skipped[0].reason} To leave out unreadable samples, choose skip_bad."
    assert skipped[0].id in message
    assert len(message.splitlines()) == 1
    message.encode()
    assert str(root) not in message  # reasons are stored with results, which must not depend on the folder
    return message
