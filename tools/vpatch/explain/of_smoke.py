"""What the smoke knows unpatched releases to say."""

from __future__ import annotations

from collections.abc import Iterator

from vpatch.explain.entry import Entry
from vpatch.explain.pattern import Pattern
from vpatch.smoke.known import KNOWN

_WHERE = {"cpu": "CPU", "cuda": "GPU"}


def entries() -> Iterator[Entry]:
    """All of smoke/known.py: its texts are regular expressions."""
    for known in KNOWN:
        where = " and ".join(_WHERE[device] for device in known.devices)
        yield Entry(
            "smoke",
            known.check,
            Pattern((), known.evidence),
            f"`vpatch smoke --unpatched` is known to say so on a {where}",
            releases=tuple(f"v{release}" for release in known.releases),
        )
