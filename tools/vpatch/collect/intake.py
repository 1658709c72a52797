"""A file that the engine has finished: is it the sample that it has to be?"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from vpatch.collect.content import Content, Wanted, read_content
from vpatch.collect.file import Shape
from vpatch.collect.layout import file_name
from vpatch.collect.lines import Failed, Sample
from vpatch.collect.manifest import About
from vpatch.collect.place import Folder
from vpatch.collect.table import Prompts
from vpatch.errors import FindingError
from vpatch.files import disk_errors


@dataclass(frozen=True)
class Finished:
    """A file of the engine's, and what the engine answered.

    Attributes:
        number, id: Of the prompt.
        path: The file, whole.
        prompt, generated: How many tokens.
        tokens: `prompts.digest_of` of all but the last one.
        finish: Why it ended.
    """

    number: int
    id: str | None
    path: Path
    prompt: int
    generated: int
    tokens: str
    finish: str


def check_in(
    file: Finished, prompts: Prompts, shape: Shape | None, about: About
) -> tuple[Sample | Failed, Shape | None]:
    """Reads a file once, and has it on the disk when it is good.

    Args:
        file: The file.
        prompts: The set's prompts.
        shape: Of the set's rows; None where this is the first of them.
        about: What the set is.

    Returns:
        The sample, or why it is none; the shape of the set's rows.
    """
    number, name = file.number, file_name(file.number)
    if not prompts.is_called(number, file.id):
        return Failed(number, file.id, "the engine calls its prompt otherwise"), shape
    length = prompts.length(number)
    if length not in {None, file.prompt}:
        why = f"the engine took {file.prompt} tokens of a prompt of {length}"
        return Failed(number, file.id, why), shape
    sample = Sample(
        number, file.id, name, file.prompt, file.generated, file.tokens, file.finish, 0, ""
    )
    try:
        content = _content(file.path, Wanted(sample, prompts.digest(number)), shape, about)
    except FindingError as error:
        return Failed(number, file.id, error.message), shape
    if content.findings:
        first = content.findings[0]
        return Failed(number, file.id, f"{first.file}: {first.message}"), shape
    return replace(sample, size=content.size, sha256=content.sha256), content.shape


def _content(path: Path, wanted: Wanted, shape: Shape | None, about: About) -> Content:
    stream, size = Folder(path.parent).open(path.name)
    with stream:
        content = read_content(
            stream,
            size,
            "the engine's file",
            [wanted],
            shape=shape,
            shard=False,
            norm=about.norm,
            layers=about.layers,
        )
        with disk_errors(path):
            os.fsync(stream.fileno())
    return content
