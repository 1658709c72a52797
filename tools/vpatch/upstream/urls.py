"""URLs without their secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

# Greedy: a password may hold a slash or a question mark that nobody has encoded.
_USERINFO = re.compile(r"(?<=://)[^\s'\"]*@|(?<![^\s'\"])[^\s'\"/:@]+:[^\s'\"]*@")
_QUERY_VALUE = re.compile(r"(?<=[?&])([^=&\s#'\"]+)=[^&\s#'\"]+")
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Login:
    """A user name and a password; the representation shows neither."""

    user: str = field(repr=False)
    password: str = field(repr=False)


def redact(text: str) -> str:
    """The text without the logins and the query values of the URLs in it."""
    return _QUERY_VALUE.sub(r"\1=***", _USERINFO.sub("***@", text))


def split_login(url: str) -> tuple[str, Login | None]:
    """Takes user and password out of a URL.

    Raises:
        ValueError: The URL cannot be parsed.
    """
    parts = urlsplit(url)
    userinfo, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, _, password = userinfo.partition(":")
    return urlunsplit(parts._replace(netloc=host)), Login(unquote(user), unquote(password))


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port: what a login belongs to.

    Raises:
        ValueError: The URL cannot be parsed.
    """
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def local_path(url: str) -> Path | None:
    """The file that a ``file:`` URL on this machine names; None for any other URL."""
    # It drags http.client in, which `vpatch apply` has no use for.
    from urllib.request import url2pathname  # noqa: PLC0415

    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in {"", "localhost"}:
        return None
    return Path(url2pathname(parts.path))


def last_part(url: str) -> str:
    """The file name that a URL ends in."""
    return unquote(urlsplit(url).path.rpartition("/")[2])
