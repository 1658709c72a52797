"""``patches/resolutions/``: what was made of conflicts, kept beside the patches, used again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vpatch.errors import HostError
from vpatch.files import write_atomically
from vpatch.findings import Finding, FindingsError
from vpatch.patches.patch import Patch
from vpatch.rebase.markers import left_markers
from vpatch.rebase.model import Conflicted, Entry, Files, Rebased
from vpatch.rebase.recall import Recalled
from vpatch.rebase.resolution import SUFFIX, ByLines, Resolution, fitted, refusal
from vpatch.rebase.resolution_text import as_text, read_text

FOLDER = "resolutions"


@dataclass(frozen=True)
class Unused:
    """A stored resolution that a rebase had no use for, and why."""

    source: str
    why: str


@dataclass(frozen=True)
class Resolutions:
    """All that are stored.

    Attributes:
        folder: ``patches/resolutions``.
        stored: name -> resolution; broken ones are left out.
        findings: What is wrong with the others.
    """

    folder: Path
    stored: dict[str, Resolution]
    findings: tuple[Finding, ...] = ()

    @classmethod
    def read(cls, repo: Path) -> Resolutions:
        """Reads the folder; there need not be one.

        Args:
            repo: The folder that holds ``patches/``.

        Raises:
            HostError: a file cannot be opened.
        """
        folder = repo / "patches" / FOLDER
        stored: dict[str, Resolution] = {}
        findings: list[Finding] = []
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.name.startswith("."):
                continue  # an editor's, or what a killed run left
            try:
                stored[path.name] = _read(path)
            except FindingsError as error:
                findings += error.findings
        return cls(folder, stored, tuple(findings))

    @classmethod
    def none(cls, repo: Path) -> Resolutions:
        """Those of nobody who wants any: new ones have their place all the same.

        Args:
            repo: The folder that holds ``patches/``.
        """
        return cls(repo / "patches" / FOLDER, {})

    def place(self, name: str) -> str:
        """How people find it: from the repository's folder."""
        return f"patches/{FOLDER}/{name}"

    def recall(
        self,
        patch: Patch,
        conflicts: Sequence[Conflicted],
        made: Files,
        read: Callable[[str], Entry | None],
    ) -> Recalled | None:
        """What is stored of exactly these conflicts; see ``vpatch.rebase.recall.Recall``."""
        for name, one in self.stored.items():
            files = fitted(one, conflicts, made, read) if one.is_of(patch) else None
            if files is not None:
                why = refusal(one, conflicts, files)
                return Recalled(self.place(name), files, why, one.lines)
        return None

    def unused(self, rebased: Rebased) -> tuple[Unused, ...]:
        """Those that were made for this rebase, and that it had no use for."""
        known = (one.carried.recalled for one in rebased.patches)
        used = {one.source for one in known if one is not None}
        # What was resolved by hand just now, and stored.
        new = [one.carried.patch for one in rebased.patches if one.verdict.word == "resolved"]
        return tuple(
            Unused(self.place(name), _why(one, rebased))
            for name, one in self.stored.items()
            if (one.source, one.target) == (rebased.source, rebased.target)
            and self.place(name) not in used
            and not any(one.is_of(patch) for patch in new)
        )

    def store(self, resolution: Resolution) -> str:
        """Keeps a resolution; one with the same key is replaced.

        Returns:
            Its place.

        Raises:
            HostError: the disk refused.
        """
        write_atomically(self.folder / resolution.name, as_text(resolution))
        return self.place(resolution.name)


def _read(path: Path) -> Resolution:
    try:
        if path.is_symlink() or not path.is_file() or path.suffix != SUFFIX:
            raise _refused(path, f"only files called *{SUFFIX} belong here")
        data = path.read_bytes()
    except OSError as error:
        raise HostError(
            f"{path} cannot be read: {error.strerror}", hint="Check the file's permissions."
        ) from error
    one = read_text(str(path), data)
    if one.name != path.name:
        raise _refused(path, f"it holds the resolution that is called {one.name}")
    for file in one.files:
        if not isinstance(file, ByLines):
            continue
        for clash in file.clashes:
            for _, text in left_markers(clash.resolved, (clash.base, clash.ours, clash.theirs)):
                message = f"what it makes of {file.path} holds the marker {text[:40]!r}"
                raise _refused(path, message, one.lines[file.path])
    return one


def _refused(path: Path, message: str, line: int | None = None) -> FindingsError:
    hint = "Remove it, and store it anew: vpatch rebase --continue --store"
    return FindingsError([Finding(str(path), line, "bad-resolution", message, hint)])


def _why(one: Resolution, rebased: Rebased) -> str:
    patches = [each.carried.patch for each in rebased.patches]
    same = [patch for patch in patches if patch.subject == one.subject]
    if not same:
        return "no patch has this subject"
    if not any(one.is_of(patch) for patch in same):
        return f"{same[0].file} is another patch by now"
    word = next(each.verdict.word for each in rebased.patches if each.carried.patch == same[0])
    return f"{same[0].file} {'has other conflicts' if word == 'conflict' else f'is {word}'}"
