"""Runs under the engine's Python, which has vLLM and no vpatch; see smoke/library.py."""
