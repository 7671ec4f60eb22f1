"""The oracle as a framework, with one strategy, whose row is in `oracle.py`."""

from samestep.common.catalog import FrameworkInfo

_KEEP_MEMORY = ":".join(
    f"glibc.malloc.{name}" for name in ("mmap_threshold=33554432", "trim_threshold=1073741824", "hugetlb=1")
)
"""A step allocates and frees arrays of a few MiB. By default glibc returns each to the kernel, which fills new pages with zeros
for the next array: that takes a third of a step's time."""

FRAMEWORK = FrameworkInfo(
    module="numpy",
    title="the NumPy oracle",
    extra="",
    reference_row="oracle",
    environment={"GLIBC_TUNABLES": _KEEP_MEMORY},
    preload=("samestep.common.reference.program",),
    strategies=("oracle",),
)
