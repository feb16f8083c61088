"""The run directory: what the run is, by content; what is done, in parts that are whole or not there; and resuming.

    RUN/
      run.json                            the manifest: model, data, seed, maps, probes, versions
      maps/METHOD/00000.safetensors       attribution maps of one shard of the samples
      probes/METHOD/SWEEP/00000.parquet   what the model answered about them
      results.json   results.csv          curves and summary
      pairs.csv                           each pair of methods by each metric
      fingerprints.safetensors            a hash of each sample, by which runs know the samples that they share
      checks/NAME.json                    tests of other papers, where some were made
      timings.json                        how long it took

A part that exists is done. A run that was killed and is started again makes the parts that are missing, and ends with
the same results.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from torch import Tensor

from twinlens.errors import DamagedError, RunError, first_line, short_repr
from twinlens.probing.probe_table import ProbeTable
from twinlens.run.manifest import FORMAT, Manifest
from twinlens.support.fields import JSON, from_json, to_json
from twinlens.support.files import (
    as_path,
    create_json,
    is_local,
    lock_file,
    make_folder,
    read_whole,
    remove_unfinished,
    write_json,
    write_text,
)
from twinlens.support.progress import Progress
from twinlens.support.tensor_files import load_tensors, save_tensors

UNTOUCHED = "_untouched"
_LOCK, _STARTING = ".lock", ".starting"
_PATIENCE = 60.0  # seconds to wait for another part, which writes run.json in milliseconds
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")


class AnyManifest(Protocol):
    """What describes a run, of whatever kind; a frozen dataclass."""

    def joined(self, there: Self, where: str) -> Self:
        """Return the manifest of a run that goes on, or refuse."""


M = TypeVar("M", bound=AnyManifest)


class Run(Generic[M]):
    """A run directory that is open for work; made by `RunDirectory` and `read_run`."""

    def __init__(self, path: Path, manifest: M) -> None:
        self.path = path
        self.manifest = manifest

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def maps_part(self, method: str, shard: int) -> Path:
        """Return the file of a method's maps of one shard."""
        return self.path / "maps" / method / f"{shard:05d}.safetensors"

    def probes_part(self, method: str, sweep: str, shard: int) -> Path:
        """Return the file of a sweep's probes of one shard."""
        return self.path / "probes" / method / sweep / f"{shard:05d}.parquet"

    def untouched_part(self, shard: int) -> Path:
        """Return the file of what the model answers about the untouched inputs of one shard."""
        return self.path / "probes" / UNTOUCHED / f"{shard:05d}.parquet"

    def save_maps(self, method: str, shard: int, maps: Tensor, ids: tuple[str, ...]) -> None:
        """Write the maps of one shard, with the ids of its samples."""
        self.check_there()
        save_tensors(self.maps_part(method, shard), {"maps": maps}, about={"ids": list(ids)})

    def save_probes(self, part: Path, table: ProbeTable) -> None:
        """Write a probe table as a part of the run."""
        self.check_there()
        table.save(part)

    def check_there(self) -> None:
        """Refuse to write into a run that was removed: what is left of it would block the next one.

        Raises:
            OSError: because this is no fault of the method whose part is written.
        """
        if not (self.path / "run.json").exists():
            raise FileNotFoundError(f"{self} was removed while it went on: run.json is missing. Start it again.")

    def load_maps(self, method: str, shard: int) -> Tensor:
        """Read the maps of one shard."""
        return load_tensors(self.maps_part(method, shard))[0]["maps"]

    def load_probes(self, method: str, sweep: str, shards: Iterable[int]) -> ProbeTable:
        """Read the probes of these shards of a sweep as one table."""
        return ProbeTable.concatenate([ProbeTable.load(self.probes_part(method, sweep, shard)) for shard in shards])

    def load_untouched(self, shards: int) -> ProbeTable:
        """Read what the model answered about all untouched inputs."""
        return ProbeTable.concatenate([ProbeTable.load(self.untouched_part(shard)) for shard in range(shards)])

    def write_json(self, name: str, content: JSON) -> None:
        """Write a JSON file of the run, whole."""
        if name != "run.json":
            self.check_there()
        write_json(self.path / name, content)

    def write_text(self, name: str, text: str) -> None:
        """Write a text file of the run, whole; without any text there is none."""
        self.check_there()
        if text:
            write_text(self.path / name, text)
        else:
            (self.path / name).unlink(missing_ok=True)

    def write_manifest(self, manifest: M) -> None:
        """Replace the manifest."""
        self.manifest = manifest
        self.write_json("run.json", to_json(manifest))


def check_name(name: str, argument: str = "methods") -> str:
    """Refuse a name that cannot be the name of a folder on every system."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(
            f"`{argument}` must be named with letters, digits, and . _ + - alone, beginning with a letter or digit; "
            f"got {name!r}."
        )
    return name


class RunDirectory(Generic[M]):
    """A directory that is held for one process: with the run that is there, or to start one in. A context manager."""

    def __init__(self, path: str | os.PathLike[str], kind: type[M]) -> None:
        self.path, self.kind = as_path(path), kind
        self.manifest: M | None = None
        """The manifest of the run that is there."""
        self._held = ExitStack()

    def __enter__(self) -> Self:
        try:
            taken = self.path.exists() and not self.path.is_dir()
        except Exception as error:  # a name that is too long; or no credentials, for which each store has an error
            reason = (getattr(error, "strerror", None) or first_line(error)).rstrip(".")
            raise RunError(f"`out` {short_repr(str(self.path))} cannot be used: {reason}.") from error
        if taken:
            raise RunError(f"`out` must be a directory; {str(self.path)!r} is a file.")
        try:
            if (self.path / "run.json").exists():
                self._read()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def _read(self) -> None:
        self._hold()
        self.manifest = read_manifest(self.path, self.kind)

    def _hold(self) -> None:
        if self._held.enter_context(_locked(self.path)):
            remove_unfinished(self.path)

    def start(self, wanted: M) -> Run[M]:
        """Start a run, or go on with the one that is there.

        Args:
            wanted: what this run is. What was measured must be the same; methods and sweeps may be new, and are added.
        """
        if self.manifest is None:
            make_folder(self.path)
            self._hold()
            others = self._holds_other_files()  # asked first: of those of another process, run.json is there before all
            if (self.path / "run.json").exists():  # what is wanted was planned without knowing of it
                raise RunError(
                    f"Another twinlens has just begun a run in `out` {str(self.path)!r}. Start this one again."
                )
            if others:
                raise self._refusal()
        run = Run(self.path, self._joined(wanted))
        if run.manifest != self.manifest:
            run.write_manifest(run.manifest)
        return run

    def _joined(self, wanted: M) -> M:
        return wanted if self.manifest is None else wanted.joined(self.manifest, str(self.path))

    def _holds_other_files(self) -> bool:
        # In an object store a folder is there once it holds something.
        names = {path.name for path in self.path.iterdir()} - {_LOCK, _STARTING} if self.path.exists() else set[str]()
        return not all(name.startswith(".") and name.endswith(".unfinished") for name in names)

    def _refusal(self) -> RunError:
        return RunError(f"`out` {str(self.path)!r} is not empty and holds no run. Choose another directory.")


class SharedDirectory(RunDirectory[M]):
    """A run directory for several processes at once, each at work on a part of the same run. A context manager.

    They keep out every other process. While any of them is at work, run.json does not change.
    """

    def __enter__(self) -> Self:
        if not is_local(self.path):
            raise RunError(
                f"`part` needs a file system that the processes share; {str(self.path)!r} is in an object store."
            )
        return super().__enter__()

    def _read(self) -> None:
        with self._starting(), _locked(self.path, shared=True):
            self.manifest = read_manifest(self.path, self.kind)

    def start(self, wanted: M) -> Run[M]:
        """Start a run, or go on with the one that is there, beside other processes that do so.

        Raises:
            ChangedError: if another process has started or changed the run since its manifest was read; it is then read
                anew.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self._starting():
            there = read_manifest(self.path, self.kind) if (self.path / "run.json").exists() else None
            if there != self.manifest:
                self.manifest = there
                raise ChangedError
            run = Run(self.path, self._joined(wanted))
            if run.manifest != there:
                self._write(run)
            self._held.enter_context(_locked(self.path, shared=True))
        return run

    def _write(self, run: Run[M]) -> None:
        with _locked(
            self.path, by="parts that were asked for something else. Give all parts the same options, or wait"
        ):
            if self.manifest is not None:
                run.write_manifest(run.manifest)
                return
            file = self.path / "run.json"
            # Without locks another part may have been here by now, and the first file that it writes is run.json.
            if self._holds_other_files() and not file.exists():
                raise self._refusal()
            if not create_json(file, to_json(run.manifest)):
                self.manifest = read_manifest(self.path, self.kind)
                raise ChangedError

    def _starting(self) -> AbstractContextManager[bool]:
        return _locked(self.path, name=_STARTING, patience=_PATIENCE)


class ChangedError(RunError):
    """Another process has changed the run in the meantime."""


def read_run(path: str | os.PathLike[str]) -> Run[Manifest]:
    """Open a run directory for reading."""
    folder = as_path(path)
    if not (folder / "run.json").is_file():
        raise RunError(f"{str(folder)!r} holds no run: run.json is missing. Runs are made by twinlens evaluate.")
    return Run(folder, read_manifest(folder, Manifest))


def read_manifest(folder: Path, kind: type[M]) -> M:
    """Read run.json, refusing another format and whatever it does not know."""
    stored = read_json(folder / "run.json")
    found = stored.get("format") if isinstance(stored, dict) else None
    if found != FORMAT:
        raise RunError(
            f"{str(folder)!r} holds a run of format {found}, and this twinlens reads {FORMAT}. Use the version that "
            "made it, or choose another directory."
        )
    try:
        return from_json(kind, stored, "run.json")
    except (ValueError, TypeError) as error:
        raise RunError(
            f"{str(folder / 'run.json')!r} is damaged, or of another kind of run: {error} Restore it from a copy, or "
            "choose another directory."
        ) from None


def read_json(path: Path, remedy: str = "Restore it from a copy, or choose another directory.") -> Any:
    """Read a JSON file of a run."""
    try:
        return json.loads(read_whole(path).decode())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{str(path)!r} is damaged: {first_line(error)}. {remedy}") from None


def discard(damaged: DamagedError, progress: Progress) -> None:
    """Remove a damaged part, so that it is made anew."""
    progress.warn(f"{str(damaged.path)!r} is damaged ({damaged.reason}) and is made anew.")
    as_path(damaged.path).unlink(missing_ok=True)


@contextmanager
def _locked(
    folder: Path,
    *,
    name: str = _LOCK,
    shared: bool = False,
    patience: float = 0.0,
    by: str = "another twinlens. Wait",
) -> Iterator[bool]:
    """Hold the directory for this process, and yield whether it is held.

    Object stores have no locks: two runs in one place would do the same work twice, to the same results. Where the
    file system has none, two runs in one directory are up to the user; files are whole there too.

    Args:
        folder: the directory.
        name: of the lock file.
        shared: others may hold it, too, if they share it.
        patience: seconds to wait for it.
        by: who holds it otherwise, for the error.
    """
    if not is_local(folder):
        yield False
        return
    end = time.monotonic() + patience
    with _lock_file(folder / name) as file:
        while (held := lock_file(file, shared=shared)) is False:
            if time.monotonic() >= end:
                raise RunError(f"`out` {str(folder)!r} is in use by {by} for it to end.")
            time.sleep(0.05)
        yield bool(held)


def tidy_run(path: Path) -> None:
    """Remove what killed processes left in a run, unless another process is at work there."""
    with suppress(RunError), RunDirectory(path, Manifest):
        pass


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    """Open or create a lock file; nothing is written to it, and a link in its place is not followed."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        reason = "it is a symbolic link" if path.is_symlink() else error.strerror
        raise RunError(
            f"{str(path)!r} cannot be used to hold the run: {reason}. Remove it, or allow writing."
        ) from None
    try:
        yield file
    finally:
        os.close(file)
