"""`--expect-unpatched`: exactly the known errors, nothing else, is as expected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from packaging.version import Version

import smoke_lab as lab
from vpatch.errors import UsageError
from vpatch.smoke.environment import Device
from vpatch.smoke.judge import Result, Verdict
from vpatch.smoke.known import KNOWN, Known, check_known, expect

NOT_ACCEPTED = (
    "ValueError: Eagle3 is only supported for ['llama', 'qwen'] models. Got "
    "self.target_model_config.hf_text_config.model_type='kimi_k2'"
)
NO_CONFIG = (
    "ValueError: The checkpoint you are trying to load has model type `kimi_k2` but Transformers "
    "does not recognize this architecture."
)
SAID = (
    NOT_ACCEPTED,
    NO_CONFIG,
    "was not refused: it went on to read the target's weights",
    "asked (1, 3, 7), but 120 of 131 rows hold (2, 4, 5)",
    "asked (2, 3, 7), but 120 of 131 rows hold (1, 2, 6)",
    "3 steps with both; 0 of 131 rows within the bound; worst 90 %",
    "10 of 320 rows embed something else, the first at position 10 (12 at the end of a part of a "
    "prompt, 0 at a picture)",
    "457 of 562 guesses as its definition's",
    "KeyError: 'factor'",
    "TypeError: unsupported operand type(s) for +: 'Tensor' and 'NoneType'",
    "RuntimeError: rms_norm() got an unexpected shape",
)
RECORDED: list[tuple[str, Device]] = [
    ("0.16.0", "cpu"),
    ("0.16.0", "cuda"),
    ("0.17.1", "cpu"),
    ("0.17.1", "cuda"),
    ("0.26.0", "cpu"),
    ("0.26.0", "cuda"),
    ("0.32.0", "cpu"),
    ("0.33.0", "cpu"),
    ("0.33.0", "cuda"),
]


def known_for(check: str, version: str, device: Device) -> Known | None:
    fitting = [
        one
        for one in KNOWN
        if version in one.releases and device in one.devices and re.fullmatch(one.check, check)
    ]
    assert len(fitting) <= 1, check  # or the first one would hide the other
    return fitting[0] if fitting else None


def as_unpatched(version: str, device: Device) -> list[Result]:
    """What a run of the core tier says where exactly the known errors came."""
    plan = lab.plan(version, device)
    results = []
    broken = set()
    for check in plan.checks:
        known = known_for(check.name, version, device)
        if known is not None:
            (said,) = (text for text in SAID if re.search(known.evidence, text))
            results.append(lab.result(check.name, "fail", said))
            broken |= set(check.starts) if check.name.startswith("starts/") else set()
        elif broken & set(check.starts):
            (start,) = broken & set(check.starts)
            evidence = f"{start} did not run: see starts/{start}"
            results.append(lab.result(check.name, "not-run", evidence))
        else:
            results.append(lab.result(check.name, "pass", "as it has to be"))
    return results


def unexpected(results: Sequence[Result], version: str, device: Device) -> list[str]:
    held = expect(results, Version(version), device)
    assert [one.result for one in held] == list(results)
    return [one.result.check for one in held if not one.as_expected]


@pytest.mark.parametrize(("version", "device"), RECORDED)
def test_exactly_the_known_errors(version: str, device: Device) -> None:
    results = as_unpatched(version, device)
    assert any(one.verdict == "fail" for one in results)
    assert unexpected(results, version, device) == []
    for local in ("+cu129", "+cpu", "rc1"):
        assert unexpected(results, version + local, device) == []


@pytest.mark.parametrize(("version", "device"), RECORDED)
def test_any_other_result_is_not_expected(version: str, device: Device) -> None:
    results = as_unpatched(version, device)
    starts = [one for one in results if one.check.startswith("starts/")]
    for one in results:
        others: dict[str, list[tuple[Verdict, str]]] = {
            "pass": [("fail", NOT_ACCEPTED), ("not-run", "a did not run: see starts/a")],
            "fail": [
                ("pass", one.evidence),
                ("fail", "OutOfMemoryError: no"),
                ("not-run", one.evidence),
            ],
            "not-run": [("fail", one.evidence)],
        }
        for verdict, evidence in others[one.verdict]:
            wrong = replace(one, verdict=verdict, evidence=evidence)
            beside = [start for start in starts if start.check != one.check]
            assert unexpected([*beside, wrong], version, device) == [one.check]


@pytest.mark.parametrize("one", KNOWN, ids=lambda one: f"{one.check}-{one.releases[0]}")
def test_every_line_is_of_a_check_that_there_is(one: Known) -> None:
    for version in one.releases:
        checks = {
            check.name
            for device in one.devices
            if version in {v for v, d in RECORDED if d == device}
            for check in lab.plan(version, device).checks
        }
        assert any(re.fullmatch(one.check, check) for check in checks)
        assert any(re.search(one.evidence, text) for text in SAID)


def test_without_the_starts_own_check_the_error_itself_is_known() -> None:
    def states(evidence: str) -> list[Result]:
        return [lab.result("states/llama-nested/v1/eager", "not-run", evidence)]

    start = "llama-nested/v1/eager did not run: "
    assert unexpected(states(start + NOT_ACCEPTED), "0.17.1", "cpu") == []
    assert unexpected(states(start + "OutOfMemoryError: no"), "0.17.1", "cpu") != []
    assert unexpected(states(start + NO_CONFIG), "0.17.1", "cpu") != []


@pytest.mark.parametrize(("version", "device"), [("0.26.1", "cuda"), ("0.18.0", "cpu")])
def test_nothing_recorded(version: str, device: Device) -> None:
    with pytest.raises(UsageError, match=rf"unpatched v{version} on {device}") as caught:
        expect([], Version(version), device)
    assert caught.value.code == "nothing-known"


def test_what_is_known_of_a_gpu_is_not_of_a_cpu() -> None:
    result = lab.result("ids/llama-nested/v2/eager", "fail", "120 of 131 rows hold (2, 4, 5)")
    assert unexpected([result], "0.26.0", "cuda") == []
    assert unexpected([result], "0.26.0", "cpu") != []


def test_a_run_without_a_known_error_in_it_proves_nothing() -> None:
    version = Version("0.17.1")
    check_known(
        ["starts/target/v1/eager", "ids/llama-nested/v1/eager", "refused/ids-outside/v1/eager"],
        version,
        "cpu",
    )
    with pytest.raises(UsageError, match="none of these checks is known to fail"):
        check_known(["starts/target/v1/eager"], version, "cpu")
