"""vpatch: a series of patches on pinned vLLM releases, and the tool that keeps it alive."""

from importlib.metadata import version

__version__ = version("vpatch")
