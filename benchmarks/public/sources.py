"""What is said of a public script, and the commits of the repositories that were tried."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class PublicScript:
    """A public script, and how it is started.

    Attributes:
        repository: Owner and name.
        folder: The folder that it is started in, which is copied.
        file: The script, below the folder.
        arguments: What it is started with.
        two: The variables and arguments with which two processes take the same steps; "" if they cannot.
        data: Names of `public_data.MAKERS`.
        before: Commands that prepare the data.
        environment: Variables for it.
        stop_after: After how many steps it is stopped; 0 runs it to its end.
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
        """Whose recorder follows it: "torch" or "tf"."""
        is_keras = self.repository.startswith("keras") and self.environment.get("KERAS_BACKEND") != "torch"
        return "tf" if is_keras else "torch"

    @property
    def name(self) -> str:
        """What the table calls it: its place, and the arguments or variables that tell it from another trial of it."""
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
"""What a repository has moved elsewhere since, and is taken from an earlier commit."""
