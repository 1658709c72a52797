"""vpatch status: which word a cell gets and why, and that its tables name what exists."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from vpatch.gates.check import GATES
from vpatch.gates.kept import GateSaid
from vpatch.patches.repo import series_tags
from vpatch.patches.series import Series
from vpatch.smoke.plan import Wish
from vpatch.smoke.planner import make_plan
from vpatch.smoke.releases import NEWEST, OLDEST, facts_of
from vpatch.smoke.stored import StoredCheck, StoredReport
from vpatch.status.cell import Cell
from vpatch.status.defects import of_release, read_defects, topics_of_tests
from vpatch.status.matrix import Facts, make_row, untold
from vpatch.status.topics import BY_NAME, TOPICS, topics_of_check, topics_of_gate
from vpatch.status.trees import TreeSaid

REPO = Path(__file__).resolve().parent.parent
TAGS = series_tags(REPO)


def every_check() -> set[str]:
    """The names of all checks of the smoke, of every release and device."""
    found: set[str] = set()
    for minor in range(OLDEST.minor, NEWEST.minor + 1):
        facts = facts_of(Version(f"0.{minor}.0"))
        for device in ("cpu", "cuda"):
            runners = facts.runners(device)
            if runners:
                found |= {
                    one.name for one in make_plan(Wish(device, "full", runners), facts).checks
                }
                found |= {
                    one.name for one in make_plan(Wish(device, "core", runners), facts).checks
                }
    return found


# -- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", TAGS)
def test_every_topic_of_every_series_has_a_row(tag: str) -> None:
    assert set(Series.read(REPO / "patches" / tag).topics) <= set(BY_NAME)


def test_no_row_names_a_gate_or_a_check_that_does_not_exist() -> None:
    checks = every_check()
    for topic in TOPICS:
        assert set(topic.gates) <= {gate.name for gate in GATES}
        for pattern in topic.checks:
            alone = BY_NAME[topic.name].__class__(topic.name, "", {}, {pattern: ""})
            assert any(alone.has_check(name) for name in checks), f"{topic.name}: {pattern}"


def test_every_gate_speaks_for_the_topic_that_mends_it() -> None:
    for gate in GATES:
        if gate.topic:
            assert gate.topic in topics_of_gate(gate.name), gate.name


def test_every_row_has_its_reason() -> None:
    for topic in TOPICS:
        assert topic.purpose
        assert all((*topic.gates.values(), *topic.checks.values()))


def test_every_topic_can_be_proven() -> None:
    told = {topic for name in every_check() for topic in topics_of_check(name)}
    # The collection's own scripts prove it, on a GPU: docs/collection.md.
    assert set(BY_NAME) - told == {"collection"}


# -- defects --------------------------------------------------------------------------------------


def test_defects_have_the_topic_of_the_patch_that_adds_their_test() -> None:
    defects = read_defects(REPO, TAGS)
    tests = {tag: topics_of_tests(Series.read(REPO / "patches" / tag)) for tag in TAGS}
    old, new = (of_release(defects, tag, tests) for tag in ("v0.17.1", "v0.33.0"))
    assert ("eagle3-interface", "1") in [(topic, one.number) for topic, one in old]  # it moved
    assert ("aux-layers", "1") in [(topic, one.number) for topic, one in new]
    mended = [one for one in defects if not one.left]
    for tag in TAGS:
        told = of_release(mended, tag, tests)
        assert [one for _, one in told] == [one for one in mended if tag in one.releases], tag
        assert all(topic for topic, _ in told), tag


def test_what_is_left_of_a_release_is_needed_by_it() -> None:
    defects = read_defects(REPO, TAGS)
    tests = {tag: topics_of_tests(Series.read(REPO / "patches" / tag)) for tag in TAGS}
    told = {tag: of_release(defects, tag, tests) for tag in TAGS}
    images = {
        tag: [(one.number, one.left) for topic, one in of if topic == "drafter-mm"]
        for tag, of in told.items()
    }
    assert images["v0.17.1"] == [("9", True)]
    assert not any(left for _, left in images["v0.33.0"])
    left = {tag: {one.number for _, one in of if one.left} for tag, of in told.items()}
    assert {"17", "24"} <= left["v0.32.0"]  # "left on v0.16.0 and v0.32.0"
    assert not {"17", "24"} & left["v0.33.0"]
    assert not any("43" in of for of in left.values())  # fixed in two rows of their releases
    assert all("15" in of for of in left.values())


# -- words ----------------------------------------------------------------------------------------

SERIES = "5e" * 32
TOPIC, GATE, CHECK = "aux-layers", "ids-nested", "ids/llama-nested/v1/eager"


def gates(**failing: str) -> TreeSaid:
    """All gates pass, but for these; names have _ for -."""
    words = {name.replace("_", "-"): word for name, word in failing.items()}
    return TreeSaid(
        {
            gate.name: GateSaid(
                gate.name, gate.asks, words.get(gate.name, "pass"), "", "a note", "vllm/a.py:1"
            )
            for gate in GATES
        }
    )


def stored(revision: int | None, verdict: str = "pass", **changes: Any) -> StoredReport:
    facts: dict[str, Any] = {
        "file": f"r{revision}.json",
        "tag": "v0.33.0",
        "revision": revision,
        "topics": (TOPIC,),
        "series": SERIES,
        "vllm": "0.33.0" + (f"+kimi.{revision}" if revision else ""),
        "wheel": "vllm.whl",
        "sha256": "ab" * 32,
        "torch": "2.14.0",
        "device": "cuda",
        "gpu": "NVIDIA H200",
        "tier": "core",
        "when": "2026-11-29",
        "checks": (StoredCheck(CHECK, verdict, "evidence", verdict == "pass"),),
    }
    return StoredReport(**{**facts, **changes})


def cell(
    *reports: StoredReport,
    bare: TreeSaid | None = None,
    patched: TreeSaid | None = None,
    revision: int | None = 2,
    patches: Mapping[str, tuple[str, ...]] | None = None,
    topic: str = TOPIC,
) -> Cell:
    series = {TOPIC: ("a patch",)} if patches is None else patches
    facts = Facts(
        "v0.33.0",
        revision=revision,
        series=SERIES,
        patches=series,
        bare=bare or gates(ids_nested="fail"),
        patched=patched or gates(),
        reports=reports,
        carried=frozenset(series),
    )
    return make_row(facts, [topic]).cells[0]


def test_patched_without_a_report() -> None:
    found = cell()
    assert (found.word, found.label, found.patches) == ("patched", "patched", ("a patch",))
    assert any(line.startswith("gate ids-nested") for line in found.needed)


def test_proven_names_tier_device_runner_when_and_wheel() -> None:
    found = cell(stored(2))
    assert (found.word, found.label) == ("proven", "proven GPU core")
    line = found.proofs[0].line
    for part in (
        "revision 2",
        "core",
        "GPU",
        "H200",
        "v1",
        "2026-11-29",
        "vllm.whl",
        "abababababab",
    ):
        assert part in line


def test_a_report_of_an_older_revision_is_stale() -> None:
    assert cell(stored(1)).label == "proven for revision 1"
    assert cell(stored(1)).word == "stale"
    assert cell(stored(1, "fail")).word == "patched"  # an older failure is not this revision's
    assert cell(stored(1), stored(2)).word == "proven"


def test_a_report_says_nothing_of_topics_that_its_revision_did_not_carry() -> None:
    for topics in (("mla-drafter",), None):
        found = cell(stored(1, topics=topics))
        assert (found.word, found.proofs) == ("patched", ())
    assert cell(stored(2, topics=None)).word == "proven"  # the pin's own revision: it is known


def test_a_report_of_other_bytes_under_the_same_revision_is_stale() -> None:
    assert cell(stored(2, series="5e" * 32)).word == "proven"
    found = cell(stored(2, series="0f" * 32))
    assert (found.word, found.label) == ("stale", "proven for other bytes of revision 2")
    assert cell(stored(2, "fail", series="0f" * 32)).word == "patched"


def test_a_failing_check_of_this_revision_is_broken() -> None:
    found = cell(stored(2, "fail"))
    assert found.word == "broken"
    assert CHECK in found.broken[0]
    assert "r2.json" in found.broken[0]


def test_the_newest_report_on_a_device_has_the_word() -> None:
    bad = stored(2, "fail", when="2026-11-01", file="old.json")
    assert cell(bad, stored(2)).word == "proven"
    assert cell(stored(2, "fail"), stored(2, when="2026-11-01")).word == "broken"
    assert cell(bad, stored(2, device="cpu")).word == "broken"  # another device


def test_a_gate_that_fails_on_the_patched_tree_is_broken() -> None:
    found = cell(stored(2), patched=gates(ids_nested="fail"))
    assert found.word == "broken"
    assert "on the patched tree: gate ids-nested" in found.broken[0]


def test_a_check_that_did_not_run_proves_nothing() -> None:
    found = cell(stored(2, "not-run"))
    assert found.word == "patched"
    assert found.proofs[0].not_run == (CHECK,)


def test_a_part_of_a_tier_proves_nothing_but_what_fails() -> None:
    """`vpatch smoke --check states`: the rest of the topic's checks was not asked."""
    part = stored(2, only=("ids",))
    found = cell(part)
    assert found.word == "patched"
    assert "a part of tier core (--check ids)" in found.proofs[0].line
    assert found.as_dict()["proven"][0]["only"] == ["ids"]
    many = cell(stored(2, only=("ids", "states", "greedy", "starts", "inputs")))
    assert "(--check ids --check states --check greedy and 2 more)" in many.proofs[0].line
    assert cell(part, stored(1)).label == "proven for revision 1"
    assert cell(part, stored(2, when="2026-11-28")).label == "proven GPU core"
    assert cell(stored(2, "fail", only=("ids",))).word == "broken"


@pytest.mark.parametrize("allowed", [False, True])  # --allow-not-run NAME
def test_a_topic_of_which_a_check_did_not_run_is_not_proven(allowed: bool) -> None:
    good = StoredCheck(CHECK, "pass", "", True)
    left_out = StoredCheck("states/llama-nested/v1/eager", "not-run", "", allowed)
    found = cell(stored(2, checks=(good, left_out)))
    assert found.word == "patched"
    assert "1 pass, 1 not-run" in found.proofs[0].line


def test_a_report_without_the_hash_of_its_series_is_not_of_these_bytes() -> None:
    found = cell(stored(2, series=""))
    assert (found.word, found.label) == ("stale", "proven for other bytes of revision 2")


@pytest.mark.parametrize("gate", ["parts", "names", "handed_on"])
def test_a_gate_of_no_topic_breaks_the_release(gate: str) -> None:
    said = untold(gates(**{gate: "fail"}))
    assert said.startswith(f"on the patched tree: gate {gate.replace('_', '-')}")
    assert not untold(gates(ids_nested="fail"))  # its topic says so
    assert not untold(None)


def test_needed_without_patches() -> None:
    found = cell(patches={}, patched=gates(ids_nested="fail"), revision=None)
    assert found.word == "broken"
    assert cell(patches={}).word == "needed"


def test_upstream_where_every_gate_passes() -> None:
    found = cell(bare=gates(), patches={})
    assert found.word == "upstream"
    assert any("gate ids-nested passes" in line for line in found.upstream)


def test_what_the_series_does_not_claim_is_needed() -> None:
    """The tree has nothing of it, with the series as without, and the series no topic of it."""
    red = gates(collection="fail")
    gone = TreeSaid(red.gates, frozenset({"collection"}))
    needed = cell(bare=gone, patched=gone, patches={}, topic="collection")
    assert (needed.word, needed.broken) == ("needed", ())
    half = cell(bare=gone, patched=red, patches={}, topic="collection")
    assert half.word == "broken"
    claimed = cell(bare=gone, patched=gone, patches={"collection": ("one",)}, topic="collection")
    assert claimed.word == "broken"


def test_gates_that_do_not_apply() -> None:
    none = gates(placeholder_new_schema="not-applicable")
    assert cell(bare=none, patched=none, patches={}, topic="kimi-config").word == "upstream"


def test_what_an_earlier_error_hides_is_unknown() -> None:
    hidden = gates(placeholder_new_schema="not-applicable", target="fail")
    row = GateSaid("target", "", "fail", "ValueError: no", "", "")
    hidden = TreeSaid({**hidden.gates, "target": row})
    facts = Facts("v0.15.1", bare=hidden)
    found = make_row(facts, ["kimi-config"]).cells[0]
    assert found.word == "unknown"
    assert "hides it" in found.why


@pytest.mark.parametrize("gate", ["pipeline_parallel", "drafter_fc"])
def test_a_gate_counts_for_the_topic_that_mends_it_in_this_series(gate: str) -> None:
    failing = gates(**{gate: "fail"})
    newer = {"aux-layers": ("a",)}
    assert cell(bare=failing, patches=newer, topic="eagle3-interface").word == "upstream"
    assert cell(bare=failing, patches=newer).needed
    older = {"eagle3-interface": ("a",)}
    assert cell(bare=failing, patches=older, topic="eagle3-interface").needed
    assert not cell(bare=failing, patches=older).needed


def test_unknown_says_why() -> None:
    found = make_row(Facts("v0.20.0", why="it is not in the mirror"), [TOPIC]).cells[0]
    assert (found.word, found.why) == ("unknown", "it is not in the mirror")


# -- the command ----------------------------------------------------------------------------------


def run(*args: str, repo: Path = REPO) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vpatch", "status", *args, "--repo", str(repo)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def told(*args: str, repo: Path = REPO) -> tuple[int, dict[str, Any]]:
    ran = run(*args, "--json", repo=repo)
    assert ran.stdout.count("\n") == 1, ran.stdout + ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["schema"] == "vpatch/status/1"
    assert found["ok"] is (ran.returncode == 0)
    return ran.returncode, found


def is_broken(found: dict[str, Any]) -> bool:
    """Whether the repository's own reports say of a release that something fails there."""
    cells = (cell for one in found["releases"] for cell in one["topics"])
    return any(cell["status"] == "broken" for cell in cells)


def test_offline_with_an_empty_cache_says_what_was_not_looked_at() -> None:
    code, found = told("--offline")
    assert code == is_broken(found)
    assert {one["release"] for one in found["releases"]} == set(TAGS)
    assert any("the index was not asked" in note for note in found["notes"])
    for one in found["releases"]:
        assert "not in the mirror" in one["gates"]
    words = {
        (one["release"], cell["topic"]): cell["status"]
        for one in found["releases"]
        for cell in one["topics"]
    }
    assert words["v0.17.1", "fp16"] in {"patched", "proven", "stale"}
    assert words["v0.17.1", "kimi-config"] == "unknown"


def test_only_named_releases() -> None:
    code, found = told("0.17.1", "--offline")
    assert (code, [one["release"] for one in found["releases"]]) == (0, ["v0.17.1"])
    assert found["without_pin"] == []


def test_a_release_that_nobody_knows() -> None:
    code, found = told("v0.99.0", "--offline")
    assert (code, found["error"]["code"]) == (2, "unknown-tag")
    assert "vpatch fetch v0.99.0" in found["error"]["hint"]


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"schema": "vpatch/smoke/2"}', b"\xff\xfe"])
def test_a_report_that_is_none(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(raw)
    code, found = told("--offline", "--reports", str(tmp_path))
    assert (code, found["error"]["code"]) == (1, "bad-report")
    assert "a.json" in found["error"]["message"]


def test_reports_that_are_not_there(tmp_path: Path) -> None:
    code, found = told("--offline", "--reports", str(tmp_path / "none"))
    assert (code, found["error"]["code"]) == (2, "no-reports")


def test_a_broken_release_is_exit_1(tmp_path: Path) -> None:
    pins = {one["release"]: one for one in told("--offline")[1]["releases"]}
    revision = pins["v0.17.1"]["revision"]
    report = {
        "schema": "vpatch/smoke/1",
        "vllm": f"0.17.1+kimi.{revision}",
        "device": "cpu",
        "tier": "core",
        "date": "2026-11-30",
        "checks": [{"check": CHECK, "verdict": "fail", "evidence": "rows hold (2, 4, 5)"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(report))
    code, found = told("v0.17.1", "--offline", "--reports", str(tmp_path))
    cells = {one["topic"]: one for one in found["releases"][0]["topics"]}
    assert code == 1
    assert cells["aux-layers"]["status"] == "broken"
    assert "rows hold (2, 4, 5)" in cells["aux-layers"]["broken"][0]


def test_text_and_markdown(tmp_path: Path) -> None:
    text = run("v0.17.1", "--offline")
    assert text.returncode == 0, text.stderr
    assert text.stdout.startswith("release  revision  eagle3-interface")
    assert "v0.17.1 eagle3-interface: " in text.stdout
    page = run("--markdown", "--offline")
    assert page.stdout.startswith("# vpatch status\n\n| release | eagle3-interface |")
    both = run("--markdown", "--json")
    assert both.returncode == 2


def test_a_folder_is_no_page(tmp_path: Path) -> None:
    code, found = told("--offline", "--html", str(tmp_path))
    assert (code, "is a folder" in found["error"]["message"]) == (2, True)


@pytest.mark.network
def test_real_releases(release_cache: Path) -> None:
    code, found = told("v0.17.1", "v0.33.0", "v0.18.0")
    assert code == is_broken(found)
    words = {
        (one["release"], cell["topic"]): cell["status"]
        for one in (*found["releases"], *found["without_pin"])
        for cell in one["topics"]
    }
    assert words["v0.33.0", "eagle3-interface"] == "upstream"
    assert words["v0.17.1", "eagle3-interface"] in {"proven", "stale", "patched"}
    assert words["v0.17.1", "drafter-mm"] == "needed"
    assert words["v0.18.0", "aux-layers"] == "needed"
    assert words["v0.17.1", "kimi-config"] == "upstream"
