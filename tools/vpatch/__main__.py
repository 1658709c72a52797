"""``python -m vpatch``, and where the `vpatch` command starts."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command; an interrupt while it is still being imported is no traceback either."""
    try:
        from vpatch import cli  # noqa: PLC0415 - the import is a part of what can be interrupted

        cli.main()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
