"""The processes of a fork server, from the launcher's side: the server, its keeper, and its network maker."""

import signal
import subprocess
from collections.abc import Mapping

from samestep.common.errors import WorkerFailed
from samestep.common.runtime.parent.processes.following import AwakeClock
from samestep.common.runtime.processes import STOPPED, Process, descendants, kill_all, look

_WORDS = {"server": "", "keeper": "keeper of the ", "maker": "network maker of the "}
_END_SECONDS = 15.0
"""How long the keeper may take to end everything; it gives up sooner than that."""


class ServerProcesses:
    """The processes of one fork server: notices when one of them is stopped, and ends all of them."""

    def __init__(self, framework: str, keeper: "subprocess.Popen[bytes]") -> None:
        """Starts with the keeper alone.

        Args:
            framework: The framework of the server.
            keeper: The keeper, which this process started.
        """
        self._framework, self._keeper = framework, keeper
        self._clock = AwakeClock()
        self._stopped: dict[str, float] = {}
        self._members: dict[str, Process] = {}
        self.learn({"keeper": keeper.pid})

    def learn(self, pids: Mapping[str, int]) -> None:
        """Remembers the process ids of members, by the names that the keeper's message uses."""
        self._members |= {member: seen for member, pid in pids.items() if (seen := look(pid)) is not None}

    def pid(self, member: str) -> int:
        """Returns the process id of a member; 0 if it is not known."""
        return self._members[member].pid if member in self._members else 0

    def name(self, member: str) -> str:
        """Returns the name of a member in messages."""
        return f"the {_WORDS[member]}{self._framework} fork server"

    def stopped(self) -> list[str]:
        """Returns the members that are stopped now."""
        seen = {member: look(known.pid) for member, known in self._members.items()}
        return [
            member
            for member, now in seen.items()
            if now is not None and now.state in STOPPED and now.started == self._members[member].started
        ]

    def check(self, timeout_seconds: float) -> None:
        """Looks for stopped members. It has to be called often.

        Args:
            timeout_seconds: How long a member may be stopped.

        Raises:
            WorkerFailed: A member has been stopped for longer.
        """
        now = self._clock.now()
        self._stopped = {member: self._stopped.get(member, now) for member in self.stopped()}
        for member, since in self._stopped.items():
            if now - since > timeout_seconds:
                raise WorkerFailed(
                    f"{self.name(member)} made no progress for {timeout_seconds:g} s; it is stopped, as by SIGSTOP"
                )

    def end(self) -> list[Process]:
        """Ends all members and everything that they started, once the launcher's pipe to them is closed; returns what is left.

        The keeper learns from the kernel when nothing is left, and then exits with 0. If it exits otherwise, the processes that
        were seen before are killed.
        """
        before = self._everyone()
        try:
            self._keeper.send_signal(signal.SIGCONT)
            self._keeper.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            before += self._everyone()
        finally:
            self._keeper.kill()
            self._keeper.wait()
        if self._keeper.returncode == 0:
            return []
        return kill_all(lambda: [process for process in before if process.is_alive])

    def _everyone(self) -> list[Process]:
        """Returns the members that still run, and all their descendants."""
        return descendants(member.pid for member in self._members.values() if member.is_alive)
