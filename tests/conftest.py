"""What every test stands on: nothing of the user's, nothing of another test's."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from platformdirs import user_cache_path

_REAL_HOME = Path.home()
_REAL_CACHE = user_cache_path("vpatch", appauthor=False) / "tests"
_WHEN = "2026-01-02T03:04:05+0000"

_IDENTITY = {
    "GIT_AUTHOR_NAME": "A Tester",
    "GIT_AUTHOR_EMAIL": "tester@example.com",
    "GIT_AUTHOR_DATE": _WHEN,
    "GIT_COMMITTER_NAME": "A Tester",
    "GIT_COMMITTER_EMAIL": "tester@example.com",
    "GIT_COMMITTER_DATE": _WHEN,
    "GIT_CONFIG_NOSYSTEM": "1",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "NO_COLOR": "1",
}

_HOSTILE = """\
[user]
    name = Someone Else
    email = someone@else.invalid
[core]
    autocrlf = true
    quotePath = false
    abbrev = 4
    hooksPath = {home}/hooks
    attributesFile = {home}/attributes
    excludesFile = {home}/excludes
[diff]
    noprefix = true
    context = 0
    interHunkContext = 9
    renames = copies
    orderFile = {home}/order
    suppressBlankEmpty = true
    algorithm = patience
    external = false
[format]
    signOff = true
    attach = true
    headers = "X-Hostile: yes\\n"
    to = someone@else.invalid
    notes = true
    from = true
    coverLetter = true
    thread = deep
    subjectPrefix = HOSTILE
    encodeEmailHeaders = false
[apply]
    whitespace = fix
    ignoreWhitespace = change
[am]
    threeWay = true
    keepcr = false
[commit]
    gpgSign = true
    template = {home}/template
[tag]
    gpgSign = true
[gpg]
    program = false
[i18n]
    commitEncoding = ISO-8859-1
    logOutputEncoding = UTF-16
[init]
    defaultBranch = hostile
    templateDir = {home}/init-template
[pack]
    compression = 0
[gc]
    auto = 1
[transfer]
    unpackLimit = 1
"""


@pytest.fixture(scope="session", autouse=True)
def hermetic_git() -> Iterator[None]:
    """The same identity and no user's configuration, for what is made once for many tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("GIT_")]:
            patch.delenv(name)
        for name, value in {**_IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def hermetic(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fresh HOME and cache, fixed identity and date; pip's configuration stays reachable."""
    home = tmp_path / "home"
    home.mkdir()
    _keep_pip_configuration(monkeypatch)
    for name in [name for name in os.environ if name.startswith(("GIT_", "XDG_", "VPATCH_"))]:
        if name != "VPATCH_TEST_CACHE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    for name, value in _IDENTITY.items():
        monkeypatch.setenv(name, value)
    cache = tmp_path / "cache"
    if "release_cache" in request.fixturenames:
        cache = request.getfixturevalue("release_cache")
    monkeypatch.setenv("VPATCH_CACHE", str(cache))


def _keep_pip_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    # pip looks for its user file and for .netrc under HOME, which moves.
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or _REAL_HOME / ".config") / "pip/pip.conf"
    if "PIP_CONFIG_FILE" not in os.environ and settings.is_file():
        monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    if "NETRC" not in os.environ and (_REAL_HOME / ".netrc").is_file():
        monkeypatch.setenv("NETRC", str(_REAL_HOME / ".netrc"))


@pytest.fixture(scope="session")
def release_cache() -> Path:
    """A cache that runs share, so that a warm run downloads nothing; it is VPATCH_CACHE then."""
    cache = Path(os.environ.get("VPATCH_TEST_CACHE") or _REAL_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@pytest.fixture
def hostile_git_config(hermetic: None) -> Path:
    """A HOME whose git settings change everything that settings can change; returns that HOME."""
    home = Path(os.environ["HOME"])
    (home / ".gitconfig").write_text(_HOSTILE.format(home=home))
    for name in ("order", "excludes", "template", "attributes"):
        (home / name).write_text("*.py\n" if name != "attributes" else "* text eol=crlf ident\n")
    for folder in (home / "hooks", home / "init-template" / "hooks"):
        folder.mkdir(parents=True)
        for name in ("pre-commit", "commit-msg", "applypatch-msg", "pre-applypatch", "update"):
            hook = folder / name
            hook.write_text("#!/bin/sh\necho hostile hook ran >&2\nexit 1\n")
            hook.chmod(0o755)
        (folder / "reference-transaction").write_text("#!/bin/sh\nexit 1\n")
        (folder / "reference-transaction").chmod(0o755)
    return home


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what runs in the background with SIGINT ignored, and children inherit it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
