"""Releases x topics: what is needed, what upstream has, what is patched, proven, broken."""
