"""The run directory: its files, who may write there, and how a run starts and resumes.

    RUN/
      run.json                            the manifest: model, data, seed, maps, probes, versions
      maps/METHOD/00000.safetensors       attribution maps of one shard of the samples
      probes/METHOD/SWEEP/00000.parquet   the model's answers about them
      results.json   results.csv          curves and summary
      pairs.csv                           each pair of methods by each metric
      results/NAME.json                   the same with other settings: a query
      fingerprints.safetensors            a hash of each sample, to find the samples that two runs share
      checks/NAME.json                    tests of other papers
      timings.json                        how long it took

Files are complete or absent, and an existing file is done. An interrupted run resumes with what is missing, and ends
with the same results.
"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from twinlens.errors import RunError, first_line, short_repr
from twinlens.options import Job
from twinlens.probing.probe_table import ProbeTable
from twinlens.run.manifest import FORMAT, Manifest
from twinlens.support.fields import JSON, convert, from_json, to_json
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
from twinlens.support.tensor_files import load_tensors, save_tensors

_ORIGINAL = "_original"
_LOCK, _STARTING = ".lock", ".starting"
_PATIENCE = 600.0  # seconds to wait for another job, which plans and writes run.json
_LARGEST_JSON = 2**26  # bytes of run.json, results.json and the like, which have less than a megabyte
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")


@dataclass(eq=False)
class Run:
    """The files of a run."""

    path: Path
    manifest: Manifest
    damaged: set[Path] = field(default_factory=set)
    """Damaged files, each of which stays until it is replaced."""

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def maps_shard(self, method: str, shard: int) -> Path:
        """Return the file of a method's maps of one shard."""
        return self.path / "maps" / method / f"{shard:05d}.safetensors"

    def probes_shard(self, method: str, sweep: str, shard: int) -> Path:
        """Return the file of a sweep's probes of one shard."""
        return self.path / "probes" / method / sweep / f"{shard:05d}.parquet"

    def original_shard(self, shard: int) -> Path:
        """Return the file of the model's answers about the original inputs of one shard."""
        return self.path / "probes" / _ORIGINAL / f"{shard:05d}.parquet"

    def has(self, path: Path) -> bool:
        """Return whether a file exists and is not damaged."""
        return path.exists() and path not in self.damaged

    def save_maps(self, method: str, shard: int, maps: Tensor, ids: tuple[str, ...], negative: Tensor) -> None:
        """Write the maps of one shard, with the ids of its samples, and the share of attribution that was negative."""
        self.check_there()
        tensors = {"maps": maps, "negative": negative}
        save_tensors(self.maps_shard(method, shard), tensors, about={"ids": list(ids)})
        self.damaged.discard(self.maps_shard(method, shard))

    def save_probes(self, path: Path, table: ProbeTable) -> None:
        """Write the probe table of one shard."""
        self.check_there()
        table.save(path)
        self.damaged.discard(path)

    def check_there(self) -> None:
        """Refuse to write into a run that was removed: the remains would block the next one."""
        if not (self.path / "run.json").exists():
            raise FileNotFoundError(f"{self} was removed during the run: run.json is missing. Start it again.")

    def load_maps(self, method: str, shard: int, *, signed: bool = False) -> Tensor:
        """Read the maps of one shard: their positive part, or signed."""
        maps, _ = self.load_signed_maps(method, shard)
        return maps if signed else maps.clamp(min=0)

    def load_signed_maps(self, method: str, shard: int) -> tuple[Tensor, Tensor | None]:
        """Read the maps of one shard, and the share of each (B,) that was negative before its sign was read."""
        tensors, _ = load_tensors(self.maps_shard(method, shard))
        return tensors["maps"], tensors.get("negative")

    def load_probes(self, method: str, sweep: str, shards: Iterable[int]) -> ProbeTable:
        """Read the probes of several shards as one table."""
        return ProbeTable.concatenate([ProbeTable.load(self.probes_shard(method, sweep, shard)) for shard in shards])

    def load_original(self, shards: int) -> ProbeTable:
        """Read the model's answers about all original inputs."""
        return ProbeTable.concatenate([ProbeTable.load(self.original_shard(shard)) for shard in range(shards)])

    def write_json(self, name: str, content: JSON) -> None:
        """Write a JSON file of the run."""
        if name != "run.json":
            self.check_there()
        write_json(self.path / name, content)

    def write_text(self, name: str, text: str) -> None:
        """Write a text file of the run, or remove it if the text is empty."""
        self.check_there()
        if text:
            write_text(self.path / name, text)
        else:
            (self.path / name).unlink(missing_ok=True)

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest."""
        self.manifest = manifest
        self.write_json("run.json", to_json(manifest))

    def add_seconds(self, seconds: Mapping[str, float], job: Job | None = None) -> None:
        """Add to the time that each kind of work took; each job has its own file."""
        name = "timings.json" if job is None else f"timings-{job.number}-of-{job.of}.json"
        total = _read_seconds(self.path / name)
        for task, duration in seconds.items():
            total[task] = total.get(task, 0.0) + duration
        self.write_json(name, dict(total))

    def seconds_by_task(self) -> dict[str, float]:
        """Return the seconds that each task took: METHOD/maps, METHOD/probes, …, and original inputs."""
        total: dict[str, float] = {}
        for path in sorted(self.path.glob("timings*.json")):
            for task, duration in _read_seconds(path).items():
                total[task] = total.get(task, 0.0) + duration
        return total

    def seconds(self) -> dict[str, float]:
        """Return the seconds that each method took, maps and probes together."""
        total: dict[str, float] = {}
        for task, duration in self.seconds_by_task().items():
            method = task.partition("/")[0]
            total[method] = total.get(method, 0.0) + duration
        return total


def _read_seconds(path: Path) -> dict[str, float]:
    """Read a timings file; nothing depends on it, and a damaged one is replaced."""
    if not path.exists():
        return {}
    try:
        return dict(convert(read_json(path), Mapping[str, float], path.name))
    except (ValueError, TypeError):
        warnings.warn(f"{str(path)!r} is damaged: timing starts again from zero.", stacklevel=2)
        return {}


def is_name(name: object) -> bool:
    """Return whether a name can be that of a file or folder on every system."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(name: str, argument: str = "methods") -> str:
    """Refuse a name that cannot be the name of a folder on every system."""
    if not is_name(name):
        raise ValueError(
            f"`{argument}` must be named with letters, digits, and . _ + - alone, beginning with a letter or digit; "
            f"got {name!r}."
        )
    return name


class RunDirectory:
    """A run directory, locked while it is open: exclusively, or shared by the jobs of one run. A context manager.

    While any job is at work, run.json does not change.
    """

    def __init__(self, path: str | os.PathLike[str], *, shared: bool = False) -> None:
        self.path, self.shared = as_path(path), shared
        self.manifest: Manifest | None = None
        """The manifest of the existing run."""
        self._locks = ExitStack()

    def __enter__(self) -> Self:
        if self.shared and not is_local(self.path):
            raise RunError(f"`part` needs a file system that the jobs share; {str(self.path)!r} is in an object store.")
        try:
            is_file = self.path.exists() and not self.path.is_dir()
        except Exception as error:  # a name that is too long, or an object store's own error without credentials
            reason = (getattr(error, "strerror", None) or first_line(error)).rstrip(".")
            raise RunError(f"`out` {short_repr(str(self.path))} cannot be used: {reason}.") from error
        if is_file:
            raise RunError(f"`out` must be a directory; {str(self.path)!r} is a file.")
        try:
            if self._has_run():
                with self._starting(), _locked(self.path, shared=True) if self.shared else nullcontext():
                    self._lock()
                    self.manifest = read_manifest(self.path)
        except BaseException:
            self._locks.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._locks.close()

    def start(
        self, plan: Callable[[Manifest | None], Manifest], check: Callable[[Run], object] = lambda _: None
    ) -> Run:
        """Create the run, or resume the existing one.

        Of several processes that start at once, the first creates run.json, and the others read it. `plan` makes the
        manifest of this call from that of the existing run, or from None; new methods and sweeps are added. `check` may
        refuse to resume it.
        """
        created = None
        if self.manifest is None:
            created = plan(None)
            make_folder(self.path)
            self._lock()
            # Other files are listed first: another process writes run.json before anything else.
            if self._holds_other_files() and not self._has_run():
                raise RunError(f"`out` {str(self.path)!r} is not empty and holds no run. Choose another directory.")
            create_json(self.path / "run.json", to_json(created))
        with self._starting():
            stored = read_manifest(self.path)
            run = Run(self.path, stored if stored == created else plan(stored).joined(stored, str(self.path)))
            if stored != created:
                check(run)
            if run.manifest != stored:
                with self._alone():
                    run.write_manifest(run.manifest)
            if self.shared:
                self._locks.enter_context(_locked(self.path, shared=True))
        return run

    def _has_run(self) -> bool:
        return (self.path / "run.json").exists()

    def _lock(self) -> None:
        """Lock the directory for this process alone, unless it is shared, and remove what killed processes left."""
        if not self.shared and self._locks.enter_context(_locked(self.path)):
            remove_unfinished(self.path)

    def _starting(self) -> AbstractContextManager[object]:
        """Hold the lock under which jobs read and change run.json."""
        return _locked(self.path, name=_STARTING, patience=_PATIENCE) if self.shared else nullcontext()

    def _alone(self) -> AbstractContextManager[object]:
        """Refuse to change run.json while other jobs are at work."""
        who = "jobs with other options. Give all jobs the same options, or wait"
        return _locked(self.path, by=who) if self.shared else nullcontext()

    def _holds_other_files(self) -> bool:
        # In an object store a folder exists once it holds something.
        names = {path.name for path in self.path.iterdir()} - {_LOCK, _STARTING} if self.path.exists() else set[str]()
        return not all(name.startswith(".") and name.endswith(".unfinished") for name in names)


def read_run(path: str | os.PathLike[str]) -> Run:
    """Open a run directory for reading."""
    folder = as_path(path)
    if not (folder / "run.json").is_file():
        raise RunError(f"{str(folder)!r} holds no run: run.json is missing. Runs are made by twinlens evaluate.")
    return Run(folder, read_manifest(folder))


def read_manifest(folder: Path) -> Manifest:
    """Read run.json, refusing other formats and unknown fields."""
    stored = read_json(folder / "run.json")
    version = stored.get("format") if isinstance(stored, dict) else None
    if version != FORMAT:
        raise RunError(
            f"{str(folder)!r} holds a run of format {version}, and this twinlens reads {FORMAT}. Use the version that "
            "made it, or choose another directory."
        )
    try:
        manifest = from_json(Manifest, stored, "run.json")
        for name in (*manifest.methods, *(sweep.name for sweep in manifest.sweeps)):
            check_name(name, "methods and sweeps")
        return manifest
    except (ValueError, TypeError) as error:
        raise RunError(
            f"{str(folder / 'run.json')!r} is damaged, or of another kind of run: {error} Restore it from a copy, or "
            "choose another directory."
        ) from None


def read_json(path: Path, remedy: str = "Restore it from a copy, or choose another directory.") -> Any:
    """Read a JSON file of a run."""
    try:
        return json.loads(read_whole(path, _LARGEST_JSON).decode())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{str(path)!r} is damaged: {first_line(error)}. {remedy}") from None


@contextmanager
def _locked(
    folder: Path,
    *,
    name: str = _LOCK,
    shared: bool = False,
    patience: float = 0.0,
    by: str = "another twinlens. Wait",
) -> Iterator[bool]:
    """Lock a directory, and yield whether it is locked: object stores and some file systems have no locks."""
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


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    """Open or create a lock file. Nothing is written to it, and a symbolic link is not followed."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        reason = "it is a symbolic link" if path.is_symlink() else error.strerror
        raise RunError(f"{str(path)!r} cannot be used as a lock: {reason}. Remove it, or allow writing.") from error
    try:
        yield file
    finally:
        os.close(file)
