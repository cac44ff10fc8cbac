"""What compilers made, kept by the content of everything that went into it.

It lies in `$BRIDGE_CACHE` (by default ~/.cache/aten-bridge), in folders whose names are digests of sources, flags,
compilers and versions. A folder's manifest lists what is in it, each with the digests of the headers that the compiler
read: when one has changed, it is made anew. A file lock keeps processes from making the same at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Kept:
    """One file that was made.

    Args:
        path: the file.
        headers: the digest of each file that it depends on, but for what the folder's name stands for.
        facts: what else there is to say of it.
    """

    path: pathlib.Path
    headers: dict[str, str]
    facts: dict[str, Any] = field(default_factory=dict)

    def is_current(self) -> bool:
        """Whether the file is there and all that it depends on is what it was."""
        return self.path.exists() and all(file_digest(path) == one for path, one in self.headers.items())


def folder() -> pathlib.Path:
    """Where everything is kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("BRIDGE_CACHE") or pathlib.Path(cache) / "aten-bridge")


def digest(*parts: str | bytes) -> str:
    """A name for some content."""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(str(len(data)).encode() + b":" + data)
    return found.hexdigest()[:24]


def file_digest(path: str) -> str:
    """The digest of a file's content; "absent" if there is none."""
    try:
        return digest(pathlib.Path(path).read_bytes())
    except OSError:
        return "absent"


def current(place: pathlib.Path) -> list[Kept]:
    """What a folder has that is still what would be made."""
    try:
        rows = json.loads((place / "manifest.json").read_text())
    except (OSError, ValueError):
        return []
    kept = [Kept(place / row["path"], row["headers"], row["facts"]) for row in rows]
    return [one for one in kept if one.is_current()]


def keep(place: pathlib.Path, made: Kept) -> None:
    """Add to a folder what was made, and remove what is not current any more. The caller holds the lock."""
    kept = [one for one in current(place) if one.path != made.path] + [made]
    fresh = place / "manifest.new"
    fresh.write_text(json.dumps([asdict(one) | {"path": one.path.name} for one in kept], indent=1))
    os.replace(fresh, place / "manifest.json")
    names = {one.path.name for one in kept}
    for old in (*place.glob("*.so"), *place.glob("*.o")):
        if old.name not in names:
            old.unlink()


@contextmanager
def locked(place: pathlib.Path, name: str) -> Iterator[pathlib.Path]:
    """Make a folder and hold its lock; gives a scratch folder in it.

    Args:
        place: the folder.
        name: what is made there, for who waits.
    """
    place.mkdir(parents=True, exist_ok=True)
    with open(place / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is building {name}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        scratch = place / "building"
        shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def say(what: str) -> None:
    """Tell the user what takes its time."""
    print(f"bridge: {what}", file=sys.stderr, flush=True)
