"""An engine side without torch and vLLM: its modules do what their jobs say."""

from __future__ import annotations

from pathlib import Path

# What each kind of job does, beside writing who it is.
START = """\
import json, os, pathlib, signal, subprocess, sys, time

path = pathlib.Path(sys.argv[1])
job = json.loads(path.read_text())
answer = path.with_name("outputs.json")
print("talk", flush=True)
(path.with_name("pid")).write_text(str(os.getpid()))


def answers(**more):
    outputs = {"seconds": {"start": 2.0, "run": 1.5}, "variables": dict(os.environ), **more}
    answer.write_text(json.dumps({**outputs, "path": sys.path, "cwd": os.getcwd()}))


def with_child(ignoring=""):
    code = f"import signal, time; {ignoring or 'pass'}; print('up', flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.stdout.readline()
    path.with_name("child").write_text(str(child.pid))


IGNORING = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
# A job of vpatch's own plan: an engine that answers, or finds weights that it cannot read.
does = job.get("does") or ("own" if "unreadable" not in job["target"] else "own-error")
if does == "own":
    tokens = {
        phase["name"]: {"tokens": [[7] * phase["tokens"] for _ in phase["prompts"]]}
        for phase in job["phases"]
    }
    answers(phases=tokens, target="Kimi", drafter=job.get("drafter") and "Eagle3")
elif does == "own-error":
    error = {"type": "SafetensorError", "message": "[red]no header[/red]"}
    answer.write_text(json.dumps({"error": error, "seconds": {"error": 4.5}}))
    sys.exit(1)
elif does == "answer":
    answers(**job.get("more", {}))
elif does == "error":
    error = {"type": "ValueError", "message": "no\\nway"}
    answer.write_text(json.dumps({"error": error, "seconds": {"error": 4.5}}))
    sys.exit(1)
elif does == "rows":
    answers()
    path.with_name("rows.safetensors").touch()
elif does == "kill":
    os.kill(os.getpid(), signal.SIGSEGV)
elif does == "answer-and-kill":
    answers()
    os.kill(os.getpid(), signal.SIGABRT)
elif does == "exit":
    print("last words", file=sys.stderr)
    sys.exit(3)
elif does in ("half", "list"):
    answer.write_text('{"phases": {"batch' if does == "half" else "[1]")
elif does == "hang":
    with_child()
    time.sleep(600)
elif does == "hang-on":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with_child(IGNORING)
    time.sleep(600)
elif does == "leave":
    with_child()
    answers()
elif does == "meet":
    path.parent.with_name(job["me"]).touch()
    until = time.monotonic() + 5
    while not path.parent.with_name(job["other"]).exists() and time.monotonic() < until:
        time.sleep(0.01)
    answers(met=path.parent.with_name(job["other"]).exists())
"""
COMPARE = """\
import json, os, pathlib, sys

job = json.loads(pathlib.Path(sys.argv[1]).read_text())
assert pathlib.Path(sys.argv[1]).with_name("outputs.json").is_file()
print("not for the answer", file=sys.stderr)
if job.get("compare") == "fails":
    sys.exit(1)
if job.get("compare") != "silent":
    print(json.dumps({"by": __spec__.name, "variables": dict(os.environ)}))
"""
SERVE = """\
import json, sys
print("talk", file=sys.stderr)
print(json.dumps({"seconds": {"start": 1.0}, "tokens": [[5]]}))
"""
# Writes the checkpoints that a SPEC names: a config, and weights that say which.
MODELS = """\
import json, pathlib, sys

spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
if spec.get("fails"):
    sys.exit("OSError: no space")
found = {"targets": {}, "drafters": {}}
for kind in found:
    for entry in spec[kind]:
        folder = pathlib.Path(spec["folder"]) / entry["name"]
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"name": entry["name"], "ids": [1]}))
        (folder / "model.safetensors").write_text(entry["name"])
        found[kind][entry["name"]] = {"folder": str(folder)}
print(json.dumps(found))
"""
TRAIN = """\
import json, pathlib, sys, time

job = json.loads(pathlib.Path(sys.argv[1]).read_text())
out = pathlib.Path(job["out"])
out.mkdir()
until = time.monotonic() + 20
while "meets" in job and not out.with_name(*job["meets"]).exists():
    if time.monotonic() > until:
        sys.exit(f"{job['meets']} is not made beside this")
    time.sleep(0.01)
(out / "config.json").write_text(json.dumps({"name": out.name, "ids": [3]}))
(out / "model.safetensors").write_text(f"{job['target']} {job['seed']} {job['ids']}")
print("{}")
"""
MODULES = {
    "start": START,
    "compare": COMPARE,
    "sampled": COMPARE,
    "serve": SERVE,
    "models": MODELS,
    "train": TRAIN,
}


def write_small_engine(folder: Path) -> Path:
    """What library.engine_library does; returns the same."""
    inner = folder / "lib/vpatch/smoke/engine"
    inner.mkdir(parents=True)
    for package in (inner, inner.parent, inner.parent.parent):
        (package / "__init__.py").touch()
    for name, source in MODULES.items():
        (inner / f"{name}.py").write_text(source)
    return folder / "lib"
