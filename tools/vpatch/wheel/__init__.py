"""Upstream's wheel and a patched tree to a patched wheel."""
