"""Drafters that are compiled beside one target, one after another, in one compile cache."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.environment import Edit, Say, Site, edited
from engine.smokes import Results, facts, smoke, told
from vpatch.smoke import judge
from vpatch.smoke.cases import Drafter
from vpatch.smoke.plan import Builder, Plan, Wish

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

CONFIG = "vllm/config/speculative.py"
BUFFER = "vllm/model_executor/layers/hidden_states_buffer.py"
# Where either release keeps a compiled target or drafter.
GRAPHS = "compiled/**/torch_aot_compile/*/rank_0_0/model"


def compiled(name: str, kind: str, *ids: int, **changes: object) -> Drafter:
    vocabulary = "reduced" if kind == "llama" else "full"
    # Eight layers of eight experts take a minute to compile.
    of = {"target": "short", "layers": 2}
    return Drafter(name, kind, ids, "nested", vocabulary, changes, **of)  # type: ignore[arg-type]


# Other ids, and the same ids and weights but other options.
APART = (
    compiled("llama-1-2", "llama", 1, 2),
    compiled("mla-0-2", "mla31", 0, 2),
    compiled("mla-raw-0-2", "mla31", 0, 2, norm_output=False),
)
ALIKE = (compiled("llama-1-2", "llama", 1, 2), compiled("llama-0-2", "llama", 0, 2))


def plan_of(site: Site, drafters: tuple[Drafter, ...], lock: Path) -> Plan:
    builder = Builder(Wish("cpu", "core", ("v1",)), facts(site))
    for drafter in drafters:
        name = drafter.name
        # They take turns: each finds what the one before has left.
        more = {"lock": str(lock), "guesses": drafter.mla}
        builder.start(name, drafter, "v1", "compile", more=more)
        builder.check(f"ids/{name}", [name], judge.took_ids(name, drafter.asked))
        builder.check(f"states/{name}", [name], judge.right_states(name))
        if drafter.mla:
            builder.check(f"guesses/{name}", [name], judge.right_guesses(name))
    return builder.plan()


def with_the_cache_key_of(unpatched: Site, patched: Site, folder: Path) -> Site:
    """The patched release with the release's own `SpeculativeConfig.compute_hash`."""
    ours, theirs = (
        source_of(site, "SpeculativeConfig", "compute_hash") for site in (patched, unpatched)
    )
    return edited(patched, [Edit(CONFIG, ours, theirs)], folder)


def source_of(site: Site, of: str, name: str) -> str:
    text = (site.folder / CONFIG).read_text()
    (owner,) = [n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == of]
    (function,) = [n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == name]
    source = ast.get_source_segment(text, function)
    assert source is not None
    return source


def check_compiler(site: Site) -> None:
    """Fails where torch could not compile."""
    include = "import sysconfig; print(sysconfig.get_path('include'))"
    found = subprocess.run([site.python, "-c", include], capture_output=True, check=True, text=True)
    header = Path(found.stdout.strip()) / "Python.h"
    if shutil.which("g++") is None or not header.is_file():
        pytest.fail(f"torch.compile on a CPU needs g++ and {header}: install them")


Ran = tuple[Results, int]


@pytest.fixture(scope="module")
def runs(
    patched: Site,
    unpatched: Site,
    release_cache: Path,
    say: Say,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Future[Ran]]]:
    """Both at once, each with a cache of its own: results, and how many graphs were kept."""
    check_compiler(patched)
    stale = with_the_cache_key_of(unpatched, patched, tmp_path_factory.mktemp("site"))

    def run(site: Site, drafters: tuple[Drafter, ...]) -> Ran:
        scratch = tmp_path_factory.mktemp("smoke")
        plan = plan_of(site, drafters, scratch / "lock")
        results = smoke(site, plan, scratch, release_cache, say)
        return results, len(list(scratch.glob(GRAPHS)))

    with ThreadPoolExecutor(2) as pool:
        yield {
            "patched": pool.submit(run, patched, APART),
            "stale": pool.submit(run, stale, ALIKE),
        }


def test_drafters_in_one_compile_cache_get_graphs_of_their_own(
    runs: dict[str, Future[Ran]],
) -> None:
    results, graphs = runs["patched"].result()
    assert {one.verdict for one in results.values()} == {"pass"}, told(results)
    assert graphs == 2 * len(APART)  # a target's and a drafter's


def test_with_the_releases_cache_key_the_second_drafter_gets_the_first_ones_graph(
    runs: dict[str, Future[Ran]], patched: Site
) -> None:
    """What the fix is for, and that the test above would see it missing.

    Where the states are returned it silently gets the first one's layers; where they are written
    to a buffer it cannot run: that graph writes from a layer to which this engine gave no buffer.
    """
    results, graphs = runs["stale"].result()
    assert graphs == 2
    one, other = ALIKE if results[f"ids/{ALIKE[0].name}"].verdict == "pass" else ALIKE[::-1]
    assert results[f"states/{one.name}"].verdict == "pass", told(results)
    ids, states = results[f"ids/{other.name}"], results[f"states/{other.name}"]
    if (patched.folder / BUFFER).exists():
        assert (ids.verdict, states.verdict) == ("not-run", "not-run"), told(results)
        assert "RuntimeError: increment_version expects each element" in ids.evidence
    else:
        assert (ids.verdict, states.verdict) == ("fail", "fail"), told(results)
        assert f"asked {other.asked}, but 320 of 320 rows hold {one.asked}" == ids.evidence
