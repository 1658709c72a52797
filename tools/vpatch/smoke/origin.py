"""Where the vLLM of a smoke run comes from, as it says itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vpatch.errors import FindingError
from vpatch.wheel.provenance import parse_provenance


@dataclass(frozen=True)
class Origin:
    """Where the vLLM that ran comes from, as it says itself.

    Attributes:
        series: The hash and the topics of the series that it carries; None without one.
        wheel, sha256: The file that pip installed it from; None where pip kept no word of it.
        problem: What cannot be read; empty where all can.
    """

    series: Mapping[str, Any] | None
    wheel: str | None
    sha256: str | None
    problem: str


def origin_of(provenance: str, direct_url: str) -> Origin:
    """What vpatch.json and direct_url.json (PEP 610) say; either may be empty."""
    series, problem = None, ""
    if provenance:
        try:
            said = parse_provenance(provenance.encode("utf-8", "replace")).origin
        except FindingError as error:
            problem = error.message
        else:
            topics = tuple(dict.fromkeys(patch.topic for patch in said.patches))
            series = {"sha256": said.series_sha256, "topics": list(topics)}
    try:
        pip: Any = json.loads(direct_url or "{}")
        sha256 = pip["archive_info"]["hashes"]["sha256"]
        wheel = str(pip["url"]).rpartition("/")[2]
    except (ValueError, RecursionError, KeyError, TypeError):
        return Origin(series, None, None, problem)
    whole = isinstance(sha256, str) and re.fullmatch(r"[0-9a-f]{64}", sha256)
    return Origin(series, wheel, sha256, problem) if whole else Origin(series, None, None, problem)
