"""A release's tag from a git remote."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from vpatch.errors import HostError, UsageError
from vpatch.git import Git
from vpatch.progress import Progress
from vpatch.upstream.urls import redact

# Neither git:// (anyone on the way can change it) nor ext:: (runs commands).
_PROTOCOLS = "file:https:http:ssh"
_SCHEMES = frozenset({"file", "https", "http", "ssh"})


def fetch_tag(git_dir: Path, url: str, tag: str, ref: str, progress: Progress) -> None:
    """Fetches one tag, without history, and sets ``ref`` to its commit.

    Args:
        git_dir: The mirror; the caller holds its lock.
        url: https, ssh or file URL, ``user@host:path``, or a local folder.
        tag: A parsed tag.
        ref: The ref to set, once everything is there.
        progress: Is told what is waited for.

    Raises:
        UsageError: The URL is of another kind, or the remote has no such tag.
        HostError: The remote cannot be reached or refuses us.
    """
    incoming = f"refs/vpatch-incoming/{tag}"
    _fetch(git_dir, url, tag, "--depth=1", progress)
    git = Git(git_dir)
    commit = git.line("rev-parse", "--verify", "--end-of-options", f"{incoming}^{{commit}}")
    git.run("update-ref", ref, commit)
    git.run("update-ref", "-d", incoming)


def fetch_history(git_dir: Path, url: str, tag: str, since: str, progress: Progress) -> None:
    """Fetches what lies between two tags, so that its commits can be listed.

    Args:
        git_dir: The mirror; the caller holds its lock.
        tag: The later one, which the mirror has.
        since: The earlier one: what lies behind it stays where it is.

    Raises:
        As ``fetch_tag``.
    """
    _fetch(git_dir, url, tag, f"--shallow-exclude=refs/tags/{since}", progress)
    Git(git_dir).run("update-ref", "-d", f"refs/vpatch-incoming/{tag}")


def _fetch(git_dir: Path, url: str, tag: str, depth: str, progress: Progress) -> None:
    remote = checked_url(url)
    # The user's configuration only here: credentials, proxies and URL rewrites live in it.
    talker = Git(git_dir, user_config=True)
    incoming = f"refs/vpatch-incoming/{tag}"
    progress.start(f"{tag} from {redact(remote)}", None)
    try:
        result = talker.run(
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--refmap=",
            depth,
            "--end-of-options",
            remote,
            f"+refs/tags/{tag}:{incoming}",
            env={"GIT_ALLOW_PROTOCOL": _PROTOCOLS},
            ok=(0, 1, 128),
        )
    finally:
        progress.done()
    if result.status != 0:
        raise _failure(result.complaint, remote, tag)


def checked_url(url: str) -> str:
    """The URL if git may be given it; a local folder as an absolute path.

    Raises:
        UsageError: It looks like an option, or is of a kind that is not safe.
    """
    if "://" in url:
        safe = urlsplit(url).scheme in _SCHEMES
    elif "::" in url or url.startswith("-"):
        safe = False
    else:
        # Either a folder here, or scp's form user@host:path.
        if url and Path(url).expanduser().exists():
            return str(Path(url).expanduser().absolute())
        safe = ":" in url
    if not safe or any(ord(char) < 0x20 for char in url):  # noqa: PLR2004 - control characters
        raise UsageError(
            f"{redact(url)!r} is not a git remote that vpatch talks to",
            hint="Give an https, ssh or file URL, or a local repository that exists.",
            code="bad-url",
        )
    return url


def _failure(complaint: str, remote: str, tag: str) -> HostError | UsageError:
    if "couldn't find remote ref" in complaint:
        return UsageError(
            f"{redact(remote)} has no tag {tag}",
            hint=f"See its tags: git ls-remote --tags {redact(remote)}",
            code="unknown-tag",
        )
    return HostError(
        f"cannot fetch {tag} from {redact(remote)}: {redact(complaint)}",
        hint="Check the URL, the network and your git credentials, then run it again.",
        code="network",
    )
