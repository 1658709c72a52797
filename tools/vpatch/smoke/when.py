"""When a stored run was: a date that is yet to come would be the newest one for ever."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

from vpatch.errors import FindingError

# What clocks may be apart; a day alone may be that of another place.
_CLOCKS, _DAYS = timedelta(hours=1), timedelta(hours=14)
_WHEN = re.compile(r"(\d{4}-\d\d-\d\d)(?:T([\d:]+)(?:\.\d+)?(?:Z|\+00:00))?", re.ASCII)


def check_when(path: Path, when: str, tag: str) -> None:
    """Looks whether a run can have been then.

    Args:
        path: The report of it.
        when: ISO 8601, a day at least.
        tag: The release that ran.

    Raises:
        ValueError: It is no date.
        FindingError: It is yet to come.
    """
    told = _WHEN.fullmatch(when)
    if told is None:
        raise ValueError(when)
    moment = datetime.fromisoformat("T".join(filter(None, told.groups())))
    ahead = _CLOCKS if told[2] else _DAYS
    if moment.replace(tzinfo=timezone.utc) > datetime.now(timezone.utc) + ahead:
        raise FindingError(
            f"{path} says that its run was {when}, which is yet to come: it would count as the "
            "newest",
            hint="Is the clock right here (date -u)? Then move it away, and run it again: "
            f"vpatch smoke {tag} --report {path.name}",
            code="future-report",
        )
