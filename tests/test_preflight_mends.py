"""How a revision of a series is seen to read a drafter's config: by its patches, or its files."""

from __future__ import annotations

import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from preflight_lab import IDS, LLAMA, REPO, REVISION_9, TARGET, run, weights_of, write
from series_lab import TAG, Lab, Step
from vpatch.patches.repo import pinned_tags, series_folder
from vpatch.preflight.mends import ALL, NONE, Mends, of_series, of_tree

READER = "vllm/transformers_utils/eagle3.py"
ALGOS = "vllm/transformers_utils/configs/speculators/algos.py"
UTILS = "vllm/model_executor/models/utils.py"
SPECULATIVE = "vllm/config/speculative.py"
SOURCES: Mapping[str, str] = {
    READER: "\nOTHER_LAYER_IDS = (\n)\n\ndef norms_before_residual(config):\n    pass\n\n"
    "def get_target_hidden_size(config):\n    pass\n\ndef _get_headers(drafter):\n    pass\n\n"
    "def _get_int(config, name):\n    pass\n",
    ALGOS: "def carry_over(\n    key,\n):\n    if key:\n        pass\n"
    "    elif isinstance(outer, dict) and isinstance(inner, dict):\n        pass\n\n"
    "def update_peagle():\n"
    '    for key in ("norm_before_residual", "norm_before_fc"):\n        pass\n',
    UTILS: "def find_draft_ids_problem(\n    model,\n):\n"
    "    if offsets.shape != (model.config.draft_vocab_size,):\n        pass\n",
    SPECULATIVE: 'if x:\n    pass\nelif any("Eagle3" in a for a in architectures):\n    pass\n',
}


def test_mends_of_a_tree() -> None:
    sources = {path: source.encode() for path, source in SOURCES.items()}
    assert of_tree(sources.get) == ALL
    empty: dict[str, bytes] = {}
    assert of_tree(empty.get) == NONE
    for path in SOURCES:
        rest = {each: source for each, source in sources.items() if each != path}
        assert NONE != of_tree(rest.get) != ALL
    # Where a name is used and not defined, and upstream's own test of names
    assert of_tree({READER: b"x = get_target_hidden_size(config)\n"}.get) == NONE
    assert of_tree({SPECULATIVE: b'if not a.startswith("Eagle3"):\n'}.get) == NONE


def test_mends_of_a_series_are_what_its_patches_leave(tmp_path: Path) -> None:
    start = dict.fromkeys(SOURCES, b"import os\n")
    lab = Lab(tmp_path, start)
    added = {path: b"import os\n" + source.encode() for path, source in SOURCES.items()}
    steps = [Step("0001-a.patch", {UTILS: added[UTILS]}), Step("0002-b.patch", added)]
    lab.series(tmp_path / TAG, steps)
    assert of_series(tmp_path / TAG) == ALL
    undone = Step("0003-c.patch", {ALGOS: start[ALGOS]})
    lab.series(tmp_path / "undone" / TAG, [*steps, undone])
    found = of_series(tmp_path / "undone" / TAG)
    assert found == replace(ALL, speculators=False, parts=False, peagle=False)


@pytest.mark.parametrize("tag", pinned_tags(REPO))
def test_series_that_there_are(tag: str) -> None:
    """Those that read a drafter's options in both places have what came with it."""
    found = of_series(series_folder(REPO, tag))
    if found.flags:
        later = Version(tag) >= Version("0.26")  # runners of older ones know no other names
        assert found in (
            replace(REVISION_9, names=later),
            # P-EAGLE came after v0.17.1
            replace(ALL, names=later, peagle=later),
        )


def test_a_release_is_judged_by_its_series(tmp_path: Path) -> None:
    start = dict.fromkeys(SOURCES, b"import os\n")
    lab = Lab(tmp_path, start)
    target = write(tmp_path / "target", TARGET)
    config = {**LLAMA, "eagle_config": {IDS: [2, 20, 50], "norm_output": True}}
    drafter = write(tmp_path / "drafter", config, weights_of(LLAMA))
    for mended in (False, True):
        repo = tmp_path / f"repo-{mended}"
        folder = repo / "patches" / "v0.33.0"
        changed = SOURCES if mended else {SPECULATIVE: "import sys\n"}
        lab.series(
            folder, [Step("0001-a.patch", {path: changed[path].encode() for path in changed})]
        )
        (folder / "pin.toml").write_bytes((REPO / "patches" / "v0.33.0" / "pin.toml").read_bytes())
        args = ("--target", str(target), "--drafter", str(drafter), "--tag", "v0.33.0")
        _, found = run(*args, "--repo", str(repo))
        assert found["verdict"] == ("works" if mended else "wrong-result")


def test_an_installed_vllm_is_judged_by_its_files(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for path, source in SOURCES.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(source)
    (site / "vllm" / "__init__.py").write_text("raise SystemExit('imported')")
    metadata = site / "vllm-0.33.0+kimi.8.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0+kimi.8\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    target = write(tmp_path / "target", TARGET)
    config = {**LLAMA, "eagle_config": {IDS: [2, 20, 50], "norm_output": True}}
    drafter = write(tmp_path / "drafter", config, weights_of(LLAMA))
    args = ("--target", str(target), "--drafter", str(drafter), "--installed", str(python))
    assert run(*args)[1]["verdict"] == "works"
    (site / READER).write_text("")
    assert run(*args)[1]["verdict"] == "wrong-result"


def test_mends_by_name() -> None:
    assert NONE.as_names == ()
    assert Mends(**dict.fromkeys(ALL.as_names, True)) == ALL
