"""v0.16.0 -> v0.17.1 with what is stored: one command, and the hand-made series comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from project_lab import vpatch
from session_lab import said
from vpatch.git import Git
from vpatch.patches.apply import apply_series
from vpatch.patches.series import Series
from vpatch.upstream.index import Index
from vpatch.upstream.mirror import Mirror

pytestmark = [pytest.mark.network, pytest.mark.slow]
REPO = Path(__file__).parent.parent
LEAVE = (
    "0020-eagle3-refuse-mrv2-which-drops-the-aux-hidden-states.patch:obsolete",
    "0021-tests-mrv2-of-this-release-is-refused.patch:obsolete",
)
# What the hand-made series has of its own: MRV2 serves EAGLE-3 from v0.17.0 on (its reader of ids,
# its drafter's tables, its KV layouts, each with tests), a page of docs, and tests of what v0.17.1
# alone has (extract_hidden_states, the proposer's new start).
OF_ITS_OWN = {
    "docs/features/speculative_decoding/eagle.md",
    "tests/v1/spec_decode/test_kimi_eagle3_layer_ids.py",
    "tests/v1/spec_decode/test_kimi_eagle3_layer_numbering.py",
    "tests/v1/spec_decode/test_kimi_eagle3_layer_override.py",
    "tests/v1/spec_decode/test_kimi_eagle3_mla_drafter.py",
    "tests/v1/spec_decode/test_kimi_eagle3_mrv2_kv_layout.py",
    "tests/v1/spec_decode/test_kimi_eagle3_shared_tables.py",
    "tests/v1/spec_decode/test_kimi_eagle3_target_types.py",
    "vllm/v1/worker/gpu/model_runner.py",
    "vllm/v1/worker/gpu/spec_decode/__init__.py",
    "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py",
    "vllm/v1/worker/gpu/spec_decode/eagle/utils.py",
}


def tree_of(git: Git, base: str, folder: Path) -> str:
    """What a series makes, without the topic that v0.17.1 has and v0.16.0 does not."""
    series = Series.read(folder, "v0.17.1")
    kept = tuple(patch for patch in series.patches if patch.topic != "collection")
    return apply_series(git, base, replace(series, patches=kept)).tree


def test_one_command_makes_what_was_made_by_hand(
    release_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = Mirror.open(release_cache)
    for tag in ("v0.16.0", "v0.17.1"):
        mirror.fetch(tag, index=Index.from_pip_config())
    out = tmp_path / "v0.17.1"
    accept = [part for name in LEAVE for part in ("--accept", name)]
    args = ("rebase", "v0.16.0", "v0.17.1", "--repo", str(REPO), "--out", str(out), "--json")
    assert vpatch(*args, *accept) == 0
    answer = said(capsys)
    words = {patch["file"][:4]: patch["verdict"] for patch in answer["patches"]}
    resolved = {name for name, word in words.items() if word == "resolved"}
    assert resolved == {"0001", "0009", "0017", "0018", "0044"}
    assert {name for name, word in words.items() if word == "obsolete"} == {"0020", "0021"}
    assert answer["resolutions"]["unused"] == answer["resolutions"]["broken"] == []
    assert len(answer["resolutions"]["used"]) == len(resolved)
    release = mirror.find("v0.17.1", "sdist")
    assert release is not None
    carried, by_hand = (
        tree_of(mirror.git, release.tree, folder) for folder in (out, REPO / "patches/v0.17.1")
    )
    listed = mirror.git.output("diff-tree", "-r", "-z", "--name-only", carried, by_hand)
    assert set(listed.decode().split("\0")[:-1]) == OF_ITS_OWN
