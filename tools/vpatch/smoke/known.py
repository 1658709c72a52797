"""What unpatched releases are known to do wrong: seen, where no line says otherwise.

`--expect-unpatched` holds a run against these: a smoke that passes on a broken engine proves
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from packaging.version import Version

from vpatch.errors import UsageError
from vpatch.smoke.environment import Device
from vpatch.smoke.judge import Result

_NOT_ACCEPTED = r"(?i)eagle3 is only supported for .* models\. Got .*model_type='kimi_k2'"
_NO_CONFIG = r"model type `kimi_k2` but Transformers does not recognize this architecture"
_DEFAULT_IDS = r"rows hold \(2, 4, 5\)"
_WRONG_STATES = r"\b0 of \d+ rows within the bound"
_READ_ON = r"went on to read the target's weights"


@dataclass(frozen=True)
class Known:
    """A check that fails on unpatched releases.

    Attributes:
        releases: Which ones.
        devices: Where.
        check: A regular expression for the whole name of the check.
        evidence: A regular expression that the check's evidence has to hold.
    """

    releases: tuple[str, ...]
    devices: tuple[Device, ...]
    check: str
    evidence: str


_ANYWHERE: tuple[Device, ...] = ("cpu", "cuda")
_GPU: tuple[Device, ...] = ("cuda",)
_NESTED_ON_MRV2 = r"((llama|mla)-random|llama-(nested|outputs)|mla-yarn)/v2/.*"
_IN_PIECES = r"llama-(nested|random)/v1/.*"

KNOWN = (
    # The first of the story's three errors. The other two wait behind it.
    Known(
        ("0.16.0", "0.17.1"), _ANYWHERE, r"(starts|refused)/mla-(yarn|random|plain)/.*", _NO_CONFIG
    ),
    Known(("0.16.0", "0.17.1"), _ANYWHERE, r"(starts|refused)/(llama|ids)-.*", _NOT_ACCEPTED),
    # Wrong ids are found when states of the wrong width reach `fc`, or never.
    Known(("0.26.0", "0.32.0", "0.33.0"), _ANYWHERE, r"refused/ids-.*", _READ_ON),
    # MRV2 does not look where public Kimi drafters keep their ids, and takes its default.
    Known(("0.26.0", "0.33.0"), _GPU, rf"ids/{_NESTED_ON_MRV2}", _DEFAULT_IDS),
    Known(
        ("0.26.0", "0.33.0"),
        _GPU,
        rf"(states|mixed-batch|chunked-prefill)/{_NESTED_ON_MRV2}",
        _WRONG_STATES,
    ),
    # Nobody asks how a drafter counts layers.
    Known(
        ("0.26.0", "0.32.0", "0.33.0"), _ANYWHERE, r"ids/llama-outputs/v1/.*", r"hold \(1, 2, 6\)"
    ),
    Known(
        ("0.26.0", "0.32.0", "0.33.0"),
        _ANYWHERE,
        r"(states|mixed-batch)/llama-outputs/v1/.*",
        _WRONG_STATES,
    ),
    # V1 puts the prompt's very last token behind each part of it.
    Known(
        ("0.26.0", "0.32.0", "0.33.0"),
        _ANYWHERE,
        rf"inputs/{_IN_PIECES}",
        r"rows embed something else.*[1-9]\d* at the end of a part of a prompt",
    ),
    Known(
        ("0.26.0", "0.32.0", "0.33.0"),
        _ANYWHERE,
        rf"guesses/{_IN_PIECES}",
        r"guesses as its definition's",
    ),
    # Without YaRN a drafter with MLA dies; later, with the states of id 0, or of too few ids.
    Known(("0.26.0",), _GPU, r"starts/mla-plain/.*", r"KeyError: 'factor'"),
    Known(("0.33.0",), _GPU, r"starts/mla-plain/v1/.*", r"'Tensor' and 'NoneType'"),
    Known(("0.33.0",), _GPU, r"starts/mla-plain/v2/.*", r"RuntimeError: rms_norm"),
)


@dataclass(frozen=True)
class Expected:
    """A result held against what is known.

    Attributes:
        as_expected: It is what the unpatched release is known to do.
    """

    result: Result
    as_expected: bool


def expect(results: Sequence[Result], version: Version, device: Device) -> list[Expected]:
    """Holds the results of an unpatched release against what is known of it.

    A known check has to fail with its evidence; one whose start is known to fail cannot run; every
    other one has to pass.

    Raises:
        UsageError: Nothing is known of this release on this device.
    """
    known = known_of(version, device)
    told = {result.check for result in results}
    return [Expected(result, _as_expected(result, known, told)) for result in results]


def known_of(version: Version, device: Device) -> list[Known]:
    """What is known of an unpatched release on a device.

    Raises:
        UsageError: Nothing is.
    """
    base = Version(version.base_version)
    known = [one for one in KNOWN if device in one.devices and str(base) in one.releases]
    if not known:
        raise UsageError(
            f"no errors of the unpatched v{base} on {device} are recorded",
            hint="Run it with --unpatched, and judge the table yourself.",
            code="nothing-known",
        )
    return known


def check_known(checks: Sequence[str], version: Version, device: Device) -> None:
    """Looks whether these checks have known errors among them: else nothing is proven.

    Raises:
        UsageError: None of them has; or nothing is known of the release.
    """
    known = known_of(version, device)
    if not any(_of(check, known) for check in checks):
        raise UsageError(
            f"none of these checks is known to fail on the unpatched v{version.base_version}",
            hint="Leave --check out, or take --unpatched.",
            code="nothing-known",
        )


def _as_expected(result: Result, known: Sequence[Known], told: Collection[str]) -> bool:
    mine = _of(result.check, known)
    if mine is not None:
        return result.verdict == "fail" and bool(re.search(mine.evidence, result.evidence))
    if result.verdict == "not-run":
        start = f"starts/{result.check.partition('/')[2]}"
        cause = _of(start, known)
        # Its start's own check tells why; without one the evidence does (judge.py).
        return cause is not None and (
            start in told or bool(re.search(cause.evidence, result.evidence))
        )
    return result.verdict == "pass"


def _of(check: str, known: Sequence[Known]) -> Known | None:
    return next((one for one in known if re.fullmatch(one.check, check)), None)
