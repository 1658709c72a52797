"""A series on a base tree, in the object database: no checkout, nobody's files touched.

git applies the patches to an index of our own, without fuzz and without a three-way merge. The
verdicts come from the lines of the blobs before and after, never from what git says about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vpatch.errors import ConflictError
from vpatch.git import Git, Output, blob_id
from vpatch.patches import blocked
from vpatch.patches.diff import FileChange
from vpatch.patches.inplace import contents_in_place
from vpatch.patches.patch import Patch
from vpatch.patches.place import Misfit, applied_in_place, misfits, whole_file
from vpatch.patches.series import Series

# git apply: it fits; it does not; a folder stands where a file has to be, or git itself failed.
_FITS, _REFUSED, _FATAL = 0, 1, 128
CLEAN = "clean"
OFFSET = "offset"
CONFLICT = "conflict"
SET_ASIDE = "set-aside"
NOT_TRIED = "not-tried"

# A release that is imported from its wheel has the package and nothing else. What a wheel never
# carries cannot matter to it, so a patch of these folders alone is set aside, by name.
_NOT_IN_A_WHEEL = ("tests/", "docs/", "examples/", "benchmarks/")


@dataclass(frozen=True)
class AppliedPatch:
    """One patch's part in the result.

    Attributes:
        verdict: ``clean`` (every hunk at its line), ``offset`` (some hunk elsewhere), ``conflict``,
            ``set-aside`` (this kind of source has none of its files), or ``not-tried`` (it stands
            behind a conflict).
    """

    file: str
    subject: str
    topic: str
    verdict: str

    def as_dict(self) -> dict[str, str]:
        """The entry as ``--json`` prints it."""
        return {
            "file": self.file,
            "subject": self.subject,
            "topic": self.topic,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class Applied:
    """A series applied to a base tree; with no patches, the release as it is."""

    tag: str
    kind: str
    base_tree: str
    tree: str
    patches: tuple[AppliedPatch, ...]

    def as_dict(self) -> dict[str, object]:
        """The result as ``--json`` prints it."""
        return {
            "tag": self.tag,
            "base_tree": self.base_tree,
            "tree": self.tree,
            "patches": [patch.as_dict() for patch in self.patches],
        }


@dataclass(frozen=True)
class Conflict:
    """A patch that does not fit, with everything needed to say why.

    Attributes:
        misfits: The hunks or files that do not fit, in the order of the diff; never empty.
        patches: Every patch of the series with its verdict.
        git_says: git's own complaint: shown to people, never interpreted.
    """

    tag: str
    kind: str
    base_tree: str
    file: str
    subject: str
    topic: str
    misfits: tuple[Misfit, ...]
    patches: tuple[AppliedPatch, ...]
    git_says: str

    @property
    def not_tried(self) -> tuple[str, ...]:
        """The patches behind the conflict."""
        return tuple(patch.file for patch in self.patches if patch.verdict == NOT_TRIED)

    def as_dict(self) -> dict[str, object]:
        """The conflict as ``--json`` prints it."""
        return {
            "file": self.file,
            "subject": self.subject,
            "topic": self.topic,
            "misfits": [
                {
                    "path": misfit.path,
                    "line": misfit.line,
                    "hunk": misfit.hunk,
                    "header": misfit.header,
                    "patch_line": misfit.patch_line,
                    "reason": misfit.reason,
                    "wanted": list(misfit.wanted),
                    "standing": list(misfit.standing),
                }
                for misfit in self.misfits
            ],
        }


class PatchConflictError(ConflictError):
    """A patch of a series does not fit its base (exit 3); ``conflict`` says where and why."""

    def __init__(self, conflict: Conflict) -> None:
        self.conflict = conflict
        first = conflict.misfits[0]
        super().__init__(
            f"{conflict.file} does not fit {conflict.tag}: {_sentence(first, conflict.git_says)}",
            hint=f"Compare {conflict.file}:{first.patch_line} with {first.place}, "
            "and refresh the patch on this release.",
        )


@dataclass(frozen=True)
class _Step:
    patch: Patch
    before: str
    after: str
    set_aside: bool


def unpatched(tag: str, kind: str, base_tree: str) -> Applied:
    """The release as it is."""
    return Applied(tag=tag, kind=kind, base_tree=base_tree, tree=base_tree, patches=())


def apply_series(git: Git, base_tree: str, series: Series, *, kind: str = "sdist") -> Applied:
    """Applies a series to a tree of a repository.

    Args:
        git: The repository; it gains blobs and trees, and nothing else changes.
        base_tree: Id of the tree to start from.
        series: The patches.
        kind: Kind of source that the tree came from (``sdist``, ``wheel``, ``git``).

    Raises:
        PatchConflictError: a patch does not fit.
        HostError: git failed for another reason.
    """
    fitting = [patch for patch in series.patches if kind != "wheel" or not is_set_aside(patch)]
    tree = _apply_at_once(git, base_tree, fitting)
    if tree is None:
        return _apply_one_by_one(git, base_tree, series, kind)
    patches = (
        _described(patch, CLEAN if patch in fitting else SET_ASIDE) for patch in series.patches
    )
    return Applied(series.tag, kind, base_tree, tree, tuple(patches))


def _apply_at_once(git: Git, base_tree: str, patches: Sequence[Patch]) -> str | None:
    """The patched tree where every hunk stands at its line, as in every exact pin.

    A fifth of the git processes that it takes to go patch by patch. What git makes is compared
    with what the lines say.

    Returns:
        None where some hunk stands elsewhere, or a change is more than hunks.
    """
    steps = contents_in_place(git, base_tree, patches)
    if steps is None:
        return None
    wanted = {path: data for step in steps for path, data in step.items()}
    with git.temporary_index() as index:
        index.run("read-tree", base_tree)
        diffs = b"".join(patch.diff for patch in patches)
        ok = (_FITS, _REFUSED, _FATAL)
        if diffs and index.run("apply", "--cached", "-", stdin=diffs, ok=ok).status:
            return None
        tree = index.line("write-tree")
    made = git.blob_ids(tree, wanted)
    return tree if made == {path: blob_id(data) for path, data in wanted.items()} else None


def _apply_one_by_one(git: Git, base_tree: str, series: Series, kind: str) -> Applied:
    steps: list[_Step] = []
    with git.temporary_index() as index:
        index.run("read-tree", base_tree)
        tree = base_tree
        for patch in series.patches:
            if kind == "wheel" and is_set_aside(patch):
                steps.append(_Step(patch, tree, tree, set_aside=True))
                continue
            output = _try(index, tree, patch)
            if output.status:
                so_far = Applied(series.tag, kind, base_tree, tree, _verdicts(git, steps))
                raise _conflict(git, so_far, series, output.complaint)
            after = index.line("write-tree")
            steps.append(_Step(patch, tree, after, set_aside=False))
            tree = after
    return Applied(series.tag, kind, base_tree, tree, _verdicts(git, steps))


def _try(index: Git, tree: str, patch: Patch) -> Output:
    """Applies a patch to an index of a tree; any status but 0 is about the patch."""
    command = ("apply", "--cached", "-")
    output = index.run(*command, stdin=patch.diff, ok=(_FITS, _REFUSED, _FATAL))
    if output.status == _FATAL and not any(
        blocked.blocked(index, tree, change) for change in patch.files
    ):
        return index.run(*command, stdin=patch.diff, ok=(_FITS, _REFUSED))  # it says what it is
    return output


def is_set_aside(patch: Patch) -> bool:
    """Whether a release that is imported from its wheel has none of the patch's files."""
    return all(path.startswith(_NOT_IN_A_WHEEL) for path in patch.paths)


def _verdicts(git: Git, steps: Sequence[_Step]) -> tuple[AppliedPatch, ...]:
    names = [
        name
        for step in steps
        if not step.set_aside
        for change in step.patch.files
        if change.hunks
        for name in _blob_names(step, change)
        if name
    ]
    blobs = git.read_blobs(names) if names else {}
    return tuple(_described(step.patch, _verdict(step, blobs)) for step in steps)


def _blob_names(step: _Step, change: FileChange) -> tuple[str, str]:
    before = f"{step.before}:{change.path_old}" if change.path_old else ""
    after = f"{step.after}:{change.path_new}" if change.path_new else ""
    return before, after


def _verdict(step: _Step, blobs: dict[str, bytes]) -> str:
    if step.set_aside:
        return SET_ASIDE
    for change in step.patch.files:
        if change.hunks:
            before, after = (blobs.get(name, b"") for name in _blob_names(step, change))
            if applied_in_place(before, change) != after:
                return OFFSET
    return CLEAN


def _described(patch: Patch, verdict: str) -> AppliedPatch:
    return AppliedPatch(
        file=patch.file,
        subject=patch.subject,
        topic=patch.topic,
        verdict=verdict,
    )


def _conflict(git: Git, so_far: Applied, series: Series, git_says: str) -> PatchConflictError:
    patch, *later = series.patches[len(so_far.patches) :]
    tree = so_far.tree
    rest = (_described(patch, CONFLICT), *(_described(p, NOT_TRIED) for p in later))
    return PatchConflictError(
        Conflict(
            tag=so_far.tag,
            kind=so_far.kind,
            base_tree=so_far.base_tree,
            file=patch.file,
            subject=patch.subject,
            topic=patch.topic,
            misfits=_misfits(git, tree, patch),
            patches=(*so_far.patches, *rest),
            git_says=git_says,
        )
    )


def _misfits(git: Git, tree: str, patch: Patch) -> tuple[Misfit, ...]:
    blobs = git.read_blobs(f"{tree}:{path}" for path in patch.paths)
    standing = {name.removeprefix(f"{tree}:"): data for name, data in blobs.items()}
    found: list[Misfit] = []
    seen: set[str] = set()
    for change in patch.files:
        # A second diff of the same file builds on the first, which is not in the tree.
        if change.path not in seen:
            taken = blocked.blocked(git, tree, change)
            found += [taken] if taken else _file_misfits(standing, change)
        seen.update(change.paths)
    if found:
        return tuple(found)
    return tuple(whole_file(change, change.path, "refused") for change in patch.files)


def _file_misfits(standing: dict[str, bytes], change: FileChange) -> tuple[Misfit, ...]:
    old, new = change.path_old, change.path_new
    if old is not None and old not in standing:
        return (whole_file(change, old, "missing-file"),)
    if new is not None and new != old and new in standing:
        taken = whole_file(change, new, "file-exists")
        first = standing[new].split(b"\n", 1)[0].decode("utf-8", "replace")
        return (replace(taken, line=1, standing=(first,)),)
    return misfits(standing[old], change) if old is not None else ()


def _sentence(misfit: Misfit, git_says: str) -> str:
    if misfit.reason == "missing-file":
        return f"it changes {misfit.path}, which is not there"
    if misfit.reason == "file-exists":
        return f"it makes {misfit.path}, which is already there"
    if misfit.reason == blocked.FOLDER:
        return f"it makes {misfit.path}, and a folder of this name is there"
    if misfit.reason == blocked.FILE:
        return f"it makes {misfit.path}, and {misfit.standing[0]} is a file there, no folder"
    if misfit.reason == "lines-differ":
        return (
            f"the lines that hunk {misfit.hunk} of {misfit.path} ({misfit.header}) asks for "
            f"do not stand at {misfit.place}"
        )
    return f"git refuses its change of {misfit.path} ({git_says})"
