"""Files that a server wrote: is each of them whole? Which there have to be, nobody wrote down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from vpatch.collect.layout import ABOUT, MANIFEST
from vpatch.collect.place import Entry, Place
from vpatch.collect.reading import run_jobs
from vpatch.collect.served import (
    Name,
    Note,
    Said,
    Served,
    name_of,
    read_note,
    read_served,
)
from vpatch.findings import Finding
from vpatch.progress import Progress

_MOST_FINDINGS = 100
_MOST_NOTES = 20


@dataclass
class Engine:
    """What lies there of one engine: one start of one data-parallel rank.

    Attributes:
        name: What its files' names begin with.
        files, notes, parts: The numbers of requests that have one.
        said: What all its files say alike, and the first file that did.
        rows, bytes: Of its files.
    """

    name: str
    files: set[int] = field(default_factory=set)
    notes: set[int] = field(default_factory=set)
    parts: set[int] = field(default_factory=set)
    said: tuple[Said, str] | None = None
    rows: int = 0
    bytes: int = 0

    @property
    def numbered(self) -> int:
        """How many requests have had a number, by the largest that is here."""
        return max(self.files | self.notes | self.parts, default=-1) + 1

    @property
    def untold(self) -> int:
        """Requests with a number and nothing here: aborted, running, waiting, or lost."""
        return self.numbered - len(self.files | self.notes | self.parts)


@dataclass(frozen=True)
class Found:
    """What a folder is.

    Attributes:
        engines: By name, in order.
        findings: What is wrong, at most so many as one reads.
        more: How many more there are.
        by_code: All of them, counted.
        failed: Notes of requests that failed, some of them, by file.
        repeated: Files whose label and prompt an earlier one has too.
        others: Entries that no server gives a name like.
    """

    engines: tuple[Engine, ...]
    findings: tuple[Finding, ...]
    more: int
    by_code: Counter[str]
    failed: tuple[tuple[str, Note], ...]
    repeated: int
    others: int


def is_served(place: Place) -> bool:
    """Whether this is no set, and something lies there that a server wrote."""
    if place.size(ABOUT) is not None or place.size(MANIFEST) is not None:
        return False
    return any(name_of(entry.name) is not None for entry in place.entries())


def verify_served(place: Place, progress: Progress, *, jobs: int) -> Found:
    """Reads all files once, and says what is wrong with them.

    Args:
        place: The server's folder.
        progress: Told how far it is.
        jobs: How many files are read beside each other.
    """
    work = _Verification(place)
    work.names()
    size = None if place.folder is None else work.size_of_all()
    progress.start(f"reading {place.name}", size)
    try:
        files = iter(sorted(work.whole))
        run_jobs(files, read_served, place, jobs, size or 0, work.told, progress.advance)
    finally:
        progress.done()
    return work.result()


class _Verification:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.engines: dict[str, Engine] = {}
        self.whole: list[str] = []
        self.requests: set[tuple[str, bytes]] = set()
        self.asked: set[bytes] = set()
        self.findings: list[Finding] = []
        self.by_code: Counter[str] = Counter()
        self.failed: list[tuple[str, Note]] = []
        self.repeated = 0
        self.others = 0

    def found(self, file: str, code: str, message: str) -> None:
        self.find(Finding(file, None, code, message))

    def find(self, finding: Finding) -> None:
        self.by_code[finding.code] += 1
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(finding)

    def names(self) -> None:
        """What lies there, by its names; notes are read at once."""
        for entry in sorted(self.place.entries(), key=lambda one: one.name):
            name = name_of(entry.name)
            if name is None:
                self._other(entry)
            elif entry.kind != "file":
                self.found(entry.name, "no-file", "is no file")
            else:
                self._named(entry.name, name)
        for engine in self.engines.values():
            for number in sorted(engine.files & engine.notes):
                file = f"{engine.name}-{number:08}.safetensors"
                self.found(file, "double", "has a note beside it that its request failed")

    def _other(self, entry: Entry) -> None:
        if entry.name.endswith((".safetensors", ".safetensors.tmp")):
            self.found(entry.name, "foreign", "is none of a server's files")
        else:
            self.others += 1

    def _named(self, file: str, name: Name) -> None:
        engine = self.engines.setdefault(name.engine, Engine(name.engine))
        if name.kind == "file":
            engine.files.add(name.number)
            self.whole.append(file)
        elif name.kind == "part":
            engine.parts.add(name.number)
            why = "is a part of a file: its request runs yet, or its writer was killed"
            self.found(file, "unfinished", why)
        else:
            engine.notes.add(name.number)
            note = read_note(self.place, file)
            if isinstance(note, Finding):
                self.find(note)
            elif len(self.failed) < _MOST_NOTES:
                self.failed.append((file, note))

    def size_of_all(self) -> int:
        """The files' bytes, before they are read."""
        return sum(self.place.size(file) or 0 for file in self.whole)

    def told(self, served: Served) -> None:
        """What a file was."""
        for finding in served.findings:
            self.find(finding)
        engine = self.engines[served.file.rpartition("-")[0]]
        engine.bytes += served.size
        if served.findings:
            return
        engine.rows += served.rows
        self._alike(engine, served)
        if served.request is not None:
            key = (engine.name, served.request)
            if key in self.requests:
                self.found(served.file, "double", "is of a request that another file is of, too")
            self.requests.add(key)
        if served.asked is not None:
            self.repeated += served.asked in self.asked
            self.asked.add(served.asked)

    def _alike(self, engine: Engine, served: Served) -> None:
        """Layers and shapes are those of the engine's other files."""
        if served.said is None:
            return
        if engine.said is None:
            engine.said = served.said, served.file
        elif served.said != engine.said[0]:
            said, other = engine.said
            self.found(served.file, "shape", f"is {served.said}, and {other} is {said}")

    def result(self) -> Found:
        return Found(
            engines=tuple(one for _, one in sorted(self.engines.items())),
            findings=tuple(self.findings),
            more=self.by_code.total() - len(self.findings),
            by_code=self.by_code,
            failed=tuple(self.failed),
            repeated=self.repeated,
            others=self.others,
        )


def forms(engines: tuple[Engine, ...]) -> Iterator[Said]:
    """The layers and shapes that there are, each once."""
    seen: set[Said] = set()
    for engine in engines:
        if engine.said is not None and engine.said[0] not in seen:
            seen.add(engine.said[0])
            yield engine.said[0]
