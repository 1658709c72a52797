"""Ends a process when the one that started it is gone: nobody would end it any more.

A parent that is killed cannot end its children, and an engine that nobody waits for keeps its GPU.
"""

from __future__ import annotations

import os
import signal
import threading
import time

_LOOKS_EVERY_S = 1.0
_GRACE_S = 45.0


def end_with_parent() -> None:
    """Watches from a thread; at the parent's end asks this process to end, then makes it."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOKS_EVERY_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)  # a server ends its engine first
    os.kill(os.getpid(), signal.SIGKILL)
