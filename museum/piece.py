"""What a piece of the museum is: a script that somebody could have written, and two sets of packages or arguments for it."""

import dataclasses
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STORE = ROOT / ".museum"
SCRIPTS = Path(__file__).parent / "scripts"


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two runs of a piece.

    Attributes:
        packages: The packages that this side alone has, as pip spells them; or those of both, if the scripts differ.
        arguments: The arguments of the script.
    """

    packages: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Piece:
    """A mistake that was released, and how it is shown.

    Attributes:
        name: Its name here.
        thread: Where it was reported, as owner/repository#number.
        about: What is wrong, in a sentence.
        noticed: What anybody saw at the time, in a sentence.
        script: The script in `scripts/`.
        right: The run that is right.
        wrong: The run that is wrong.
        mistake: What `samestep diff` should call it; "" where its arithmetic has no name.
        where: The first difference, as the verdict spells it: "step 0, gradient". A layer or a rank may follow.
        shared: The packages that both sides have.
        processes: How many processes torchrun starts; 0 starts the script without torchrun.
    """

    name: str
    thread: str
    about: str
    noticed: str
    script: str
    right: Side
    wrong: Side
    mistake: str
    where: str
    shared: tuple[str, ...] = ()
    processes: int = 0

    @property
    def packages(self) -> tuple[str, ...]:
        """Everything that has to be installed."""
        return tuple(dict.fromkeys((*self.right.packages, *self.wrong.packages, *self.shared)))

    def command(self, side: Side) -> list[str]:
        """Returns the command of a side, to be started in the repository.

        Args:
            side: Which.
        """
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(self.processes)] if self.processes else []
        script = (SCRIPTS / f"{self.script}.py").relative_to(ROOT)
        packages = ",".join((*side.packages, *self.shared))
        return [sys.executable, *launcher, "museum/with_packages.py", packages, str(script), *side.arguments]

    def spell(self, side: Side) -> str:
        """Returns what makes a side, in words.

        Args:
            side: Which.
        """
        return " ".join((*side.packages, *side.arguments)) or self.script
