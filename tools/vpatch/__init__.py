"""vpatch: a series of patches on pinned vLLM releases, and the tool that keeps it alive."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    # Reading a distribution's metadata takes longer than most of what `vpatch apply` does.
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        return version("vpatch")
    raise AttributeError(name)
