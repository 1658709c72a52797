"""Is a set complete, and nothing else? Everything is read once; memory does not grow with it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vpatch.collect.blocks import Block, read_blocks
from vpatch.collect.content import Wanted
from vpatch.collect.layout import (
    ABOUT,
    MANIFEST,
    PROMPTS,
    SAMPLES,
    TOP,
    WORK,
    number_of_file,
    number_of_shard,
)
from vpatch.collect.lines import Failed
from vpatch.collect.manifest import (
    About,
    Counts,
    Manifest,
    read_about,
    read_manifest,
    sha256_of,
)
from vpatch.collect.place import Place
from vpatch.collect.prompts import read_prompts
from vpatch.collect.reading import Job, Told, check, run_jobs
from vpatch.collect.table import Prompts, Seen, spans
from vpatch.errors import FindingError, UsageError
from vpatch.findings import Finding
from vpatch.progress import Progress

_MOST_FINDINGS = 100
_MOST_FAILED = 20


@dataclass(frozen=True)
class Verified:
    """What a set is.

    Attributes:
        about, manifest: As they lie there.
        counts: What was found.
        findings: What is wrong, at most so many as one reads.
        more: How many more there are.
        by_code: All of them, counted.
        failed: Prompts that have a reason in the place of a sample; some of them.
        read: Bytes that were read.
    """

    about: About
    manifest: Manifest
    counts: Counts
    findings: tuple[Finding, ...]
    more: int
    by_code: Counter[str]
    failed: tuple[Failed, ...]
    read: int


def verify(place: Place, progress: Progress, *, jobs: int) -> Verified:
    """Proves a set complete, or says what is wrong with it.

    Args:
        place: The set.
        progress: Told how far it is.
        jobs: How many files are read beside each other.

    Raises:
        UsageError: There is no set.
        FindingError: Its manifest is none, or it is not finished.
    """
    about, manifest = _opened(place)
    work = _Verification(place, about, manifest)
    try:
        work.tops()
        work.prompts()
        progress.start(f"reading {place.name}", manifest.counts.bytes)
        try:
            size = manifest.counts.bytes
            run_jobs(work.jobs(), check, place, jobs, size, work.told, progress.advance)
        finally:
            progress.done()
        work.names()
    except FileNotFoundError as error:
        work.find(Finding(Path(error.filename).name, None, "missing", "is missing"))
    except FindingError as error:  # a link in the place of a small file
        work.find(Finding(place.name, None, error.code, error.message))
    work.counted()
    return work.result()


def _opened(place: Place) -> tuple[About, Manifest]:
    manifest = read_manifest(place)
    about = read_about(place)
    if manifest is not None and about is not None:
        return about, manifest
    if about is None and manifest is None:
        raise UsageError(
            f"{place.name} is no set: it has no {ABOUT}",
            hint="Name the folder that vpatch collect --out wrote, or that of a server's "
            "--hidden-states-collection.",
            code="no-set",
        )
    if manifest is None:
        raise FindingError(
            f"{place.name} is not finished: it has no {MANIFEST}",
            hint="Run vpatch collect with the same --out again, and --resume.",
            code="unfinished",
        )
    raise FindingError(f"{place.name} has no {ABOUT}", hint="Collect it again.", code="no-about")


class _Verification:
    def __init__(self, place: Place, about: About, manifest: Manifest) -> None:
        self.place = place
        self.about = about
        self.manifest = manifest
        self.table = Prompts()
        self.seen = Seen(manifest.counts.prompts)
        self.shards: set[str] = set()
        self.counts = Counts()
        self.findings: list[Finding] = []
        self.by_code: Counter[str] = Counter()
        self.failed: list[Failed] = []
        self.read = 0

    def find(self, finding: Finding) -> None:
        self.by_code[finding.code] += 1
        if len(self.findings) < _MOST_FINDINGS:
            self.findings.append(finding)

    def found(self, file: str, code: str, message: str, line: int | None = None) -> None:
        self.find(Finding(file, line, code, message))

    def tops(self) -> None:
        """The small files are the manifest's."""
        for name in (ABOUT, PROMPTS, SAMPLES):
            if sha256_of(self.place, name) != self.manifest.sha256[name]:
                self.found(name, "checksum", "is not the file that the manifest tells of")

    def prompts(self) -> None:
        """Every prompt, in order."""
        stream, _ = self.place.open(PROMPTS)
        with stream:
            try:
                for prompt in read_prompts(stream, PROMPTS):
                    self.table.add(prompt)
            except UsageError as error:
                line = re.match(rf"{re.escape(PROMPTS)}:(\d+) ", error.message)
                rest = error.message[line.end() :] if line else error.message
                self.found(PROMPTS, error.code, rest, int(line[1]) if line else None)
        if len(self.table) != len(self.seen):
            self.found(
                PROMPTS,
                "counts",
                f"has {len(self.table)} prompts, and the manifest tells of {len(self.seen)}",
            )

    def jobs(self) -> Iterator[Job]:
        """Each file that has to be there, with what it has to be."""
        stream, _ = self.place.open(SAMPLES)
        with stream:
            for one in read_blocks(stream, self.find):
                if isinstance(one, Block):
                    yield from self._job(one)
                else:
                    self._fails(*one)

    def _job(self, block: Block) -> Iterator[Job]:
        is_shard = block.shard is not None
        if is_shard != (self.about.layout == "shards"):
            self.found(SAMPLES, "samples", f"{block.file} is of another layout", block.line)
            return
        if is_shard and block.file in self.shards:
            self.found(SAMPLES, "double", f"{block.file} is there twice", block.line)
            return
        # A sample that is told twice is told once too often, and its file is read once.
        known = [self._notes(block, index) for index in range(len(block.samples))]
        if not all(known):
            return
        if is_shard:
            self.shards.add(block.file)
        rows = sum(sample.rows for sample in block.samples)
        self._count(samples=len(block.samples), rows=rows, files=1)
        numbers = [sample.number for sample in block.samples]
        wanted = tuple(
            Wanted(sample, self.table.digest(number))
            for sample, number in zip(block.samples, numbers, strict=True)
        )
        yield Job(
            file=block.file,
            size=block.size,
            sha256=block.sha256,
            wanted=wanted,
            shape=self.manifest.shape,
            shard=is_shard,
            norm=self.about.norm,
            layers=self.about.layers,
        )

    def _notes(self, block: Block, index: int) -> bool:
        sample = block.samples[index]
        line = block.line + index + (block.shard is not None)
        if not self._new(sample.number, sample.id, Seen.SAMPLE, line):
            return False
        length = self.table.length(sample.number)
        if length not in {None, sample.prompt}:
            self.found(
                SAMPLES,
                "prompt",
                f"sample {sample.number} has {sample.prompt} tokens of a prompt of {length}",
                line,
            )
        return True

    def _fails(self, line: int, failed: Failed) -> None:
        if self._new(failed.number, failed.id, Seen.FAILED, line):
            self._count(failed=1)
            if len(self.failed) < _MOST_FAILED:
                self.failed.append(failed)

    def _new(self, number: int, one: str | None, state: int, line: int) -> bool:
        if number >= min(len(self.seen), len(self.table)):
            self.found(SAMPLES, "foreign", f"sample {number} has no prompt", line)
            return False
        if self.seen[number]:
            self.found(SAMPLES, "double", f"sample {number} is there twice", line)
            return False
        self.seen.put(number, state)
        if not self.table.is_called(number, one):
            self.found(SAMPLES, "id", f"sample {number} has another id than its prompt", line)
        return True

    def _count(self, *, samples: int = 0, failed: int = 0, rows: int = 0, files: int = 0) -> None:
        now = self.counts
        self.counts = replace(
            now,
            samples=now.samples + samples,
            failed=now.failed + failed,
            rows=now.rows + rows,
            files=now.files + files,
        )

    def told(self, told: Told) -> None:
        """What a file was."""
        for finding in told.findings:
            self.find(finding)
        self.read += told.size
        self.counts = replace(self.counts, bytes=self.counts.bytes + told.size)

    def names(self) -> None:
        """Nothing lies there that is not the set's."""
        for entry in self.place.entries():
            if entry.name == WORK:
                self.found(WORK, "unfinished", "is there: run vpatch collect again with --resume")
            elif not self._is_ours(entry.name):
                self.found(entry.name, "foreign", "does not belong to the set")
            elif entry.kind != "file":
                self.found(entry.name, "no-file", "is no file")

    def _is_ours(self, name: str) -> bool:
        if name in TOP or name in self.shards:
            return True
        number = number_of_file(name)
        if number is None or number_of_shard(name) is not None or number >= len(self.seen):
            return False
        return self.about.layout == "files" and self.seen[number] == Seen.SAMPLE

    def counted(self) -> None:
        """Every prompt has a sample or a reason, and the manifest says so."""
        self.counts = replace(self.counts, prompts=len(self.table))
        missing = self.seen.count(Seen.MISSING)
        if missing:
            which = spans(self.seen.runs(Seen.MISSING))
            self.found(SAMPLES, "missing", f"{missing} prompts have no sample: {which}")
        said, found = self.manifest.counts, self.counts
        for name in ("samples", "failed", "rows", "bytes", "files"):
            one, other = getattr(said, name), getattr(found, name)
            if one != other:
                self.found(MANIFEST, "counts", f"tells of {one} {name}, and there are {other}")

    def result(self) -> Verified:
        return Verified(
            about=self.about,
            manifest=self.manifest,
            counts=self.counts,
            findings=tuple(self.findings),
            more=self.by_code.total() - len(self.findings),
            by_code=self.by_code,
            failed=tuple(self.failed),
            read=self.read,
        )
