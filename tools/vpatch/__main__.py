"""``python -m vpatch``."""

from vpatch.cli import main

main()
