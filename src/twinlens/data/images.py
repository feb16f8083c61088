"""Image files, read safely: one still image with 8 bits, as viewers show it, or an error that names the file.

Nothing is guessed or changed silently: an ambiguous file is refused with a remedy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from PIL import Image, ImageOps, UnidentifiedImageError

from twinlens.errors import DataError
from twinlens.support.files import check_regular
from twinlens.support.memory import is_out_of_memory

_FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "TIFF", "PPM", "GIF")  # others may start programs, as PostScript does


@contextmanager
def reading(name: str | os.PathLike[str], remedy: str) -> Iterator[None]:
    """Turn any failure to read the file `name` into a DataError that names it and ends in the remedy."""
    try:
        yield
    except DataError:
        raise
    except UnidentifiedImageError as error:
        raise DataError(f"'{name}' cannot be read: it is not an image of a known format. {remedy}") from error
    except Exception as error:  # decoders raise almost anything on a broken file
        if is_out_of_memory(error):
            raise
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        if "pickle" in reason:  # NumPy's message also explains how to run such a file
            reason = "it holds Python objects, which are never loaded"
        raise DataError(f"'{name}' cannot be read: {' '.join(reason.split()).rstrip('.')}. {remedy}") from error


@contextmanager
def opened_image(path: str, name: str) -> Iterator[Image.Image]:
    """Open one still image that is not decoded yet; any failure in the block becomes a DataError."""
    with reading(name, "Replace or remove the file."):
        check_regular(path)
        with Image.open(path, formats=_FORMATS) as image:
            limit = Image.MAX_IMAGE_PIXELS
            # Pillow refuses twice the limit, and only warns of less.
            if limit is not None and image.width * image.height > limit:
                raise DataError(
                    f"'{name}' must have at most {limit} pixels, because larger images may be made to exhaust memory; "
                    f"it has {image.width} × {image.height}. Scale it down."
                )
            frames = getattr(image, "n_frames", 1)
            if frames > 1:
                raise DataError(f"'{name}' must be a single image; it has {frames} frames. Save the one you mean.")
            yield image


def read_image(path: str, name: str) -> Image.Image:
    """Read an image file as viewers show it, with 8 bits, in mode "L" or "RGB"."""
    with opened_image(path, name) as image:
        # Pillow reduces 16-bit colour to 8 bits silently; only the mode of its decoder shows it, such as RGB;16B.
        if image.mode[0] in "IF" or re.search(";16[BLN]", str(getattr(image, "tile", ""))):
            raise DataError(
                f"'{name}' must have 8 bits per channel; it has more (mode {image.mode}), and their scale is unknown. "
                "Convert it to 8 bits, or pass arrays as .npz."
            )
        upright = ImageOps.exif_transpose(image)
        if upright.has_transparency_data:
            # Through RGBA, because Pillow warns when a palette loses its transparency.
            opaque = upright.convert("RGBA")
            if opaque.getchannel("A").getextrema() != (255, 255):
                raise DataError(f"'{name}' must be opaque; it has transparent pixels. Flatten it onto a background.")
            upright = upright if upright.mode == "L" else opaque
        return upright if upright.mode in ("L", "RGB") else upright.convert("RGB")
