"""A silent bug that is re-enacted: a small script that is right, and the same one wrong. No package, only its arithmetic."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Reenacted:
    """A bug that raised no error, re-enacted.

    Attributes:
        name: The word by which the script goes wrong.
        script: The module in this folder.
        thread: Where it happened, as owner/repository#number.
        mechanism: What went wrong, in one sentence.
        expected: The name of the mistake that `samestep diff` gives; None if arithmetic cannot tell.
        where: The first difference that it shows.
        words: What the right script is told as well.
        world: The number of processes.
        healthy_world: The number of processes of the right script, if another.
        also: Other threads with the same arithmetic.
        is_slow: Whether its place is certain after reruns only, so `make test` leaves it to the slow tests.
    """

    name: str
    script: str
    thread: str
    mechanism: str
    expected: str | None
    where: str
    words: str = ""
    world: int = 1
    healthy_world: int = 0
    also: tuple[str, ...] = ()
    is_slow: bool = False

    def command(self, is_wrong: bool) -> tuple[str, ...]:
        """Returns the words of a command.

        Args:
            is_wrong: Whether of the script that goes wrong.
        """
        world = self.world if is_wrong else self.healthy_world or self.world
        start = ("torchrun", "--nproc-per-node", str(world)) if world > 1 else ("python",)
        return (
            *start,
            "-m",
            f"museum.reenacted.{self.script}",
            *self.words.split(),
            *([self.name] if is_wrong else []),
        )
