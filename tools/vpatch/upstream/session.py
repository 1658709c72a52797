"""HTTP as pip would do it: proxies, certificates, logins, retries; no secret in any message."""

from __future__ import annotations

import ipaddress
import ssl
import warnings
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import requests.adapters
import requests.auth
import requests.utils
import truststore
import urllib3.exceptions
from urllib3.exceptions import InsecureRequestWarning
from urllib3.util.retry import Retry

from vpatch import __version__
from vpatch.errors import HostError
from vpatch.upstream.pipconfig import PipConfig, existing_file
from vpatch.upstream.urls import Login, origin_of, redact, split_login

_TRY_AGAIN = (500, 502, 503, 504, 520, 527)
_NEXT = "Check the network and pip's index settings (python -m pip config list), then run it again."


class Session:
    """One set of connections for all requests of a command.

    Args:
        config: pip's configuration. Logins in its URLs are sent to their own host only.
    """

    def __init__(self, config: PipConfig) -> None:
        self.retries = config.retries
        self._timeout = config.timeout
        self._logins = _Logins()
        self._trusted = frozenset(_trusted(host) for host in config.trusted_hosts)
        self._http = _Http(self._check_origin)
        self._http.headers["User-Agent"] = f"vpatch/{__version__}"
        self._http.auth = self._logins
        retry = Retry(
            total=config.retries,
            backoff_factor=0.25,
            status_forcelist=_TRY_AGAIN,
            allowed_methods=("GET",),
            raise_on_status=False,
        )
        self._http.mount("https://", _SystemTrust(max_retries=retry))
        self._http.mount("http://", requests.adapters.HTTPAdapter(max_retries=retry))
        for host, port in self._trusted:
            # By host, not by request: a redirect elsewhere is verified again.
            for end in (f":{port}/",) if port else ("/", ":"):
                self._http.mount(f"https://{host}{end}", _NoVerification(max_retries=retry))
        for url in config.index_urls + config.find_links:
            self.learn(url)
        # Given with each request: as a session's settings they would lose against the environment.
        self._settings = _request_settings(config)

    def learn(self, url: str) -> str:
        """Remembers the login in a URL, if any, for its host; returns the URL without it."""
        origin = _origin(url)
        clean, login = split_login(url)
        if login is not None:
            # First come, first kept: no listing replaces a login that the user configured.
            self._logins.known.setdefault(origin, login)
        return clean

    def get(self, url: str, *, headers: Mapping[str, str] | None = None) -> requests.Response:
        """Sends a GET; the body is not read yet. The caller closes the response.

        Raises:
            HostError: No answer, a certificate or proxy that does not work, or a host that is
                neither https nor trusted. Any HTTP status is an answer, except 401, 403 and 407.
        """
        self._check_origin(url)
        try:
            with warnings.catch_warnings():
                # The user named the host in trusted-host: no need to say it with each request.
                warnings.simplefilter("ignore", InsecureRequestWarning)
                response = self._http.get(
                    url,
                    headers=dict(headers or {}),
                    stream=True,
                    timeout=self._timeout,
                    **self._settings,
                )
        except (requests.RequestException, OSError, ValueError) as error:
            raise network_error(url, error) from None
        if response.status_code in {401, 403, 407}:
            response.close()
            raise HostError(
                f"{redact(url)} refuses us: HTTP {response.status_code}",
                hint="Give pip a login for that host: in its index URL, or in ~/.netrc.",
                code="login",
            )
        return response

    def _check_origin(self, url: str) -> None:
        scheme, host, _ = _origin(url)
        if scheme == "https" or self._is_trusted(url):
            return
        if scheme == "http" and _is_loopback(host):
            return
        raise HostError(
            f"{redact(url)} is not https and its host is not one of pip's trusted hosts",
            hint="Use its https address, or name the host in pip's trusted-host.",
            code="insecure",
        )

    def _is_trusted(self, url: str) -> bool:
        scheme, host, port = _origin(url)
        known = (host, port) in self._trusted or (host, None) in self._trusted
        return scheme in {"http", "https"} and known


def network_error(url: str, error: BaseException) -> HostError:
    """A failure that says what went wrong without repeating anything secret."""
    return HostError(
        f"cannot read {redact(url)}: {_cause(error)}", hint=_hint(error), code="network"
    )


class _Http(requests.Session):
    def __init__(self, check: Any) -> None:
        super().__init__()
        self._check = check

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        target = super().get_redirect_target(resp)
        if target is not None:
            self._check(urljoin(resp.url, target))
        return target


class _SystemTrust(requests.adapters.HTTPAdapter):
    """Trusts the system's certificates too, as pip does: company CAs are installed there."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        super().init_poolmanager(*args, **kwargs, ssl_context=context)


class _NoVerification(requests.adapters.HTTPAdapter):
    """For pip's trusted hosts."""

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        return super().send(request, *args, **{**kwargs, "verify": False})


class _Logins(requests.auth.AuthBase):
    """The login from pip's URLs for their host, else the one in .netrc."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str, int | None], Login] = {}

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        url = request.url or ""
        login = self.known.get(origin_of(url))
        if login is None:
            found = requests.utils.get_netrc_auth(url)
            login = Login(*found) if found else None
        if login is None:
            return request
        requests.auth.HTTPBasicAuth(login.user, login.password)(request)
        return request


def _request_settings(config: PipConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if config.cert:
        settings["verify"] = existing_file(config.cert, "cert")
    if config.client_cert:
        settings["cert"] = existing_file(config.client_cert, "client-cert")
    if config.proxy:
        settings["proxies"] = {"http": config.proxy, "https": config.proxy}
    return settings


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        return origin_of(url)
    except ValueError:
        raise HostError(
            f"{redact(url)} is not a usable URL",
            hint="Check pip's index settings: python -m pip config list",
            code="bad-url",
        ) from None


def _trusted(host: str) -> tuple[str, int | None]:
    parts = urlsplit(host if "//" in host else f"//{host}")
    return (parts.hostname or "").lower(), parts.port


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _chain(error: BaseException) -> list[BaseException]:
    """The error and what it was made from: requests and urllib3 wrap several times."""
    seen: list[BaseException] = []
    queue: list[object] = [error]
    while queue:
        item = queue.pop(0)
        if isinstance(item, BaseException) and item not in seen:
            seen.append(item)
            queue += [*item.args, getattr(item, "reason", None), item.__cause__, item.__context__]
    return seen


def _cause(error: BaseException) -> str:
    chain = _chain(error)
    for kind, text in _CAUSES.items():
        if any(isinstance(item, kind) for item in chain):
            return text
    for item in chain:
        if isinstance(item, OSError) and isinstance(item.errno, int) and item.strerror:
            return item.strerror
    return f"the connection failed ({type(error).__name__})"


def _hint(error: BaseException) -> str:
    chain = _chain(error)
    if any(isinstance(item, ssl.SSLError | requests.exceptions.SSLError) for item in chain):
        return "Name your CA's certificate file in PIP_CERT or in pip's cert setting."
    if any(isinstance(item, requests.exceptions.ProxyError) for item in chain):
        return "Check HTTPS_PROXY, or pip's proxy setting."
    return _NEXT


_CAUSES: Mapping[type[BaseException], str] = {
    requests.exceptions.ProxyError: "the proxy does not let us through",
    ssl.SSLCertVerificationError: "its certificate is not trusted",
    requests.exceptions.SSLError: "no secure connection",
    requests.Timeout: "no answer in time",
    requests.TooManyRedirects: "it redirects in a circle",
    requests.exceptions.ChunkedEncodingError: "the connection broke off",
    urllib3.exceptions.ProtocolError: "the connection broke off",
}
