"""A TOML table that is read strictly: key by key, each refused by its full name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vpatch.findings import Finding, FindingsError


class Table:
    """A TOML table that is taken apart key by key, until nothing is left."""

    def __init__(self, table: dict[str, Any], file: str, name: str = "") -> None:
        self.table = dict(table)
        self.file = file
        self.name = name

    def text(self, key: str, valid: Callable[[str], object]) -> str:
        value = self._take(key, str, "a string")
        if not valid(value):
            raise self.refused(key, f"cannot be {value!r}")
        return str(value)

    def optional(self, key: str, valid: Callable[[str], object]) -> str:
        return self.text(key, valid) if key in self.table else ""

    def number(self, key: str, least: int) -> int:
        value = self._take(key, int, "a whole number")
        if isinstance(value, bool) or value < least:
            raise self.refused(key, f"is to be a whole number from {least} on, not {value!r}")
        return int(value)

    def inner(self, key: str) -> Table:
        return Table(self._take(key, dict, "a table"), self.file, self._full(key))

    def tables(self, key: str) -> list[Table]:
        items = self._take(key, list, "a list of tables")
        names = (f"{self._full(key)}[{number}]" for number in range(len(items)))
        if not all(isinstance(item, dict) for item in items):
            raise self.refused(key, "is to be a list of tables")
        return [Table(item, self.file, name) for item, name in zip(items, names, strict=True)]

    def texts(self, key: str) -> tuple[str, ...]:
        items = self._take(key, list, "a list of strings")
        if not all(isinstance(item, str) for item in items):
            raise self.refused(key, "is to be a list of strings")
        return tuple(items)

    def keys(self, valid: Callable[[str], object], what: str) -> list[str]:
        for key in self.table:
            if not valid(key):
                raise self.refused(key, f"is not {what}")
        return list(self.table)

    def end(self) -> None:
        for key in self.table:
            raise self.refused(key, "is a key that a pin does not have")

    def refused(self, key: str, message: str) -> FindingsError:
        finding = Finding(self.file, None, "bad-pin", f"`{self._full(key)}` {message}")
        return FindingsError([finding])

    def _take(self, key: str, kind: type, what: str) -> Any:
        if key not in self.table:
            raise self.refused(key, "is missing")
        value = self.table.pop(key)
        if not isinstance(value, kind):
            raise self.refused(key, f"is to be {what}, not {value!r}")
        return value

    def _full(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key
