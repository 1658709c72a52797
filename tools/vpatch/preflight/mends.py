"""Which mends of a series' later revisions a patched tree has, read off its source.

Two revisions of one series have one release in their name. What a revision reads of a drafter's
config is seen in the functions that it has, as is done here; nothing is imported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path

from vpatch.patches.series import Series

_READER = "vllm/transformers_utils/eagle3.py"


@dataclass(frozen=True)
class Mends:
    """What a tree has.

    Attributes:
        flags: All options of norms are read at the top of a config and in eagle_config; two that
            differ, and texts, are refused.
        sizes: A target_hidden_size that is null is hidden_size; one that is not the target's is
            refused at the config.
        names: Layers under the names of other methods are refused.
        files: fc is looked for in the files that the loader takes, and in a hub's.
        speculators: What stands in a layer's config counts, eagle_config beside it too; what
            differs is refused.
        tables: A d2t of zeros is dropped where there is none to be; one of whole ids is refused.
        method: An architecture with Eagle3 in its name says which method it is.
        parts: An eagle_config beside a layer's config and one in it are put together, and one that
            is no object is none.
        peagle: What stands in a layer's config of P-EAGLE counts, too.
        integers: Numbers of states and sizes that are no integers are refused at the config.
        rows: A d2t that is not as long as draft_vocab_size is refused before anything is loaded.
    """

    flags: bool = False
    sizes: bool = False
    names: bool = False
    files: bool = False
    speculators: bool = False
    tables: bool = False
    method: bool = False
    parts: bool = False
    peagle: bool = False
    integers: bool = False
    rows: bool = False

    @property
    def as_names(self) -> tuple[str, ...]:
        """Those that are there."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name))


NONE = Mends()
ALL = Mends(**{field.name: True for field in fields(Mends)})
"""What docs/defects.md asks for from row 33 on."""

_ALGOS = "vllm/transformers_utils/configs/speculators/algos.py"
_UTILS = "vllm/model_executor/models/utils.py"
_MARKS = {
    "flags": (_READER, re.compile(rb"def norms_before_residual\(")),
    "sizes": (_READER, re.compile(rb"def get_target_hidden_size\(")),
    "names": (_READER, re.compile(rb"OTHER_LAYER_IDS = ")),
    "files": (_READER, re.compile(rb"def _get_headers\(")),
    "speculators": (_ALGOS, re.compile(rb"def carry_over\(")),
    "tables": (_UTILS, re.compile(rb"def find_draft_ids_problem\(")),
    "method": ("vllm/config/speculative.py", re.compile(rb'.*"Eagle3" in \w')),
    "parts": (
        _ALGOS,
        re.compile(rb" +elif isinstance\(outer, dict\) and isinstance\(inner, dict\)"),
    ),
    "peagle": (_ALGOS, re.compile(rb' +for key in \("norm_before_residual", "norm_before_fc"\):')),
    "integers": (_READER, re.compile(rb"def _get_int\(")),
    "rows": (_UTILS, re.compile(rb" +if offsets\.shape != \(model\.config\.draft_vocab_size,\)")),
}


def of_tree(read: Callable[[str], bytes | None]) -> Mends:
    """The mends of a tree.

    Args:
        read: A file's bytes by its path from the folder above ``vllm``; None: no such file.
    """
    return _of_lines(lambda path: (read(path) or b"").splitlines())


def of_series(folder: Path) -> Mends:
    """The mends of a release with this series: what its patches leave added.

    Args:
        folder: ``patches/TAG``.

    Raises:
        FindingsError: It is no series.
        HostError: A file cannot be read.
    """
    series = Series.read(folder)

    def added(path: str) -> Collection[bytes]:
        lines: Counter[bytes] = Counter()
        for patch in series.patches:
            if path.encode() not in patch.raw:
                continue
            for change in patch.files:
                if change.path == path:
                    for sign, line in (each for hunk in change.hunks for each in hunk.body):
                        lines[line] += {"+": 1, "-": -1}.get(sign, 0)
        return [line for line, count in lines.items() if count > 0]

    return _of_lines(added)


def _of_lines(lines_of: Callable[[str], Collection[bytes]]) -> Mends:
    lines = {path: lines_of(path) for path in {path for path, _ in _MARKS.values()}}
    return Mends(
        **{
            name: any(mark.match(line) for line in lines[path])
            for name, (path, mark) in _MARKS.items()
        }
    )
