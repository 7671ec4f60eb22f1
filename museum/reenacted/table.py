"""The silent bugs that are re-enacted."""

from museum.reenacted.bugs_in_norms import NORMS
from museum.reenacted.bugs_in_ranks import RANKS
from museum.reenacted.bugs_in_runs import RUNS
from museum.reenacted.bugs_in_sums import SUMS
from museum.reenacted.row import Reenacted

REENACTED: tuple[Reenacted, ...] = (*SUMS, *RANKS, *NORMS, *RUNS)
