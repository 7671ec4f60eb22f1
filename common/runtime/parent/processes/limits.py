"""What the system allows a run, looked at before it starts."""

import resource

from samestep.common.errors import Unavailable

OPEN_FILES, OPEN_FILES_PER_PROCESS = 64, 16
"""The most of a process: a framework's import, and its connections to each of its peers. Twice what runs were seen to have."""


def allow_open_files(processes: int) -> None:
    """Lets this process, and those that it starts, open as many files as a run needs.

    Args:
        processes: The processes of the run.

    Raises:
        Unavailable: The system allows fewer.
    """
    needed = OPEN_FILES + OPEN_FILES_PER_PROCESS * processes
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise Unavailable(
            f"{processes} process{'es' if processes > 1 else ''} may need {needed} open files each, and this system allows "
            f"{hard}; allow more with: ulimit -n {needed}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
