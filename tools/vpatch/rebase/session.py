"""What a rebase in session knows: one JSON file beside the series, whole at every moment.

It holds what was resolved, not where to find it: a worktree that is gone can be written again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vpatch.errors import FindingError, HostError, UsageError
from vpatch.files import cache_dir, disk_errors, locked, sync_folder, write_atomically
from vpatch.rebase.model import Entry, Files
from vpatch.tags import version_of

SCHEMA = "vpatch/rebase-session/1"
_START, _END = ".", ".rebase.json"
Sides = tuple[Entry | None, Entry | None, Entry | None]


@dataclass(frozen=True)
class Stand:
    """Where a worktree stands.

    Attributes:
        patch: The patch that conflicts there; empty where none does.
        head: The commit that is checked out: the new line up to that patch.
        files: What differs from it: the patch's files, those that conflict with markers.
        stages: The files that conflict, each as base, ours and theirs.
        reasons: Why each of them does, as ``Conflicted.reason``.
    """

    patch: str
    head: str
    files: Files = field(default_factory=dict)
    stages: Mapping[str, Sides] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settlement:
    """What a person made of a patch.

    Attributes:
        onto: The commit on which they did.
        files: Its files in the new tree.
    """

    onto: str
    files: Files


@dataclass(frozen=True)
class Session:
    """A rebase that stopped at a conflict.

    Attributes:
        source, target: The releases; ``commits`` are theirs, ``series`` is the hash of the patches.
        kind, git_url: How the target was asked for: ``--source``, ``--upstream-git``.
        worktree: The folder to work in.
        was_there: It was an empty folder before.
        options: What else the command was given, by the names of `Wish`.
        settled: Patch -> what was made of it.
        skipped: Patches that are left out.
        stand: Where the worktree stands, or is to stand.
        leaving: Where it stood, while it is being moved; None where it is not.
    """

    source: str
    target: str
    commits: tuple[str, str]
    series: str
    worktree: Path
    stand: Stand
    kind: str = ""
    git_url: str = ""
    was_there: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    settled: Mapping[str, Settlement] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    leaving: Stand | None = None

    def to_json(self) -> bytes:
        """Its file."""
        data = {
            "schema": SCHEMA,
            "from": self.source,
            "to": self.target,
            "commits": list(self.commits),
            "series_sha256": self.series,
            "source": self.kind,
            "upstream_git": self.git_url,
            "worktree": os.fsdecode(os.fsencode(self.worktree)),
            "was_there": self.was_there,
            "options": dict(self.options),
            "settled": {
                name: {"onto": one.onto, "files": _files(one.files)}
                for name, one in self.settled.items()
            },
            "skipped": list(self.skipped),
            "stand": _stand(self.stand),
            "leaving": _stand(self.leaving) if self.leaving else None,
        }
        return json.dumps(data, indent=1).encode("ascii") + b"\n"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Session:
        """The session in its file.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is none.
        """
        first, second = data["commits"]
        return cls(
            source=_text(data["from"]),
            target=_text(data["to"]),
            commits=(_text(first), _text(second)),
            series=_text(data["series_sha256"]),
            worktree=Path(_text(data["worktree"])),
            stand=_read_stand(data["stand"]),
            kind=_text(data["source"]),
            git_url=_text(data["upstream_git"]),
            was_there=bool(data["was_there"]),
            options=dict(data["options"]),
            settled={
                _text(name): Settlement(_text(one["onto"]), _read_files(one["files"]))
                for name, one in data["settled"].items()
            },
            skipped=tuple(_text(name) for name in data["skipped"]),
            leaving=_read_stand(data["leaving"]) if data["leaving"] else None,
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _entry(entry: Entry | None) -> object:
    if entry is None:
        return None
    try:
        return [entry.mode, entry.data.decode("utf-8")]
    except UnicodeDecodeError:
        return [entry.mode, base64.b64encode(entry.data).decode("ascii"), "base64"]


def _read_entry(value: Any) -> Entry | None:
    if value is None:
        return None
    mode, text, *coded = value
    data = base64.b64decode(text, validate=True) if coded else _text(text).encode("utf-8")
    return Entry(_text(mode), data)


def _files(files: Files) -> dict[str, object]:
    return {path: _entry(entry) for path, entry in files.items()}


def _read_files(value: Any) -> dict[str, Entry | None]:
    return {_text(path): _read_entry(entry) for path, entry in value.items()}


def _stand(stand: Stand) -> dict[str, object]:
    return {
        "patch": stand.patch,
        "head": stand.head,
        "files": _files(stand.files),
        "stages": {path: [_entry(side) for side in sides] for path, sides in stand.stages.items()},
        "reasons": dict(stand.reasons),
    }


def _read_stand(value: Any) -> Stand:
    stages: dict[str, Sides] = {}
    for path, sides in value["stages"].items():
        base, ours, theirs = (_read_entry(side) for side in sides)
        stages[_text(path)] = (base, ours, theirs)
    return Stand(
        patch=_text(value["patch"]),
        head=_text(value["head"]),
        files=_read_files(value["files"]),
        stages=stages,
        reasons={_text(path): _text(why) for path, why in value["reasons"].items()},
    )


def session_file(repo: Path, target: str) -> Path:
    """Where the session of a release is kept: there is one at most."""
    return repo / "patches" / f"{_START}{target}{_END}"


def targets(repo: Path) -> list[str]:
    """The releases that have a session, oldest first."""
    found = (repo / "patches").glob(f"{_START}v*{_END}")
    names = (path.name.removeprefix(_START).removesuffix(_END) for path in found)
    return sorted(names, key=version_of)


def load(repo: Path, target: str) -> Session | None:
    """The session of a release; None where there is none.

    Raises:
        UsageError: another vpatch began it.
        FindingError: its file is damaged.
        HostError: its file cannot be opened.
    """
    path = session_file(repo, target)
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError(
            f"{path} cannot be read: {error.strerror}", hint="Check its permissions.", code="disk"
        ) from error
    try:
        data = json.loads(text)
        schema = data["schema"]
        if schema == SCHEMA:
            return Session.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FindingError(
            f"{path}, the session of a rebase to {target}, is damaged: {error}",
            hint="Keep what you need of its worktree, and remove both.",
            code="session-damaged",
        ) from error
    raise UsageError(
        f"the rebase to {target} was begun by another vpatch ({schema}; this one knows {SCHEMA})",
        hint=f"Finish it with that one, or keep what you need of its worktree and remove {path}.",
        code="other-session",
    )


def save(repo: Path, session: Session) -> None:
    """Keeps a session, whole or not at all.

    Raises:
        HostError: the disk refused.
    """
    write_atomically(session_file(repo, session.target), session.to_json())


def forget(repo: Path, target: str) -> None:
    """Ends a session, and clears what killed runs left of its file.

    Raises:
        HostError: the disk refused.
    """
    path = session_file(repo, target)
    with disk_errors(path):
        for left in (path, *path.parent.glob(f".{path.name}.*")):
            left.unlink(missing_ok=True)
        sync_folder(path.parent)


@contextmanager
def holding(repo: Path) -> Iterator[None]:
    """Keeps other runs away from the sessions of a repository.

    Raises:
        UsageError: another one is at work.
    """
    name = hashlib.sha256(os.fsencode(repo.resolve())).hexdigest()[:16]
    with locked(cache_dir() / "locks" / f"rebase-{name}.lock", on_wait=_busy):
        yield


def _busy(_: str) -> None:
    raise UsageError(
        "another vpatch is at work on a rebase in session here",
        hint="Wait until it is done: vpatch rebase --status",
        code="session-busy",
    )
