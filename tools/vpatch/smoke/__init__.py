"""Smoke: vLLM's own engine drafts and verifies on a tiny Kimi-K2.5, on a CPU and on a GPU."""
