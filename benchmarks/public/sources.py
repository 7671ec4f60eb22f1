"""The description of a public script, and the commits of the repositories that were tried."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class PublicScript:
    """A public script, and how it is started.

    Attributes:
        repository: The owner and name of the repository.
        folder: The folder in which the script is started, which is copied.
        file: The path of the script, relative to the folder.
        arguments: The arguments of the script.
        two: The variables and arguments with which two processes take the same steps; "" if they cannot.
        data: Names of `public_data.MAKERS`.
        before: Commands that prepare the data.
        environment: Environment variables for the script.
        stop_after: The number of steps after which it is stopped; 0 runs it to its end.
    """

    repository: str
    folder: str
    file: str
    arguments: str = ""
    two: str = ""
    data: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stop_after: int = 6

    @property
    def framework(self) -> str:
        """The framework whose recorder follows the script: "torch" or "tf"."""
        is_keras = self.repository.startswith("keras") and self.environment.get("KERAS_BACKEND") != "torch"
        return "tf" if is_keras else "torch"

    @property
    def name(self) -> str:
        """The name in the table: the path, and the arguments or variables that distinguish it from other trials of the script."""
        place = f"{self.repository.split('/')[1]}/{self.folder}/{self.file}".replace("/./", "/")
        special = [word for word in self.arguments.split() if word in _SPECIAL]
        backend = [value for name, value in self.environment.items() if name == "KERAS_BACKEND"]
        return " ".join([place, *special, *backend])


_SPECIAL = {"Transformer", "--use-optimizer", "--dtype=bfloat16"}
COMMITS = {
    "pytorch/examples": "77f55b9",
    "jcjohnson/pytorch-examples": "0003fcd",
    "yunjey/pytorch-tutorial": "0500d3d",
    "graykode/nlp-tutorial": "d05e31e",
    "karpathy/nanoGPT": "3adf61e1",
    "karpathy/makemore": "988aa59",
    "karpathy/minGPT": "37baab7",
    "karpathy/ng-video-lecture": "5220142",
    "MorvanZhou/PyTorch-Tutorial": "dbe154a",
    "huggingface/accelerate": "16cb6eb8",
    "Lightning-AI/pytorch-lightning": "7f0c3436cd",
    "lucidrains/x-transformers": "9252ed7",
    "eriklindernoren/PyTorch-GAN": "36d3c77",
    "vwxyzjn/cleanrl": "fe8d8a03",
    "keras-team/keras": "3422977a5e",
    "tatsu-lab/stanford_alpaca": "761dc5b",
    "pyg-team/pytorch_geometric": "5c6461b23",
    "gpleiss/efficient_densenet_pytorch": "d2d0629",
}
EARLIER = {
    "keras-team/keras": ("e5dad39059^ -- examples/keras_io",),
    "pytorch/examples": ("e8a38cc^ -- vision_transformer",),
}
"""Files that a repository has since moved elsewhere, and that are taken from an earlier commit."""
