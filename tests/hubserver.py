"""A hub on 127.0.0.1: files of repositories, by ranges, as a test wants it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_PATH = re.compile(r"/([\w.-]+/[\w.-]+)/resolve/main/([^?]+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass
class HubServer:
    """What is served and how.

    Attributes:
        files: By repository and name.
        sent: (name, first byte, bytes) of every body.
        tokens: The Authorization header of every request, by the path's first part.
        ranges: Whether ranges are answered.
        status: Sent for every file in the place of it.
        redirect: Where files really are.
        cut: Bodies break off after so many bytes.
    """

    files: dict[tuple[str, str], bytes] = field(default_factory=dict)
    sent: list[tuple[str, int, int]] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    ranges: bool = True
    status: int | None = None
    redirect: str | None = None
    cut: int | None = None
    base: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Silence."""

    def do_GET(self) -> None:
        hub = self.hub
        hub.tokens.append(self.headers.get("Authorization"))
        match = _PATH.fullmatch(self.path)
        data = hub.files.get((match[1], match[2])) if match else None
        if hub.status is not None or data is None or match is None:
            self._send(hub.status or 404, b"", {})
        elif hub.redirect is not None:
            self._send(302, b"", {"Location": hub.redirect + self.path})
        else:
            self._send_file(match[2], data)

    def _send_file(self, name: str, data: bytes) -> None:
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        if wanted is None or not self.hub.ranges:
            self._send(200, data, {})
            return
        start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
        if start >= len(data):
            self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            return
        self.hub.sent.append((name, start, end - start))
        told = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
        self._send(206, data[start:end], told)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.hub.cut is not None and len(body) > self.hub.cut:
            self.wfile.write(body[: self.hub.cut])
            self.close_connection = True
            return
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[HubServer]:
    """A server for as long as the block runs."""
    hub = HubServer()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.base = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
