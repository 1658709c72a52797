"""A pin against the committed one: a revision names one series for ever.

``+kimi.N`` would otherwise be two wheels under one name. The committed pin is read from git's
objects: nobody's configuration, hooks or attributes have a say in it.
"""

from __future__ import annotations

from pathlib import Path

from vpatch.errors import UsageError
from vpatch.findings import Finding, FindingsError
from vpatch.git import Git
from vpatch.patches.pin import PIN, Pin

HEAD = "HEAD"


def revision_findings(pin: Pin, folder: Path, since: str = HEAD) -> tuple[Finding, ...]:
    """What is wrong with a pin's revision.

    Args:
        pin: The pin as it lies in the folder.
        folder: ``patches/TAG``.
        since: The revision of the repository whose pin counts as published; outside of a git
            repository, or before the first commit, there is none.

    Raises:
        UsageError: there is no such revision, and it is not the default.
    """
    before = _committed(folder, since)
    if before is None:
        return ()
    name = str(folder / PIN)
    if pin.revision < before.revision:
        message = f"`revision` is {pin.revision}, and {since} has {before.revision} already"
        return (Finding(name, None, "revision-lower", message),)
    if pin.revision == before.revision and pin.series_sha256 != before.series_sha256:
        message = (
            f"`revision` {pin.revision} names the series {before.series_sha256[:12]} in {since}, "
            f"and {pin.series_sha256[:12]} here: changed bytes need the next revision"
        )
        return (Finding(name, None, "revision-reused", message),)
    return ()


def _committed(folder: Path, since: str) -> Pin | None:
    top = next((f for f in folder.resolve().parents if (f / ".git").exists()), None)
    if top is None:
        if since != HEAD:
            raise UsageError(
                f"{since} cannot be looked up: {folder} is in no git repository",
                hint="Leave --since out.",
                code="no-history",
            )
        return None
    git = Git(top / ".git", work_tree=top)
    found = git.run("rev-parse", "--verify", "--quiet", "--end-of-options", since, ok=(0, 1))
    if found.status:
        if since != HEAD:
            raise UsageError(
                f"{top} has no revision {since}",
                hint="Name a commit, a branch or a tag: git log --oneline.",
                code="no-revision",
            )
        return None
    path = (folder.resolve() / PIN).relative_to(top).as_posix()
    commit = found.stdout.decode().strip()
    data = git.read_blobs([f"{commit}:{path}"]).values() if "\n" not in path else ()
    return _parsed(next(iter(data), b""), path)


def _parsed(data: bytes, path: str) -> Pin | None:
    """The pin in a committed file; where that is no pin, any revision is new."""
    try:
        return Pin.parse(data, path)
    except FindingsError:
        return None
