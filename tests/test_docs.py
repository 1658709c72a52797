"""Tables of the smoke in the docs, and README's sample of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "ci"))

import docs  # noqa: E402
import docs_smoke  # noqa: E402

SAMPLE = """check                verdict  s  evidence
starts/one/v1/eager  pass     2  ready, 0 fail
ids/one/v1/eager     fail     2  asked (1, 3), got them in 5 rows
vLLM 1.2.3, torch 2.0, cpu: 2 pass, 1 fail; 1 not as expected; 9 s
"""


def report(**changes: str) -> str:
    verdicts = {
        "starts/one/v1/eager": "pass",
        "ids/one/v1/eager": "fail",
        "states/one/v1/eager": "pass",
        **{f"{name}/one/v1/eager": verdict for name, verdict in changes.items()},
    }
    return json.dumps({"checks": [{"check": k, "verdict": v} for k, v in verdicts.items()]})


@pytest.mark.parametrize("page", docs.TABLED, ids=lambda page: page.name)
def test_tables_are_what_the_code_makes(page: Path) -> None:
    text = page.read_text()
    assert "<!-- table: " in text
    assert docs.with_tables(text) == text, "run python ci/docs.py"


def test_a_stale_table_is_seen() -> None:
    text = docs.TABLED[0].read_text()
    stale = text.replace("| `states` | core |", "| `states` | full |")
    assert stale != text
    assert docs.with_tables(stale) == text


def test_each_check_says_what_it_asks() -> None:
    told = docs_smoke.checks()
    for name in ("starts", "ids", "states", "greedy", "refused", "trained", "server"):
        assert f"| `{name}` |" in told


def test_a_sample_with_lines_left_out_is_the_runs() -> None:
    assert not list(docs_smoke.differences(SAMPLE, report()))


@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (report(ids="pass"), "ids/one/v1/eager fail, the run pass"),
        (report(states="not-run"), "counts 0 not-run, the run 1"),
        (report(more="pass"), "counts 2 pass, the run 3"),
        (SAMPLE.replace("ids/one", "ids/two"), "ids/one/v1/eager fail, the run nothing of it"),
    ],
)
def test_a_sample_of_other_checks_or_verdicts_is_seen(ran: str, said: str) -> None:
    assert any(said in line for line in docs_smoke.differences(SAMPLE, ran))


@pytest.mark.parametrize("sample", ["", "$ vpatch smoke\n", SAMPLE.splitlines()[1]])
def test_a_sample_without_checks_or_counts_proves_nothing(sample: str) -> None:
    assert list(docs_smoke.differences(sample, report()))


def test_readmes_sample_is_found(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(report())
    assert any("states/llama-nested" in line for line in docs.check_smoke(path))


STORY = "'KimiK25Config' object has no attribute 'image_token_index'"


def sample(comment: str) -> str:
    return docs.with_samples(f"<!-- {comment} -->\n```text\nold\n```\n").split("```text\n")[1]


def test_a_sample_may_show_some_lines_of_its_last_command() -> None:
    shown = sample(f"output of: vpatch explain \"{STORY}\" | grep '^gate p|^  fix'")
    assert shown.splitlines()[:2] == ["gate placeholder", "  fix        vpatch build v0.17.1"]


def test_a_sample_that_finds_something_says_so() -> None:
    assert sample("output of, exit 1: vpatch explain hello").startswith("```")
    with pytest.raises(SystemExit, match="ended with 1"):
        sample("output of: vpatch explain hello")
    with pytest.raises(SystemExit, match="ended with 0"):
        sample(f'output of, exit 1: vpatch explain "{STORY}"')


def test_samples_have_a_target_and_a_drafter() -> None:
    command = "vpatch preflight --target target --drafter drafter --tag v0.33.0"
    assert "verdict: works with an option" in sample(f"output of, exit 1: {command} | grep verdict")
