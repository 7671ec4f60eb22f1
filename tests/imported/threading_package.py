"""A package that starts a thread when it is imported, as some do: no process may fork behind it."""

import os
import threading

IMPORTED_IN = os.getpid()
threading.Thread(target=threading.Event().wait, daemon=True).start()


def where() -> str:
    return f"imported {'here' if os.getpid() == IMPORTED_IN else 'before'}"
