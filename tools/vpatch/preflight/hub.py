"""A repository of a hub: its config.json, and its headers by range requests; never a weight.

``huggingface_hub`` (the extra ``hub``) says where the files are and who asks: HF_ENDPOINT, HF_TOKEN
and its login file count as everywhere. The bytes come through vpatch's own session, so that proxies
and certificates are those of pip's configuration, and so that no more is read than was asked for.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping

import requests

from vpatch.errors import HostError, UsageError
from vpatch.preflight.headers import LENGTH_BYTES
from vpatch.upstream.download import BROKEN
from vpatch.upstream.pipconfig import PipConfig, read_pip_config
from vpatch.upstream.session import Session, network_error

_FIRST = 64 << 10  # config.json whole, and an index of a drafter
_OK, _PARTIAL, _NOT_FOUND, _BEHIND = 200, 206, 404, 416
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})")


class Hub:
    """Reads files of one repository; see checkpoint.Source.

    Raises:
        UsageError: ``huggingface_hub`` is not installed.
    """

    def __init__(self, repository: str, session: Session | None = None) -> None:
        self._repository = repository
        self._url_of, self._headers = _hub()
        self._session = session or Session(_settings())
        self._first: dict[str, bytes | None] = {}
        self._sizes: dict[str, int] = {}

    def read(self, name: str, start: int, count: int) -> bytes | None:
        """See Source."""
        if name not in self._first:
            self._first[name] = self._get(name, 0, LENGTH_BYTES if _weights(name) else _FIRST)
        first = self._first[name]
        if first is None:
            return None
        end = min(start + count, self._sizes[name])
        if end <= len(first):
            return first[start:end]
        if start >= end:
            return b""
        return self._get(name, start, end - start)

    def size(self, name: str) -> int | None:
        """See Source."""
        return self._sizes.get(name)

    def names(self) -> tuple[str, ...] | None:
        """Unknown: a hub without its API lists nothing."""
        return None

    def _get(self, name: str, start: int, count: int) -> bytes | None:
        url = self._url_of(self._repository, name)
        wanted = {"Range": f"bytes={start}-{start + count - 1}", "Accept-Encoding": "identity"}
        try:
            with self._session.get(url, headers={**self._headers, **wanted}) as response:
                return self._body(name, start, count, response)
        except HostError as error:
            raise self._explained(error) from None

    def _body(self, name: str, start: int, count: int, response: requests.Response) -> bytes | None:
        if response.status_code == _NOT_FOUND:
            return None
        if response.status_code == _BEHIND:  # an empty file
            self._sizes[name] = 0
            return b""
        length = self._length(name, start, count, response)
        try:
            data: bytes = response.raw.read(length, decode_content=False)
        except BROKEN as error:
            raise network_error(response.url, error) from None
        if len(data) != length:
            raise network_error(response.url, ConnectionError("the answer broke off"))
        return data

    def _length(self, name: str, start: int, count: int, response: requests.Response) -> int:
        """How many bytes of the answer are those that were asked for."""
        status, told = response.status_code, response.headers
        match = _RANGE.fullmatch(told.get("Content-Range", ""))
        if status == _PARTIAL and match is not None and int(match[1]) == start:
            self._sizes[name] = int(match[3])
            return min(int(match[2]) + 1 - start, count)
        size = told.get("Content-Length", "")
        if status == _OK and start == 0 and size.isdecimal() and not _weights(name):
            self._sizes[name] = int(size)
            return min(int(size), count)
        if status == _OK:
            raise HostError(
                f"{self._repository}/{name} cannot be read in parts on its server",
                hint="Its weights would come with it: name a local folder.",
                code="no-ranges",
            )
        raise HostError(
            f"{self._repository}/{name} cannot be read: HTTP {status}",
            hint="Run it again, or name a local folder.",
            code="network",
        )

    def _explained(self, error: HostError) -> HostError:
        if error.code != "login":
            return HostError(
                error.message,
                hint="Check HF_ENDPOINT and the network, or name a local folder with the "
                "checkpoint's config.json and safetensors files.",
                code=error.code,
            )
        return HostError(
            f"the hub does not show us {self._repository}: it is not there, private or gated",
            hint="Check the name; log in with `hf auth login` or HF_TOKEN, or name a local folder.",
            code="login",
        )


def _weights(name: str) -> bool:
    return name.endswith(".safetensors")


def _hub() -> tuple[Callable[[str, str], str], Mapping[str, str]]:
    try:
        from huggingface_hub import get_token, hf_hub_url  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(
            f"a repository of a hub takes huggingface_hub ({error})",
            hint=f"{shlex.quote(sys.executable)} -m pip install huggingface_hub, "
            "or name a local folder.",
            code="no-hub",
        ) from None
    # Its own build_hf_headers asks the hub for more than we need.
    token = get_token()
    return hf_hub_url, {"Authorization": f"Bearer {token}"} if token else {}


def _settings() -> PipConfig:
    """pip's proxies and certificates, without its indexes and their logins."""
    pip = read_pip_config()
    return PipConfig(
        index_urls=(),
        trusted_hosts=pip.trusted_hosts,
        cert=pip.cert,
        client_cert=pip.client_cert,
        proxy=pip.proxy,
        timeout=pip.timeout,
        retries=pip.retries,
    )
