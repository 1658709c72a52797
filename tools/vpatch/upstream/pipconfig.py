"""The package index that pip is configured for, asked of pip itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from vpatch.errors import HostError
from vpatch.upstream.urls import redact

# Later sections win, as for `pip install`.
_SECTIONS = ("global", "install", ":env:")
_OPTIONS = frozenset(
    {
        *("index-url", "pypi-url", "extra-index-url", "find-links", "no-index"),
        *("cert", "client-cert", "trusted-host", "proxy"),
        *("timeout", "default-timeout", "retries"),
    }
)
_TRUE = frozenset({"y", "yes", "t", "true", "on", "1"})
_FALSE = frozenset({"n", "no", "f", "false", "off", "0"})
_CHECK = "See what pip reads: python -m pip config debug"


@dataclass(frozen=True)
class PipConfig:
    """What pip would use. URLs may hold credentials: they are never shown.

    ``index_urls`` is in pip's order, the main index first; empty with ``no-index``.
    """

    index_urls: tuple[str, ...] = field(repr=False)
    find_links: tuple[str, ...] = field(default=(), repr=False)
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = field(default=None, repr=False)
    timeout: float = 15.0
    retries: int = 5


def read_pip_config() -> PipConfig:
    """pip's effective configuration: files and ``PIP_*`` variables, in pip's own order.

    Raises:
        HostError: pip cannot be run, or a value in its configuration is not usable.
    """
    values = _effective(_parse(_pip("list")))
    index = values.get("index-url") or values.get("pypi-url") or _default_index()
    urls = (index, *values.get("extra-index-url", "").split())
    return PipConfig(
        index_urls=() if _flag(values, "no-index") else tuple(dict.fromkeys(urls)),
        find_links=tuple(dict.fromkeys(values.get("find-links", "").split())),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        cert=values.get("cert"),
        client_cert=values.get("client-cert"),
        proxy=values.get("proxy"),
        timeout=_number(values, "timeout", _number(values, "default-timeout", 15.0)),
        retries=int(_number(values, "retries", 5)),
    )


def _default_index() -> str:
    from pypi_simple import PYPI_SIMPLE_ENDPOINT  # noqa: PLC0415 - keeps `apply` quick

    return str(PYPI_SIMPLE_ENDPOINT)


def _pip(*args: str) -> str:
    command = [sys.executable, "-m", "pip", "--no-color", "config", *args]
    # Not in the user's folder: a file pip.py there would be run in pip's place.
    result = subprocess.run(
        command, check=False, capture_output=True, cwd=sys.prefix, stdin=subprocess.DEVNULL
    )
    if result.returncode:
        # Older ones complain on stdout.
        said = (result.stderr.strip() or result.stdout.strip()).decode("utf-8", "replace")
        reason = redact(said.splitlines()[-1]) if said else f"it exits with {result.returncode}"
        raise HostError(
            f"pip cannot tell its configuration: {reason}",
            hint=_CHECK,
            code="pip-config",
        )
    return result.stdout.decode("utf-8", "surrogateescape")


def _parse(listing: str) -> dict[str, str]:
    """``section.option='value'`` lines; pip prints files in no useful order, so it is asked again
    for an option that two files set differently."""
    found: dict[str, list[str]] = {}
    for line in listing.splitlines():
        key, separator, literal = line.partition("=")
        section, _, option = key.rpartition(".")
        if separator and section in _SECTIONS and option in _OPTIONS:
            found.setdefault(key, []).append(_literal(key, literal))
    return {
        key: values[0] if len(set(values)) == 1 else _pip("get", key).rstrip("\n")
        for key, values in found.items()
    }


def _literal(key: str, text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = None
    if not isinstance(value, str):
        raise HostError(
            f"pip's answer for {key} cannot be read", hint=_CHECK, code="pip-config"
        ) from None
    return value


def _effective(settings: dict[str, str]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        for key, value in settings.items():
            if key.rpartition(".")[0] == section and value:
                merged[key.rpartition(".")[2]] = value
    return merged


def _flag(values: dict[str, str], option: str) -> bool:
    value = values.get(option, "0").lower()
    if value not in _TRUE | _FALSE:
        raise HostError(f"pip's {option} is neither yes nor no", hint=_CHECK, code="pip-config")
    return value in _TRUE


def _number(values: dict[str, str], option: str, default: float) -> float:
    try:
        return float(values.get(option, default))
    except ValueError:
        raise HostError(f"pip's {option} is not a number", hint=_CHECK, code="pip-config") from None


def existing_file(name: str, option: str) -> str:
    """A file that pip's configuration names.

    Raises:
        HostError: It is not there.
    """
    path = Path(name).expanduser()
    if not path.exists():
        raise HostError(
            f"pip's {option} names {path}, which does not exist", hint=_CHECK, code="pip-config"
        )
    return str(path)
