"""What `vpatch smoke` says of engines that are broken in one place: these checks fail, no others.

Each is the patched release with a few words of vLLM exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.environment import RELEASES, Edit, Say, Site, edited
from engine.smokes import core, smoke, told

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.slow]

TARGET = "vllm/model_executor/models/deepseek_v2.py"
MLA_DRAFTER = "vllm/model_executor/models/deepseek_eagle3.py"
IDS = "vllm/transformers_utils/eagle3.py"
LLAMA_DRAFTER = "vllm/model_executor/models/llama_eagle3.py"
PROPOSER = "vllm/v1/spec_decode/eagle.py"
SAMPLER = "vllm/v1/sample/rejection_sampler.py"

RANDOM = ("starts", "ids", "states", "greedy", "mixed-batch", "guesses")
PIECES = (*RANDOM, "chunked-prefill", "inputs")
LLAMA = (*PIECES, "accepted")
OF_STATES = ("states", "mixed-batch", "chunked-prefill")


@dataclass(frozen=True)
class Break:
    """A broken engine.

    Attributes:
        edits: What breaks it.
        drafter: The one that drafts there.
        asked: What is asked of it.
        fail: What has to fail of this.
        not_refused: Wrong ids that have to get past it.
        evidence: What some failed check says.
    """

    edits: Sequence[Edit]
    fail: Sequence[str]
    evidence: str
    drafter: str = "llama-nested"
    asked: Sequence[str] = LLAMA
    not_refused: Sequence[str] = ()


BREAKS = {
    "the target hands over the layers above": Break(
        [
            Edit(TARGET, "buffer.column(idx)", "buffer.column(idx - 1)"),
            Edit(TARGET, "buffer.column(self.end_layer)", "buffer.column(self.end_layer - 1)"),
        ],
        ("ids", *OF_STATES),
        "asked (1, 3, 7), but 320 of 320 rows hold (2, 4, 8)",
    ),
    "the config's ids are not read": Break(
        [Edit(IDS, "    return next(iter(found.values()), None)", "    return None")],
        ("ids", *OF_STATES),
        "asked (1, 3, 7), but 320 of 320 rows hold (2, 4, 5)",
        not_refused=("ids-outside",),
    ),
    "every draft is accepted": Break(
        [
            Edit(
                SAMPLER,
                "            if draft_token_id != target_argmax_id:",
                "            if False:",
            ),
            Edit(
                SAMPLER,
                "+ pos,\n                target_argmax_id,",
                "+ pos,\n                draft_token_id,",
            ),
        ],
        ("greedy",),
        "2 of 8 answers equal",
    ),
    # As in V1 of v0.26.0 - v0.33.0.
    "a part of a prompt ends with its very last token": Break(
        [
            Edit(
                PROPOSER,
                "                    common_attn_metadata.seq_lens_cpu[i].item()\n"
                "                )\n                for i in range(num_reqs)",
                "                    gpu_input_batch.num_tokens_no_spec[i] - 1\n"
                "                )\n                for i in range(num_reqs)",
            )
        ],
        ("inputs", "guesses"),
        "rows embed something else, the first at position",
        drafter="llama-random",
        asked=PIECES,
    ),
    "no draft is accepted": Break(
        [
            Edit(
                SAMPLER,
                "            if draft_token_id != target_argmax_id:",
                "            if True:",
            )
        ],
        # A right guess that was not taken passes for one that was.
        ("accepted", "guesses", "inputs"),
        "accepted by place in the draft",
    ),
    "a drafter takes its two inputs the wrong way round": Break(
        [
            Edit(
                MLA_DRAFTER,
                "torch.cat([self.input_layernorm(embeds), normed], dim=-1)",
                "torch.cat([normed, self.input_layernorm(embeds)], dim=-1)",
            )
        ],
        ("guesses",),
        "guesses as its definition's",
        drafter="mla-plain",
        asked=RANDOM,
    ),
    "a drafter gets no states": Break(
        [
            Edit(
                LLAMA_DRAFTER,
                "return self.model.fc(hidden_states)",
                "return torch.zeros_like(self.model.fc(hidden_states))",
            )
        ],
        ("guesses",),
        "guesses as its definition's",
        drafter="llama-random",
        asked=RANDOM,
    ),
    "all rows of a drafter stand at one position": Break(
        [
            Edit(
                LLAMA_DRAFTER,
                "self.self_attn(\n            positions=positions,",
                "self.self_attn(\n            positions=positions * 0,",
            )
        ],
        ("guesses",),
        "guesses as its definition's",
        drafter="llama-random",
        asked=RANDOM,
    ),
    "a drafter guesses one token three times": Break(
        [
            Edit(
                PROPOSER,
                "            draft_token_ids_list.append(draft_token_ids)\n\n        # [",
                "            draft_token_ids_list.append(draft_token_ids_list[0])\n\n        # [",
            )
        ],
        ("guesses",),
        "guesses as its definition's",
        drafter="mla-random",
        asked=RANDOM,
    ),
    "the token after a whole draft is another one": Break(
        [
            Edit(
                SAMPLER,
                "                target_argmax_id,\n            )\n"
                "            if draft_token_id != target_argmax_id:\n"
                "                # Reject.\n                rejected = True\n\n"
                "    if not rejected:\n"
                "        # If all tokens are accepted, append the bonus token.\n"
                "        bonus_token_id = tl.load(bonus_token_ids_ptr + req_idx)\n",
                "                target_argmax_id,\n            )\n"
                "            if draft_token_id != target_argmax_id:\n"
                "                rejected = True\n\n"
                "    if not rejected:\n"
                "        bonus_token_id = tl.load(bonus_token_ids_ptr + req_idx)\n"
                "        if num_draft_tokens > 0:\n"
                "            bonus_token_id = bonus_token_id * 0 + 5\n",
            )
        ],
        ("greedy",),
        "answers equal",
    ),
}


@pytest.fixture(scope="module", params=[RELEASES[-1]])
def tag(request: pytest.FixtureRequest) -> str:
    """One release: this is about the smoke."""
    name: str = request.param
    return name


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_engine_fails_the_checks_that_ask_for_what_is_broken(
    patched: Site, release_cache: Path, tmp_path: Path, say: Say, name: str
) -> None:
    broken = BREAKS[name]
    site = edited(patched, broken.edits, tmp_path)
    checks = [f"{check}/{broken.drafter}" for check in broken.asked]
    checks += [f"refused/{wrong}" for wrong in broken.not_refused]
    results = smoke(site, core(site, *checks), tmp_path / "smoke", release_cache, say)

    runs = "v1/eager"
    fail = {f"{check}/{broken.drafter}/{runs}" for check in broken.fail}
    fail |= {f"refused/{wrong}/{runs}" for wrong in broken.not_refused}
    verdicts = {check: result.verdict for check, result in results.items()}
    expected = {f"{check}/{runs}": "pass" for check in checks} | dict.fromkeys(fail, "fail")
    assert verdicts == expected, told(results)
    assert any(broken.evidence in results[check].evidence for check in fail), told(results)
