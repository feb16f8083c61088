"""The run directory: what was asked, by content; what is done, in parts that are whole or not there; and resuming.

    RUN/
      run.json                            what was asked: model, data, options, methods, metrics, versions
      maps/METHOD/00000.safetensors       attribution maps of one shard of the samples
      probes/METHOD/SWEEP/00000.parquet   what the model answered about them
      results.json   results.csv          curves and summary
      timings.json                        how long parts took

A part that exists is done. A run that was killed and is started again makes the parts that are missing, and ends with
the same results.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from twinlens.files import as_path, at_hand, is_local, written_whole
from twinlens.table import ProbeTable

FORMAT = 1
UNTOUCHED = "_untouched"
_FIXED = ("format", "model", "data", "options")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")


class RunError(ValueError):
    """A run directory that cannot be used as asked."""


class Run:
    """A run directory that is open for work; made by `open_run` and `read_run`."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def maps_part(self, method: str, shard: int) -> Path:
        """Gives the file of a method's maps of one shard."""
        return self.path / "maps" / method / f"{shard:05d}.safetensors"

    def probes_part(self, method: str, sweep: str, shard: int) -> Path:
        """Gives the file of a sweep's probes of one shard."""
        return self.path / "probes" / method / sweep / f"{shard:05d}.parquet"

    def untouched_part(self, shard: int) -> Path:
        """Gives the file of what the model answers about the untouched inputs of one shard."""
        return self.path / "probes" / UNTOUCHED / f"{shard:05d}.parquet"

    def save_maps(self, method: str, shard: int, maps: Tensor, ids: tuple[str, ...]) -> None:
        """Writes the maps of one shard, with the ids of its samples."""
        with written_whole(self.maps_part(method, shard)) as unfinished:
            save_file({"maps": maps.cpu().contiguous()}, unfinished, metadata={"ids": json.dumps(ids)})

    def load_maps(self, method: str, shard: int) -> Tensor:
        """Reads the maps of one shard."""
        with at_hand(self.maps_part(method, shard)) as path, safe_open(path, "pt") as file:
            maps: Tensor = file.get_tensor("maps")
            return maps

    def load_probes(self, method: str, sweep: str, shards: int) -> ProbeTable:
        """Reads the probes of all shards of a sweep as one table."""
        return ProbeTable.concatenate(
            [ProbeTable.load(self.probes_part(method, sweep, shard)) for shard in range(shards)]
        )

    def load_untouched(self, shards: int) -> ProbeTable:
        """Reads what the model answered about all untouched inputs."""
        return ProbeTable.concatenate([ProbeTable.load(self.untouched_part(shard)) for shard in range(shards)])

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes a JSON file of the run, whole."""
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        with written_whole(self.path / name) as unfinished:
            unfinished.write_text(text, encoding="utf-8")


def check_name(name: str, argument: str = "methods") -> str:
    """Refuses a name that cannot be the name of a folder on every system."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"`{argument}` must be named with letters, digits, and . _ + - alone, beginning with a letter or digit; "
            f"got {name!r}."
        )
    return name


@contextmanager
def open_run(path: str | os.PathLike[str], wanted: dict[str, Any]) -> Iterator[Run]:
    """Opens a run directory for work: a new one, or one that was asked for the same before.

    Args:
        path: the directory; made where it is not there. An address such as s3://bucket/run is one, too.
        wanted: what is asked, as it goes into run.json. The model, the data and the options must be those of the run.
            Methods, metrics and sweeps may be new, and are added. What `wanted["execution"]` leaves open (None) is
            taken from the run.

    Yields:
        The run. While it is open, no other process can open it.
    """
    folder = as_path(path)
    manifest = folder / "run.json"
    if folder.exists() and not folder.is_dir():
        raise RunError(f"`out` must be a directory; {str(folder)!r} is a file.")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if manifest.exists():
            merged = _merge(_read_manifest(folder), wanted, folder)
        elif any(name.name != ".lock" for name in folder.iterdir()):
            raise RunError(f"`out` {str(folder)!r} is not empty and holds no run. Choose another directory.")
        else:
            merged = wanted
        run = Run(folder, merged)
        run.write_json("run.json", merged)
        yield run


def read_run(path: str | os.PathLike[str]) -> Run:
    """Opens a run directory for reading."""
    folder = as_path(path)
    if not (folder / "run.json").is_file():
        raise RunError(f"{str(folder)!r} holds no run: run.json is missing. Runs are made by twinlens evaluate.")
    return Run(folder, _read_manifest(folder))


def stored_execution(path: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Gives what a run that is there already chose for itself, such as the batch size; nothing for a new run."""
    if path is None or not (as_path(path) / "run.json").is_file():
        return {}
    return dict(_read_manifest(as_path(path))["execution"])


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        found = manifest["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{str(folder / 'run.json')!r} is damaged: {error}. Choose another directory.") from None
    if found != FORMAT:
        raise RunError(
            f"{str(folder)!r} holds a run of format {found}, and this twinlens reads {FORMAT}. Use the version that "
            "made it, or choose another directory."
        )
    return dict(manifest)


def _merge(there: dict[str, Any], wanted: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Gives the manifest of a run that goes on; refuses what would make it another run."""
    chosen = {name: value for name, value in wanted["execution"].items() if value is not None}
    asked = {name: wanted[name] for name in _FIXED} | {"execution": there["execution"] | chosen}
    different = [line for name, value in asked.items() for line in _differences(name, there[name], value)]
    different += [
        line
        for name, method in wanted["methods"].items()
        if name in there["methods"]
        for line in _differences(f"methods.{name}", there["methods"][name], method)
    ]
    if different:
        more = f" ({len(different) - 3} more)" if len(different) > 3 else ""
        raise RunError(
            f"`out` {str(folder)!r} holds another run: {'; '.join(different[:3])}{more}. Choose another directory, or "
            "ask for the same."
        )
    merged = dict(there)
    merged["methods"] = there["methods"] | wanted["methods"]
    for name in ("metrics", "sweeps"):
        merged[name] = there[name] + [item for item in wanted[name] if item not in there[name]]
    return merged


def _differences(name: str, there: Any, here: Any) -> list[str]:
    if isinstance(there, dict) and isinstance(here, dict):
        keys = [*there, *(key for key in here if key not in there)]
        return [line for key in keys for line in _differences(f"{name}.{key}", there.get(key), here.get(key))]
    # Tuples became lists on their way through JSON.
    if json.loads(json.dumps(here)) == there:
        return []
    return [f"{name} is {_short(there)} there and {_short(here)} here"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the directory for this process; the system lets go of it when the process ends in whatever way.

    Object stores have no locks: two runs in one place would do the same work twice, to the same results.
    """
    if not is_local(folder):
        yield
        return
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:  # not on Windows, where two runs in one directory are up to the user
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunError(f"`out` {str(folder)!r} is in use by another twinlens. Wait for it to end.") from None
        except OSError:
            pass  # some network file systems have no locks; parts are atomic there too
        yield
