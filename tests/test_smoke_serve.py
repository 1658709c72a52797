"""The HTTP check's client: a stand-in server that misbehaves; the real one is an engine test."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vpatch.smoke.engine import serve

TOOLS = Path(__file__).resolve().parents[1] / "tools"

# Answers as vLLM's server; "mode" in its --model misbehaves.
SERVER = """\
import json, os, signal, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

mode = sys.argv[sys.argv.index("--model") + 1]
port = int(sys.argv[sys.argv.index("--port") + 1])
if mode == "dies":
    print("no such model")
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(os.environ["PIDS"], "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
if mode == "sleeps":
    time.sleep(600)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'vllm:spec_decode_num_drafts_total{engine="0"} 7.0\\n')

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(400 if mode == "refuses" else 200)
        self.end_headers()
        tokens = [token + 1 for token in asked["prompt"]][: asked["max_tokens"]]
        if mode == "refuses":
            self.wfile.write(b"no tokens today")
        elif asked["stream"]:
            for token in tokens:
                event = {"choices": [{"token_ids": [token]}]}
                self.wfile.write(f"data: {json.dumps(event)}\\n\\n".encode())
            self.wfile.write(b'data: {"choices": []}\\n\\n')
            if mode != "breaks off":
                self.wfile.write(b"data: [DONE]\\n\\n")
        else:
            self.wfile.write(json.dumps({"choices": [{"token_ids": tokens}]}).encode())


ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "lib" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (package / "api_server.py").write_text(SERVER)
    monkeypatch.setattr(serve, "_ENDS_IN_S", 1.0)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.setenv("PIDS", str(tmp_path / "pids"))
    return tmp_path


def job(mode: str, seconds: float = 20.0) -> serve.Job:
    return {
        "target": mode,
        "options": [],
        "prompts": [[5, 6, 7], [8]],
        "tokens": 2,
        "timeout_s": seconds,
    }


def assert_ended(library: Path) -> None:
    for number in (library / "pids").read_text().split():
        # A killed child waits to be reaped by whoever adopted it.
        status = Path(f"/proc/{number}/status")
        assert not status.exists() or "State:\tZ" in status.read_text()


def test_answers_plain_and_streamed(library: Path) -> None:
    found = serve.run(job("well"), library)
    assert found["tokens"] == found["streamed"] == [[6, 7], [9]]
    assert found["metrics"]["drafts"] == 7
    assert set(found["seconds"]) == {"start", "ask", "end"}
    assert_ended(library)


def test_a_server_that_ends_shows_its_log(library: Path) -> None:
    with pytest.raises(serve.ServerError, match=r"ended with 3\nno such model"):
        serve.run(job("dies"), library)


@pytest.mark.parametrize(
    ("mode", "message", "seconds"),
    [
        ("sleeps", "did not answer within 3 s", 3.0),
        ("refuses", "400 no tokens today", 20.0),
        ("breaks off", r"without \[DONE\]", 20.0),
    ],
)
def test_whatever_goes_wrong_its_processes_end(
    library: Path, mode: str, message: str, seconds: float
) -> None:
    with pytest.raises(serve.ServerError, match=message):
        serve.run(job(mode, seconds), library)
    assert_ended(library)


def test_who_ends_the_client_ends_the_server(library: Path) -> None:
    (library / "job.json").write_text(json.dumps(job("sleeps", 60.0)))
    path = os.pathsep.join([str(library / "lib"), str(TOOLS)])
    code = "import sys; from pathlib import Path; from vpatch.smoke.engine import serve; "
    code += f"serve._ENDS_IN_S = 1.0; sys.exit(serve.main(Path({str(library / 'job.json')!r})))"
    client = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE
    )
    until = time.monotonic() + 20
    while not (library / "pids").exists() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.2)
    client.terminate()
    client.communicate(timeout=20)
    assert client.returncode == 1
    assert_ended(library)


def test_the_plugin_is_found(tmp_path: Path) -> None:
    serve.plugin_folder(tmp_path)
    (found,) = importlib.metadata.distributions(path=[str(tmp_path)])
    (entry,) = found.entry_points
    assert entry.group == "vllm.general_plugins"
    assert entry.value == "vpatch.smoke.engine.cpu_drafter:register"


def test_drafting_counters_of_a_metrics_page() -> None:
    page = """\
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 168.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="tiny"} 1.79e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="tiny"} 504.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="tiny"} 84.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="tiny"} 1.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="0"} 80.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="tiny",position="1"} 4.0
"""
    assert serve.counted(page) == {
        "drafts": 168,
        "drafted": 504,
        "accepted": 85,
        "accepted_by_position": [80, 4],
    }
    assert serve.counted("")["accepted_by_position"] == []
