"""Releases of vLLM as commits in a bare repository in the user's cache."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from vpatch.errors import HostError, UsageError
from vpatch.files import disk_errors, locked, sync_folder
from vpatch.git import Git
from vpatch.progress import Progress, SilentProgress
from vpatch.tags import parse_tag, version_of
from vpatch.upstream.git_remote import fetch_history, fetch_tag
from vpatch.upstream.importer import Provenance, fast_import_stream
from vpatch.upstream.source import Source, find_source, read_source

if TYPE_CHECKING:
    from vpatch.upstream.index import Index

PROJECT = "vllm"
ArchiveKind = Literal["sdist", "wheel"]
Kind = Literal["git", "sdist", "wheel"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_SILENT = SilentProgress()


@dataclass(frozen=True)
class Release:
    """One release in the mirror, and where it came from.

    ``upstream_commit`` is upstream's (short where only ``_version.py`` tells it), None if unknown.
    ``filename`` and ``sha256`` name the sdist or wheel; both are None for kind git.
    """

    tag: str
    kind: Kind
    commit: str
    tree: str
    upstream_commit: str | None
    filename: str | None
    sha256: str | None


class Mirror:
    """The bare repository ``<cache>/mirror.git``; a release is ``refs/vpatch/<kind>/<tag>``."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.git = Git(cache / "mirror.git")

    @classmethod
    def open(cls, cache: Path) -> Mirror:
        """Opens the mirror; creates it where it is missing.

        Raises:
            HostError: The cache cannot be written, or git is missing.
        """
        mirror = cls(cache)
        if not (mirror.git.git_dir / "HEAD").is_file():
            with locked(cache / "mirror.lock"), disk_errors(cache):
                mirror._create()
        return mirror

    def find(self, tag: str, kind: Kind | None = None) -> Release | None:
        """What is already imported; no network, one git process.

        Args:
            tag: With or without its v.
            kind: Only this kind; without it git before sdist before wheel.

        Raises:
            UsageError: Not a release tag.
            HostError: The mirror is damaged.
        """
        name = parse_tag(tag)
        kinds = _KINDS if kind is None else (kind,)
        found = {
            release.kind: release
            for release in self._read_refs([f"refs/vpatch/{each}/{name}" for each in kinds])
        }
        return next((found[each] for each in kinds if each in found), None)

    def imported(self) -> list[Release]:
        """Everything that is imported, oldest version first.

        Raises:
            HostError: The mirror is damaged.
        """
        releases = self._read_refs(["refs/vpatch/"])
        return sorted(releases, key=lambda each: (version_of(each.tag), _KINDS.index(each.kind)))

    def fetch(
        self,
        tag: str,
        *,
        index: Index | None = None,
        upstream_git: str | None = None,
        kind: ArchiveKind | None = None,
        sha256: Mapping[str, str] | None = None,
        progress: Progress = _SILENT,
    ) -> Release:
        """Imports a release when it is not there yet.

        Args:
            tag: With or without its v.
            index: Where to look for sdist and wheel. None: only what is imported already.
            upstream_git: A git remote to take the tag from instead.
            kind: Only this kind; without it the sdist, or the wheel where there is no sdist.
            sha256: kind -> the hash that a pin wants; other bytes are refused.
            progress: Is told what is waited for.

        Raises:
            UsageError: Not a tag, or a tag that the index or remote does not have.
            HostError: Network, disk, a hash that is wrong, a hostile or damaged archive.
        """
        name = parse_tag(tag)
        if upstream_git is not None:
            return self._fetch_git(name, upstream_git, progress)
        wanted = sha256 or {}
        kinds: tuple[ArchiveKind, ...] = ("sdist", "wheel") if kind is None else (kind,)
        for each in kinds:
            release = self.find(name, each)
            if release is None:
                continue
            if wanted.get(each) in {None, release.sha256}:
                return release
            break  # the bytes that are wanted are elsewhere: no step to another kind
        return self._fetch_archive(name, kinds, index, wanted, progress)

    def deepen(self, tag: str, since: str, upstream_git: str, progress: Progress = _SILENT) -> None:
        """Fetches the commits between two tags of a remote, of which ``tag`` is here already.

        Raises:
            UsageError: Not a tag, or a tag that the remote does not have.
            HostError: The remote cannot be reached or refuses us.
        """
        name, start = parse_tag(tag), parse_tag(since)
        with self._locked(progress):
            fetch_history(self.git.git_dir, upstream_git, name, start, progress)

    def _fetch_git(self, tag: str, url: str, progress: Progress) -> Release:
        # What is there may have come from another remote: each remote has a ref of its own.
        remote = hashlib.sha256(url.encode()).hexdigest()[:16]
        own = f"refs/vpatch-remote/{remote}/{tag}"
        with self._locked(progress):
            if not self.git.output("for-each-ref", own):
                fetch_tag(self.git.git_dir, url, tag, own, progress)
            self.git.run("update-ref", f"refs/vpatch/git/{tag}", self.git.line("rev-parse", own))
        return self._imported_now(tag, "git")

    def _fetch_archive(
        self,
        tag: str,
        kinds: tuple[ArchiveKind, ...],
        index: Index | None,
        wanted: Mapping[str, str],
        progress: Progress,
    ) -> Release:
        if index is None:
            raise HostError(
                f"{tag} is not in the mirror {self.git.git_dir}",
                hint=f"Import it: vpatch fetch {tag}",
                code="not-imported",
            )
        artifact = find_source(index, PROJECT, tag, kinds, wanted)
        if artifact is None:
            raise _unknown(tag, kinds, index)
        # Read before the lock is taken: a slow download must not hold up other releases.
        source = read_source(index, artifact, self.cache / "artifacts", progress)
        with self._locked(progress):
            release = self.find(tag, artifact.kind)
            if release is None or release.sha256 != artifact.sha256:
                self._import(tag, source, progress)
        return self._imported_now(tag, artifact.kind)

    def _import(self, tag: str, source: Source, progress: Progress) -> None:
        kind = source.artifact.kind
        provenance = Provenance(
            tag=tag,
            kind=kind,
            filename=source.artifact.filename,
            sha256=str(source.artifact.sha256),
            upstream_commit=source.upstream_commit,
        )
        stream = fast_import_stream(source.members, provenance, f"refs/vpatch/{kind}/{tag}")
        progress.start(f"{tag}: importing {len(source.members)} files", None)
        try:
            self.git.run(
                "fast-import",
                "--quiet",
                "--done",  # a stream that breaks off is no commit
                "--force",
                "--date-format=raw",
                # Looking for deltas among different files costs a second and saves 1 %.
                "--depth=0",
                stdin=stream,
            )
        finally:
            progress.done()

    def _imported_now(self, tag: str, kind: Kind) -> Release:
        release = self.find(tag, kind)
        if release is None:
            raise HostError(
                f"{tag} was imported into {self.git.git_dir}, but cannot be found there",
                hint=f"Remove that folder and run it again: rm -r {self.git.git_dir}",
                code="mirror-damaged",
            )
        return release

    def _read_refs(self, patterns: list[str]) -> list[Release]:
        fields = "%(refname)%00%(objectname)%00%(tree)%00%(contents)%00"
        try:
            answer = self.git.output("for-each-ref", f"--format={fields}", *patterns)
        except HostError as error:
            if error.code != "git":
                raise
            raise HostError(
                f"the mirror {self.git.git_dir} is damaged: {error.message}",
                hint=f"Remove it and fetch again: rm -r {self.git.git_dir}",
                code="mirror-damaged",
            ) from error
        values = answer.decode("utf-8", "replace").split("\0")
        records = zip(values[0::4], values[1::4], values[2::4], values[3::4], strict=False)
        releases = (_release(ref.lstrip("\n"), *rest) for ref, *rest in records)
        return [release for release in releases if release is not None]

    @contextmanager
    def _locked(self, progress: Progress) -> Iterator[None]:
        with locked(self.cache / "mirror.lock", on_wait=progress.say):
            with disk_errors(self.git.git_dir):
                self._remove_rests()
            yield

    def _remove_rests(self) -> None:
        """What a killed import or fetch left behind; only holders of the lock make such files."""
        folder = self.git.git_dir
        rests = [
            *(folder / "objects/pack").glob("tmp_*"),
            *(folder / "refs/vpatch").rglob("*.lock"),
            *(folder / "refs/vpatch-incoming").rglob("*.lock"),
            *folder.glob("fast_import_crash_*"),
            *folder.glob("shallow*.lock"),
        ]
        for rest in rests:
            rest.unlink(missing_ok=True)

    def _create(self) -> None:
        folder = self.git.git_dir
        if (folder / "HEAD").is_file():
            return
        # Made beside and renamed: a mirror that exists is complete.
        fresh = folder.with_name("mirror.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        git = Git(fresh)
        git.run("init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        # Imports are read far more often than moved: half the size is not worth twice the time.
        git.run("config", "pack.compression", "1")
        fresh.rename(folder)
        sync_folder(self.cache)


def _release(ref: str, commit: str, tree: str, message: str) -> Release | None:
    _, _, kind, tag = ref.split("/", 3)
    if kind == "git":
        return Release(tag, "git", commit, tree, commit, None, None)
    archive_kind: ArchiveKind = "sdist" if kind == "sdist" else "wheel"
    said = Provenance.parse(tag, archive_kind, message)
    if said is None:
        return None
    return Release(
        tag, archive_kind, commit, tree, said.upstream_commit, said.filename, said.sha256
    )


def _unknown(tag: str, kinds: tuple[ArchiveKind, ...], index: Index) -> UsageError:
    known = sorted({artifact.version for artifact in index.releases(PROJECT)})
    wanted = version_of(tag)
    near = [v for v in known if v < wanted][-2:] + [v for v in known if v > wanted][:2]
    listed = ", ".join(f"v{version}" for version in near) or "no release at all"
    return UsageError(
        f"no {' or '.join(kinds)} of {PROJECT} {tag} is listed by {', '.join(index.places)}",
        hint=f"Nearest that are listed: {listed}. See all: vpatch releases",
        code="unknown-tag",
    )
