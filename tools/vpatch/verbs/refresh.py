"""``vpatch refresh``: one patch written anew on the tree before it."""

from __future__ import annotations

from pathlib import Path

from vpatch import pipeline
from vpatch.errors import UsageError
from vpatch.patches.pin import PIN, Pin
from vpatch.patches.refresh import Refreshed, refresh
from vpatch.patches.repo import existing_series, pinned
from vpatch.patches.repository import scratch_repository
from vpatch.patches.rewrite import Rewritten, Wanted, verified, write
from vpatch.patches.series import Series
from vpatch.pipeline import Upstream
from vpatch.report import Report, lines, plain, table
from vpatch.tags import parse_tag
from vpatch.upstream.mirror import Release
from vpatch.verbs.export import change_rows, series_for_writing, summary


def run(tag: str, repo: Path, upstream: Upstream, name: str, *, check: bool) -> Report:
    """Computes, verifies and swaps in the series with a refreshed patch.

    The patches may have been edited by hand: they need not be those that the pin names.

    Raises:
        UsageError: no pin, no such patch.
        ConflictError: a patch does not fit.
        FindingsError: the series cannot be read, or lint finds something.
        HostError: git, network, disk.
    """
    with series_for_writing(tag, repo, upstream, check=check) as (before, replacement):
        tag = parse_tag(tag)
        folder = existing_series(repo, tag)
        if not (folder / PIN).is_file():
            pinned(repo, tag)  # says which releases have a pin
            raise UsageError(f"{tag} has no pin", code="no-pin")
        pin, old = Pin.read(folder / PIN), Series.read(folder, tag)
        mirror, releases = pipeline.fetch_sources(tag, upstream, pin)
        release = _fullest(releases)
        with scratch_repository(mirror.git.git_dir) as git:
            done = refresh(git, release.tree, old, name, kind=release.kind)
            rewritten = verified(
                git,
                folder=folder,
                before=before,
                pin=pin,
                new=done.new,
                releases=releases,
                wanted=Wanted(release.tree, done.tree),
            )
        if replacement is not None:
            write(replacement, rewritten)
    return _report(pin.revision, done, rewritten, check=check)


def _fullest(releases: tuple[Release, ...]) -> Release:
    """The source that has the most files: no patch is set aside where it is not the wheel."""
    return min(releases, key=lambda release: release.kind == "wheel")


def _report(before: int, done: Refreshed, rewritten: Rewritten, *, check: bool) -> Report:
    tag = rewritten.pin.tag
    rows = [
        {**row, "verdict": applied.verdict}
        for row, applied in zip(done.new.rows, done.verdicts, strict=True)
    ]
    shown = change_rows(done.new.rows)
    data = {
        "tag": tag,
        "changed": rewritten.changed,
        "written": rewritten.changed and not check,
        "revision": rewritten.pin.revision,
        "patches": rows,
    }
    text = lines(
        table(("change", "patch", ""), shown) if shown else None,
        plain(summary(tag, before, rewritten, done.new, check=check)),
    )
    return Report("refresh", data, text, exit_code=1 if check and rewritten.changed else 0)
