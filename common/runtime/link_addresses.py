"""The addresses on the links between processes, which a parent and its workers share; `worker/links.py` makes the links."""

DEVICE = "cable"
"""The network device of each process."""
MAX_LINKED = 250
"""The most processes with links. A message carries at most 253 descriptors (SCM_MAX_FD)."""


def address(place: int) -> str:
    """Returns the address of the process at a place of the topology."""
    return f"10.77.{(place + 1) // 256}.{(place + 1) % 256}"
