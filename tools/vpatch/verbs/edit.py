"""``vpatch edit``: the series as commits, in a worktree that is never thrown away unasked."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from vpatch import pipeline
from vpatch.errors import UsageError
from vpatch.patches.called import counted
from vpatch.patches.edit import look_at, refused, replace_worktree
from vpatch.patches.repo import PATCHES, pinned
from vpatch.patches.series import Series
from vpatch.patches.swap import tidy
from vpatch.patches.worktree import base_ref, branch_name, fill_worktree
from vpatch.pipeline import Upstream
from vpatch.report import Report, lines, plain
from vpatch.upstream.mirror import Mirror


def run(tag: str, repo: Path, upstream: Upstream, folder: Path | None, *, discard: bool) -> Report:
    """Writes the worktree, or finds that it is there already.

    Raises:
        UsageError: no pin, something else is in the folder, or it is among the series.
        FindingError: the folder holds work that the series does not have, or another state of it
            and nobody said ``--discard``.
        ConflictError: a patch does not fit.
        HostError: git, network, disk.
    """
    _, series = pinned(repo, tag)
    place = Path(os.path.abspath(folder or repo.parent / f"vllm-{series.tag}"))  # noqa: PTH100
    _check_place(place, repo / PATCHES)
    if not _is_wanted(place, series, discard=discard):
        tidy(place)
        return _report(series, place, written=False)
    prepared = pipeline.prepare(tag, repo, upstream)

    def make(fresh: Path) -> None:
        mirror = Mirror.open(upstream.cache)
        fill_worktree(mirror.git, prepared.release.commit, prepared.applied, prepared.series, fresh)

    written = replace_worktree(place, lambda: _is_wanted(place, series, discard=discard), make)
    return _report(series, place, written=written)


def _check_place(place: Path, patches: Path) -> None:
    """A worktree in a series folder would move with it whenever the series is written."""
    if place.resolve().is_relative_to(patches.resolve()):
        raise UsageError(
            f"{place} is in {patches}, which holds the series",
            hint="Name a folder elsewhere: vpatch edit TAG DIR.",
            code="among-series",
        )


def _is_wanted(place: Path, series: Series, *, discard: bool) -> bool:
    """Whether a worktree is to be written there; raises where it may not be."""
    state = look_at(place, series)
    if state is None:
        return True
    if state.is_series:
        return False
    if state.unknown or not discard:
        raise refused(place, series.tag, state.unknown)
    return True


def _report(series: Series, place: Path, *, written: bool) -> Report:
    tag = series.tag
    folder = shlex.quote(str(place))
    said = f"{place}: {counted(len(series.patches))} as commits on branch {branch_name(tag)}"
    next_steps = (
        f"  git -C {folder} rebase -i {base_ref(tag)}",
        f"  vpatch export {tag} --from {folder} --check",
        f"  vpatch export {tag} --from {folder}",
    )
    data = {
        "tag": tag,
        "folder": str(place),
        "branch": branch_name(tag),
        "base": base_ref(tag),
        "written": written,
        "next": [step.strip() for step in next_steps],
    }
    text = lines(
        plain(said if written else f"{said}, as the series is: nothing to do"),
        *(plain(step) for step in next_steps),
    )
    return Report("edit", data, text)
