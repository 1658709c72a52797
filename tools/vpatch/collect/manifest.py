"""manifest.json, a set's last word, and set.json, its first one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vpatch.collect.file import WIDEST_ROW, Shape
from vpatch.collect.layout import ABOUT, MANIFEST, MOST_SAMPLES, PROMPTS, SAMPLES, Layout
from vpatch.collect.place import Place
from vpatch.collect.rows import NUMBERS
from vpatch.errors import FindingError
from vpatch.preflight.strictjson import read_object

SCHEMA = "vpatch/set/1"
_LARGEST = 4 << 20
_MOST = 1 << 60
_COUNTS = ("prompts", "samples", "failed", "rows", "bytes", "files")


@dataclass(frozen=True)
class About:
    """How a set is made: equal for all of its samples, and for every run that makes them.

    Attributes:
        target: The checkpoint, as it was named.
        layers: vLLM's ids, ascending.
        vllm: Its version.
        series: The sha256 of the series that it carries; None without one.
        layout: One file a sample, or shards.
        norm: Whether the last states, normed, are there too.
        sampling: How tokens were generated.
        options: Of ``LLM(...)``.
    """

    target: str
    layers: tuple[int, ...]
    vllm: str
    series: str | None
    layout: Layout
    norm: bool
    sampling: Mapping[str, Any]
    options: Mapping[str, Any]

    def to_json(self) -> bytes:
        """set.json."""
        return _bytes({"schema": SCHEMA, **asdict(self)})


@dataclass(frozen=True)
class Counts:
    """What a set has.

    Attributes:
        prompts: What was asked for.
        samples: What is there.
        failed: What has a reason in its place.
        rows: Of all samples.
        bytes: Of all files of samples.
        files: How many these are.
    """

    prompts: int = 0
    samples: int = 0
    failed: int = 0
    rows: int = 0
    bytes: int = 0
    files: int = 0


@dataclass(frozen=True)
class Manifest:
    """Attributes:
    counts: What the set has.
    shape: What all rows have in common; None in a set without samples.
    sha256: Of set.json, prompts.jsonl and samples.jsonl, by name.
    """

    counts: Counts
    shape: Shape | None
    sha256: Mapping[str, str]

    def to_json(self) -> bytes:
        """manifest.json."""
        shape = None if self.shape is None else asdict(self.shape)
        return _bytes(
            {"schema": SCHEMA, **asdict(self.counts), "shape": shape, "sha256": dict(self.sha256)}
        )


def read_about(place: Place) -> About | None:
    """set.json; None where there is none.

    Raises:
        FindingError: It is none of ours.
    """
    found = _read(place, ABOUT)
    if found is None:
        return None
    texts = all(isinstance(found.get(name), str) for name in ("target", "vllm"))
    objects = all(isinstance(found.get(name), dict) for name in ("sampling", "options"))
    if not texts or not objects or not isinstance(found.get("series"), (str, type(None))):
        raise _bad(ABOUT, "does not say of what the set is made")
    layers, layout, norm = found.get("layers"), found.get("layout"), found.get("norm")
    if not isinstance(layers, list) or not layers or not all(_is_count(one) for one in layers):
        raise _bad(ABOUT, "does not say of which layers the set is")
    if layout not in {"files", "shards"} or not isinstance(norm, bool):
        raise _bad(ABOUT, "does not say how the set is laid out")
    return About(
        target=found["target"],
        layers=tuple(layers),
        vllm=found["vllm"],
        series=found["series"],
        layout=layout,
        norm=norm,
        sampling=found["sampling"],
        options=found["options"],
    )


def read_manifest(place: Place) -> Manifest | None:
    """manifest.json; None where there is none.

    Raises:
        FindingError: It is none of ours.
    """
    found = _read(place, MANIFEST)
    if found is None:
        return None
    counts: dict[str, Any] = {name: found.get(name) for name in _COUNTS}
    if not all(_is_count(value) for value in counts.values()):
        raise _bad(MANIFEST, "lacks a count")
    if counts["prompts"] > MOST_SAMPLES:
        raise _bad(MANIFEST, f"tells of {counts['prompts']} prompts")
    sha256 = found.get("sha256")
    if not isinstance(sha256, dict) or sha256.keys() != {ABOUT, PROMPTS, SAMPLES}:
        raise _bad(MANIFEST, "lacks a checksum")
    if not all(re.fullmatch(r"[0-9a-f]{64}", str(value)) for value in sha256.values()):
        raise _bad(MANIFEST, "has a checksum that is none")
    return Manifest(Counts(**counts), _shape(found.get("shape")), sha256)


def _shape(found: Any) -> Shape | None:
    if found is None:
        return None
    if not isinstance(found, dict) or found.keys() != {"dtype", "layers", "hidden"}:
        raise _bad(MANIFEST, "has a shape that is none")
    right = _is_count(found["layers"]) and _is_count(found["hidden"])
    if not right or found["dtype"] not in NUMBERS or not found["layers"] * found["hidden"]:
        raise _bad(MANIFEST, "has a shape that is none")
    shape = Shape(**found)
    if shape.width > WIDEST_ROW:
        raise _bad(MANIFEST, f"tells of rows of {shape.width} bytes")
    return shape


def _read(place: Place, name: str) -> dict[str, Any] | None:
    try:
        stream, size = place.open(name)
    except FileNotFoundError:
        return None
    with stream:
        if size > _LARGEST:
            raise _bad(name, f"has {size} bytes")
        found = read_object(stream.read(_LARGEST + 1), name)
    if found.get("schema") != SCHEMA:
        raise _bad(name, f"is of the schema {found.get('schema')!r:.40}, not {SCHEMA}")
    return found


def sha256_of(place: Place, name: str) -> str:
    """The sha256 of a file of a set."""
    digest = hashlib.sha256()
    stream, _ = place.open(name)
    with stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=2).encode() + b"\n"


def _bad(name: str, why: str) -> FindingError:
    return FindingError(f"{name} {why}", code=name.partition(".")[0])
