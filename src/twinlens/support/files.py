"""Files that are written completely or not at all, on this machine or on any file system of fsspec."""

from __future__ import annotations

import importlib
import json
import os
import secrets
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from twinlens.errors import install_hint


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file or a folder; an address such as s3://bucket/run is one on a file system of fsspec.

    Example:
        >>> as_path("runs/mine").name, as_path("memory://runs/mine").name
        ('mine', 'mine')
    """
    opened: Any = path
    if "\0" in str(path) or path == "":
        raise ValueError(f"`path` must be the path of a file or a folder; got {str(path)!r}.")
    if isinstance(path, str) and "://" in path:
        try:
            upath = importlib.import_module("upath")
        except ImportError:
            raise ImportError(f"{path!r} needs universal_pathlib: {install_hint('ray')}") from None
        # Other processes write to the same folders, which makes cached listings outdated.
        opened = upath.UPath(path, use_listings_cache=False)
    # A path on another file system is not a `Path`, but has all methods used here.
    return Path(opened) if isinstance(opened, str) or hasattr(opened, "__fspath__") else cast(Path, opened)


def is_local(path: Path) -> bool:
    """Return whether a path is on this machine, and not on a file system of fsspec."""
    return isinstance(path, Path)


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path, which replaces `path` when the block ends without error.

    After an error, on a full disk or in a killed process, `path` is unchanged.
    """
    target = as_path(path)
    if not target.name:
        raise ValueError(f"`path` must be the path of a file; got {str(target)!r}.")
    if not is_local(target):
        with tempfile.TemporaryDirectory(prefix="twinlens-") as folder:
            unfinished = Path(folder, target.name)
            yield unfinished
            _put(target, unfinished.read_bytes())
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with _written_beside(target, Path.replace) as unfinished:
        yield unfinished


@contextmanager
def _written_beside(target: Path, name: Callable[[Path, Path], object]) -> Iterator[Path]:
    """Yield a temporary path next to the target, and `name` it when the block ends without error."""
    # The name is unique: two workers may write the same target, perhaps on two machines.
    unfinished = target.with_name(f".{target.name}.{os.getpid()}-{secrets.token_hex(4)}.unfinished")
    try:
        with unfinished.open("xb") as held:
            lock_file(held.fileno())  # files of killed processes are not locked
            yield unfinished
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            name(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def lock_file(descriptor: int, *, shared: bool = False) -> bool | None:
    """Lock an open file until it is closed; return False where another process has locked it, None without locks.

    Several processes can hold a shared lock, which excludes an exclusive one. A lock ends with its process.
    """
    try:
        import fcntl  # noqa: PLC0415

        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # not available on Windows and some network file systems
        return None
    return True


def remove_unfinished(folder: Path) -> None:
    """Remove the temporary files of killed processes below a folder; files that are being written stay."""
    for left in folder.rglob(".*.unfinished"):
        try:
            file = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # it is gone, or not a regular file
            left.unlink(missing_ok=True)
            continue
        try:
            if lock_file(file) is not False:
                left.unlink(missing_ok=True)
        finally:
            os.close(file)


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write JSON atomically; equal contents give equal bytes."""
    write_text(path, _json_text(content))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically."""
    with written_whole(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def create_json(path: Path, content: Any) -> bool:
    """Write JSON unless the file exists, and return whether it was written.

    Of several processes at once, also on several machines, one writes it. This needs no locks; object stores must
    support conditional writes, as S3 does.
    """
    try:
        if not is_local(path):
            _put(path, _json_text(content).encode(), mode="create")
            return True
        with _written_beside(path, _link) as unfinished:
            unfinished.write_text(_json_text(content), encoding="utf-8")
    except FileExistsError:
        return False
    return True


def _link(unfinished: Path, target: Path) -> None:
    """Give a file its name unless the name is taken; renaming would replace the existing file."""
    try:
        os.link(unfinished, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError(str(target)) from None
        unfinished.replace(target)


def _json_text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def csv_text(text: str) -> str:
    """Return a cell of a CSV file that a spreadsheet does not read as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def check_regular(path: str | os.PathLike[str]) -> None:
    """Refuse a pipe, a device or a folder: reading a pipe waits for ever, and some devices never end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is not a regular file")


def check_expansion(packed: int, unpacked: int) -> None:
    """Refuse content that unpacks to over a hundred times its size and more than 1 GB."""
    if unpacked > max(2**30, 100 * packed):
        raise ValueError(f"it has {packed} bytes and would unpack to {unpacked}, like a file meant to exhaust memory")


def check_unpacked_size(path: str | os.PathLike[str]) -> None:
    """Refuse a zip archive of more than 1 GB that unpacks to over a hundred times its size, and pipes and devices."""
    check_regular(path)
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    check_expansion(os.stat(path).st_size, unpacked)


def make_folder(path: Path) -> None:
    """Create a folder, except in object stores, which have none and would create a bucket."""
    if is_local(path) or not isinstance(path, importlib.import_module("upath.implementations.cloud").CloudPath):
        path.mkdir(parents=True, exist_ok=True)


def _put(target: Any, content: bytes, mode: str = "overwrite") -> None:
    """Put an object in one piece: closing a file that was written in several would keep the first of them."""
    make_folder(target.parent)
    try:
        target.fs.pipe_file(target.path, content, mode=mode)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{str(target)!r} cannot be written: {error} Create the bucket first.") from error


def read_whole(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Read a file of at most `most` bytes; an object in a store is read in one request, and cannot change in between.

    Raises:
        ValueError: if it is larger, or not a regular file.

    Example:
        >>> with written_whole("memory://numbers.txt") as unfinished:
        ...     _ = unfinished.write_text("1 2 3")
        >>> read_whole("memory://numbers.txt")
        b'1 2 3'
    """
    source: Any = as_path(path)
    if is_local(source):
        check_regular(source)
        if most is not None and (size := source.stat().st_size) > most:
            raise ValueError(f"it has {size} bytes, and such files have at most {most}")
    content: bytes = source.read_bytes() if is_local(source) else source.fs.cat_file(source.path)
    return content
