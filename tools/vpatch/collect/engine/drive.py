"""Runs prompts through a vLLM that collects hidden states: ``-m ... JOB.json``.

What becomes of each prompt is a line of the job's events file; the states themselves are files that
the engine writes. Neither waits for who reads them, but new prompts do, while there are too many
files that nobody took away.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from vpatch.smoke.engine.parent import end_with_parent
from vpatch.smoke.engine.prepare import error_of, prepare

Job = dict[str, Any]
_LOOKS_EVERY_S = 0.25
_FLUSH_S = 3600.0


def digest_of(tokens: list[int]) -> str:
    """The sha256 of token ids, as the file of a sample has them: int64, little endian."""
    ids = array("q", tokens)
    if sys.byteorder == "big":
        ids.byteswap()
    return hashlib.sha256(ids.tobytes()).hexdigest()


class Events:
    """The lines that tell what happened, each whole when it is there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def tell(self, **what: Any) -> None:
        """One line."""
        self._stream.write(json.dumps(what) + "\n")
        self._stream.flush()


class Backlog:
    """Bytes of files that nobody has taken away yet, looked at now and then."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most
        self._until = 0.0
        self._full = False

    def full(self) -> bool:
        """Whether there are too many for another prompt."""
        now = time.monotonic()
        if now >= self._until:
            self._until = now + _LOOKS_EVERY_S
            self._full = self._bytes() > self._most
        return self._full

    def _bytes(self) -> int:
        total = 0
        with os.scandir(self._folder) as listing:
            for one in listing:
                with contextlib.suppress(FileNotFoundError):  # taken away just now
                    total += one.stat(follow_symlinks=False).st_size
        return total


def lines_of(path: Path, todo: list[list[int]]) -> Iterator[tuple[int, Job]]:
    """The prompts of these numbers (first and last of each run), which were checked before."""
    runs = iter(todo)
    first, last = next(runs, (0, -1))
    with path.open("rb") as stream:
        for number, raw in enumerate(stream):
            if number > last:
                first, last = next(runs, (0, -1))
                if last < 0:
                    return
            if number >= first:
                yield number, json.loads(raw)


class Driver:
    """Feeds an engine and tells what comes out.

    Args:
        llm: The engine.
        job: What is to be done.
        events: Where it is told.
    """

    def __init__(self, llm: Any, job: Job, events: Events) -> None:
        self._llm = llm
        self._engine = llm.llm_engine
        self._job = job
        self._events = events
        self._backlog = Backlog(Path(job["staging"]), job["backlog"])
        self._running: dict[int, Any] = {}

    def run(self) -> None:
        """All prompts."""
        waiting = lines_of(Path(self._job["prompts"]), self._job["todo"])
        more = True
        while more or self._running:
            while more and len(self._running) < self._job["in_flight"] and not self._backlog.full():
                one = next(waiting, None)
                if one is None:
                    more = False
                else:
                    self._add(*one)
            if not self._running:
                time.sleep(_LOOKS_EVERY_S if more else 0)
                continue
            for output in self._engine.step():
                if output.finished:
                    self._ended(output)

    def _add(self, number: int, line: Job) -> None:
        try:
            prompt = self._prompt(line)
            sampling = dict(self._job["sampling"])
            sampling["max_tokens"] = line.get("max_tokens", sampling["max_tokens"])
            self._engine.add_request(str(number), prompt, self._parameters(number, sampling))
        except (ValueError, TypeError) as error:
            self._fails(number, line.get("id"), f"{type(error).__name__}: {error}")
        else:
            self._running[number] = line.get("id")

    def _prompt(self, line: Job) -> Job:
        if "messages" in line:
            messages = line["messages"]
            tokens = self._llm.get_tokenizer().apply_chat_template(
                messages,
                tokenize=True,
                return_dict=False,
                # What ends in an answer is taken as it is.
                add_generation_prompt=messages[-1]["role"] != "assistant",
            )
            return {"prompt_token_ids": list(tokens)}
        given = line.get("prompt_token_ids", line.get("prompt"))
        return {"prompt": given} if isinstance(given, str) else {"prompt_token_ids": given}

    def _parameters(self, number: int, sampling: Job) -> Any:
        from vllm import SamplingParams

        asked = {"collect_hidden_states": True, "collect_label": str(number)}
        return SamplingParams(**sampling, detokenize=False, extra_args=asked)

    def _ended(self, output: Any) -> None:
        number = int(output.request_id.split("-")[0])
        one = self._running.pop(number)
        answer = output.outputs[0]
        file = (output.kv_transfer_params or {}).get("hidden_states_file")
        if answer.finish_reason in {"error", "abort"} or file is None:
            why = answer.stop_reason or "the engine named no file of hidden states"
            self._fails(number, one, f"ended with {answer.finish_reason}: {why}")
            return
        prompt, generated = list(output.prompt_token_ids), list(answer.token_ids)
        self._events.tell(
            sample=number,
            id=_text(one),
            file=file,
            prompt=len(prompt),
            generated=len(generated),
            tokens=digest_of((prompt + generated)[:-1]),
            finish=str(answer.finish_reason),
        )

    def _fails(self, number: int, one: Any, why: str) -> None:
        self._events.tell(sample=number, id=_text(one), failed=why[:1000])


def _text(one: Any) -> str | None:
    return None if one is None else str(one)


def main(path: Path) -> int:
    """Returns 0 when every prompt has its line."""
    end_with_parent()
    job: Job = json.loads(path.read_text())
    with Path(job["events"]).open("a", encoding="utf-8") as stream:
        events = Events(stream)
        from vllm import LLM

        try:
            prepare(job)
            began = time.monotonic()
            llm = LLM(**job["options"], hidden_states_collection=job["collection"])
            events.tell(ready=time.monotonic() - began)
            Driver(llm, job, events).run()
            llm.collective_rpc("flush_hidden_states", timeout=_FLUSH_S)
            events.tell(done=True)
        except BaseException as error:  # the error is what this run has to tell
            events.tell(error=error_of(error))
            raise
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
