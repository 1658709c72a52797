"""A package index on 127.0.0.1 that behaves well or badly, as a test wants it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, urlsplit

JSON = "application/vnd.pypi.simple.v1+json"


@dataclass
class IndexServer:
    """What is served and how; tests change it between requests.

    ``seen`` logs (path, headers) of every request that got through.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    project: str = "vllm"
    html_only: bool = False
    with_hashes: bool = True
    ranges: bool = True
    login: str | None = None  # user:password
    status: int | None = None  # this status for every listing
    listed_hashes: dict[str, str] = field(default_factory=dict)
    file_base: str = ""  # another server for the files
    extra_links: dict[str, str] = field(default_factory=dict)  # file name -> URL in the listing
    break_after: int | None = None  # the next file response breaks off after so many bytes
    breaks: int = 0  # so many responses break off
    redirect: str | None = None
    base: str = ""
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The index URL, for pip."""
        return f"{self.base}/simple"

    def url_with(self, login: str) -> str:
        """The index URL with user:password in it."""
        return self.url.replace("://", f"://{login}@")

    def file_requests(self) -> list[dict[str, str]]:
        """The headers of the requests for files."""
        return [headers for path, headers in self.seen if path.startswith("/files/")]

    def sha256(self, name: str) -> str:
        """The hash that the listing says."""
        return self.listed_hashes.get(name) or hashlib.sha256(self.files[name]).hexdigest()

    def listing(self) -> list[tuple[str, str]]:
        """(file name, URL without hash) of everything that is listed."""
        own = [(name, f"{self.file_base}/files/{quote(name)}") for name in self.files]
        return own + list(self.extra_links.items())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    index: IndexServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silence."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path  # a proxy gets whole URLs
        if not self._allowed():
            self._send(401, b"", {"WWW-Authenticate": "Basic"})
            return
        self.index.seen.append((self.path, dict(self.headers.items())))
        if self.index.redirect and path.startswith("/simple"):
            self._send(302, b"", {"Location": self.index.redirect})
        elif path == f"/simple/{self.index.project}/":
            self._listing()
        elif path.startswith("/files/") and path[7:] in {quote(n) for n in self.index.files}:
            self._file(next(n for n in self.index.files if quote(n) == path[7:]))
        else:
            self._send(404, b"no such page", {})

    def _allowed(self) -> bool:
        if self.index.login is None:
            return True
        given = self.headers.get("Authorization", "")
        return given == "Basic " + base64.b64encode(self.index.login.encode()).decode()

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _listing(self) -> None:
        if self.index.status is not None:
            self._send(self.index.status, b"", {})
        elif JSON in self.headers.get("Accept", "") and not self.index.html_only:
            self._send(200, self._json(), {"Content-Type": JSON})
        else:
            self._send(200, self._html(), {"Content-Type": "text/html; charset=utf-8"})

    def _json(self) -> bytes:
        files = []
        for name, url in self.index.listing():
            item: dict[str, object] = {"filename": name, "url": url, "hashes": {}}
            if name in self.index.files:
                item["size"] = len(self.index.files[name])
                item["upload-time"] = "2026-03-11T11:03:58.693896Z"
                if self.index.with_hashes:
                    item["hashes"] = {"sha256": self.index.sha256(name)}
            files.append(item)
        page = {"meta": {"api-version": "1.1"}, "name": self.index.project, "files": files}
        return json.dumps({**page, "versions": []}).encode()

    def _html(self) -> bytes:
        links = []
        for name, url in self.index.listing():
            known = self.index.with_hashes and name in self.index.files
            anchor = f"#sha256={self.index.sha256(name)}" if known else ""
            text = name if len(name) < 30 else name[:27] + "..>"
            links.append(f'<a href="{html.escape(url + anchor)}">{html.escape(text)}</a><br/>')
        return ("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>").encode()

    def _file(self, name: str) -> None:
        data = self.index.files[name]
        headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        status, start, end = 200, 0, len(data)
        if self.index.ranges and wanted:
            status = 206
            if not wanted[1]:
                start = max(0, len(data) - int(wanted[2]))
            else:
                start = int(wanted[1])
                end = min(end, int(wanted[2]) + 1) if wanted[2] else end
            if start >= len(data):
                self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        body = data[start:end]
        if self.index.breaks > 0 and self.index.break_after is not None:
            self.index.breaks -= 1
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: self.index.break_after])
            self.close_connection = True
            return
        self._send(status, body, headers)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Silence: clients that hang up are what some tests are about."""


@contextmanager
def running(index: IndexServer, context: ssl.SSLContext | None = None) -> Iterator[IndexServer]:
    """Serves an index until the block ends; https with a context."""
    handler = type("Handler", (_Handler,), {"index": index})
    server = _Server(("127.0.0.1", 0), handler)
    scheme = "http"
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    index.base = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
