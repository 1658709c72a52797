"""Asks vLLM's HTTP server, started for it: ``python -m vpatch.smoke.engine.serve JOB.json``.

    {"target": FOLDER, "drafter": FOLDER or null, "drafts": 3, "options": ["--dtype", "float32"],
     "prompts": [[5, 6, 7]], "tokens": 16, "timeout_s": 300, "plugin": true}

The job's folder gets ``server.log``. One JSON object is printed: "tokens", the greedy answers to
each prompt; "streamed", the same asked for as a stream; "metrics", what /metrics counts of
drafting ("drafts", "drafted", "accepted", "accepted_by_position"); "seconds". It takes nothing but
the standard library, and ends the server's whole process group in every case.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from vpatch.smoke.engine.parent import end_with_parent

Job = dict[str, Any]

_NAME = "tiny"
_ENDS_IN_S = 20.0
_ANSWER_S = 120.0
_TAIL = 40
_PLUGIN = "vpatch_smoke_drafter"
# Not through a proxy, whatever the environment says.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerError(Exception):
    """The server did not start in time, ended, or answered with an error."""


def plugin_folder(folder: Path) -> Path:
    """Makes an installed distribution whose plugin lets the CPU runner draft.

    vLLM loads plugins in all of its processes, the engine's own among them.

    Args:
        folder: Goes on PYTHONPATH, beside this package.
    """
    metadata = folder / f"{_PLUGIN}-0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_PLUGIN}\nVersion: 0\n")
    entry = "[vllm.general_plugins]\ncpu_drafter = vpatch.smoke.engine.cpu_drafter:register\n"
    (metadata / "entry_points.txt").write_text(entry)
    return folder


def command(job: Job, port: int) -> list[str]:
    """The server's command line."""
    words = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    words += ["--model", job["target"], "--served-model-name", _NAME]
    words += ["--host", "127.0.0.1", "--port", str(port), *job["options"]]
    if job.get("drafter"):
        speculative = {
            "method": "eagle3",
            "model": job["drafter"],
            "num_speculative_tokens": job["drafts"],
        }
        words += ["--speculative-config", json.dumps(speculative)]
    return words


def free_port() -> int:
    """A port of the loopback address that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def server(job: Job, folder: Path) -> Iterator[str]:
    """Starts it and gives its address once it answers.

    Raises:
        ServerError: It ended, or did not answer before the job's `timeout_s`.
    """
    port, environment = free_port(), dict(os.environ)
    if job.get("plugin"):
        path = [str(plugin_folder(folder / "plugin")), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path)
    log = folder / "server.log"
    with log.open("wb") as file:
        process = _begin(command(job, port), environment, file)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(process, address, job["timeout_s"], log)
            yield address
        finally:
            _end(process)


def _begin(words: list[str], environment: dict[str, str], log: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def _wait(process: subprocess.Popen[bytes], address: str, seconds: float, log: Path) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if process.poll() is not None:
            raise ServerError(f"the server ended with {process.returncode}\n{_tail(log)}")
        if _is_healthy(address):
            return
        time.sleep(0.2)
    raise ServerError(f"the server did not answer within {seconds:g} s\n{_tail(log)}")


def _is_healthy(address: str) -> bool:
    try:
        with _OPENER.open(f"{address}/health", timeout=5):
            return True
    except OSError:  # nothing listens yet, or it says 503
        return False


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL:])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the whole process group to end, and makes it."""
    for number, patience in ((signal.SIGTERM, _ENDS_IN_S), (signal.SIGKILL, _ENDS_IN_S)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if _ended(process, patience):
            return
    raise ServerError(f"process group {process.pid} outlived SIGKILL by {_ENDS_IN_S:g} s")


def _ended(process: subprocess.Popen[bytes], patience: float) -> bool:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        if not _members(process.pid):
            process.wait()  # dead by now, but maybe since the last look at it
            return True
        time.sleep(0.05)
    return False


def _members(group: int) -> list[int]:
    """A group's processes, without dead ones that their parent has not asked after."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended since
            # The name before may hold spaces and brackets.
            state, _parent, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in {"Z", "X"}:
                found.append(int(path.parent.name))
    return found


def ask(address: str, prompt: list[int], count: int, *, stream: bool) -> list[int]:
    """A greedy completion's token ids.

    Args:
        address: The server's.
        prompt: Token ids.
        count: How many tokens; the end token does not end it.
        stream: Whether they come one event after the other.

    Raises:
        ServerError: The server answers with an error, which is quoted.
    """
    body = {
        "model": _NAME,
        "prompt": prompt,
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        "stream": stream,
    }
    request = urllib.request.Request(  # noqa: S310 - the address is made here
        f"{address}/v1/completions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with _OPENER.open(request, timeout=_ANSWER_S) as answer:
            if stream:
                return [token for event in events(answer) for token in _tokens(event)]
            return _tokens(json.load(answer))
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        raise ServerError(f"/v1/completions: {error.code} {text}") from error


def _tokens(answer: dict[str, Any]) -> list[int]:
    # A stream's last events may bring none.
    return [token for choice in answer["choices"] for token in choice.get("token_ids") or []]


def events(lines: Any) -> Iterator[dict[str, Any]]:
    """The events of an OpenAI-style stream.

    Raises:
        ServerError: It ends without ``[DONE]``, or an event is an error.
    """
    for line in lines:
        name, _, value = line.decode().strip().partition(": ")
        if name != "data":
            continue
        if value == "[DONE]":
            return
        event: dict[str, Any] = json.loads(value)
        if "error" in event:
            raise ServerError(f"/v1/completions, streamed: {event['error']}")
        yield event
    raise ServerError("/v1/completions: the stream ended without [DONE]")


def metrics(address: str) -> dict[str, Any]:
    """What the server counted of drafting; without a drafter the counts are 0."""
    with _OPENER.open(f"{address}/metrics", timeout=_ANSWER_S) as answer:
        return counted(answer.read().decode())


def counted(text: str) -> dict[str, Any]:
    """The drafting counters of a /metrics page, summed over engines.

    Returns:
        "drafts", "drafted", "accepted": numbers; "accepted_by_position": a list of them.
    """
    names = {
        "drafts": "num_drafts",
        "drafted": "num_draft_tokens",
        "accepted": "num_accepted_tokens",
    }
    sums: dict[str, Any] = {key: sum(_values(text, name).values()) for key, name in names.items()}
    by_position = _values(text, "num_accepted_tokens_per_pos")
    sums["accepted_by_position"] = [by_position[number] for number in sorted(by_position)]
    return sums


def _values(text: str, name: str) -> dict[int, int]:
    """A counter's values by the label "position"; all under 0 without one."""
    found: dict[int, int] = {}
    pattern = rf"^vllm:spec_decode_{name}_total(?:\{{(.*)\}})? (\S+)$"
    for labels, value in re.findall(pattern, text, re.MULTILINE):
        position = re.search(r'position="(\d+)"', labels)
        number = int(position[1]) if position else 0
        found[number] = found.get(number, 0) + int(float(value))
    return found


def run(job: Job, folder: Path) -> dict[str, Any]:
    """Starts, asks, ends."""
    began = time.monotonic()
    with server(job, folder) as address:
        ready = time.monotonic()
        tokens, streamed = (
            [ask(address, prompt, job["tokens"], stream=stream) for prompt in job["prompts"]]
            for stream in (False, True)
        )
        counts, done = metrics(address), time.monotonic()
    ended = time.monotonic()
    return {
        "tokens": tokens,
        "streamed": streamed,
        "metrics": counts,
        "seconds": {"start": ready - began, "ask": done - ready, "end": ended - done},
    }


def main(path: Path) -> int:
    """Returns 0, or 1 when the server failed; standard error then says how."""
    end_with_parent()
    # Asked to end, this process ends the server too.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    try:
        print(json.dumps(run(json.loads(path.read_text()), path.parent.absolute())))
    except ServerError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
