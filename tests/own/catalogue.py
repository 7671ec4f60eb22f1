"""Models as they are in the wild, each with the verdict that is expected of every row that keeps it whole."""

import dataclasses
from pathlib import Path

TORCH_ROWS = ("ddp", "zero1+accumulation_steps=2", "fsdp")
MIXED = "the mixing of a batch's examples in "


@dataclasses.dataclass(frozen=True)
class Kind:
    """A model of the user's.

    Attributes:
        model: Its name in the file.
        data: That of its data.
        cause: What the verdict names, if the model is another function on shards; "" if it is the same step.
        file: Where it is, in this folder.
        data_file: Where its data are.
        is_reached: Whether each of its parameters gets a gradient within a few steps; torch keeps nothing of the others.
        again: The cause where a step takes several forward passes, if there is none otherwise.
        whole: Words with which rows that keep parameters in parts refuse it.
    """

    model: str
    data: str
    cause: str = ""
    file: str = "wild_losses.py"
    data_file: str = "wild_losses.py"
    is_reached: bool = True
    again: str = ""
    whole: str = ""

    def asked(self) -> dict[str, str]:
        folder = Path(__file__).parent
        return {"model": f"{folder / self.file}:{self.model}", "data": f"{folder / self.data_file}:{self.data}"}


TORCH = (
    Kind("HEADS", "classes"),
    Kind("DATACLASS", "classes"),
    Kind("EXPERTS", "classes", f"{MIXED}its loss"),
    Kind("RETURNED", "labelled"),
    Kind("RETURNED_MEAN_OF_SHARDS", "padded_and_labelled", f"{MIXED}its loss"),
    Kind("RETURNED_COUNTED", "padded_and_labelled"),
    Kind("PADDED", "padded"),
    Kind("CLASSES_FIRST", "maps"),
    Kind("MEAN", "classes"),
    Kind("SUM", "classes"),
    Kind("WEIGHTED", "classes"),
    Kind("WEIGHTED_MEAN", "classes", f"{MIXED}its loss"),
    Kind("CONTRASTIVE", "classes", f"{MIXED}its loss"),
    Kind("CTC", "sounds"),
    *(
        Kind(name, "tokens", file="optimizer_zoo.py", data_file="torch_zoo.py")
        for name in ("RATES", "SCHEDULED", "AVERAGED")
    ),
    *(Kind(name, "tokens", file="torch_zoo.py", data_file="torch_zoo.py") for name in ("TIED_GPT", "LSTM")),
    *(Kind(name, "tokens", file="wild_models.py", data_file="torch_zoo.py") for name in ("LLAMA", "MIXTRAL", "MAMBA")),
    Kind("EXPERTS", "tokens", file="odd_zoo.py", data_file="torch_zoo.py", is_reached=False),
    Kind("MASKED", "sentences", file="torch_zoo.py", data_file="torch_zoo.py"),
    Kind("TRANSLATOR", "sentences", file="wild_models.py", data_file="torch_zoo.py"),
    *(
        Kind(name, "points", file="odd_zoo.py", data_file="torch_zoo.py")
        for name in ("UNUSED", "UNET", "CASTING", "QUERIES")
    ),
    Kind(
        "SCALAR",
        "points",
        file="odd_zoo.py",
        data_file="torch_zoo.py",
        whole="scale of odd_zoo:SCALAR is a single number",
    ),
    *(Kind(name, "rows", file="frozen.py", data_file="frozen.py") for name in ("LORA", "BACKBONE")),
    Kind("PATCHES", "images", file="frozen.py", data_file="frozen.py"),
    *(
        Kind(name, "images", file="wild_models.py", data_file="torch_zoo.py")
        for name in ("SPECTRAL", "COMPLEX", "CONVNEXT")
    ),
    Kind("EFFICIENT", "images", "the local statistics of 3 BatchNorm layers", "wild_models.py", "torch_zoo.py"),
    Kind("RESNET", "images", "the local statistics of 5 BatchNorm layers", "torch_zoo.py", "torch_zoo.py"),
    Kind("SEGMENTER", "maps", file="wild_models.py"),
    Kind("PARAMETRIZED", "points", file="wild_models.py", data_file="torch_zoo.py"),
    Kind(
        "LIMITED", "points", file="wild_models.py", data_file="torch_zoo.py", again="the moves of 1 running buffer"
    ),  # its power iteration goes on in each forward pass
    Kind("CENTRED", "points", "the moves of 1 running buffer", "wild_models.py", "torch_zoo.py"),
    Kind("NOISY", "points", "the random numbers of 1 layer", "wild_models.py", "torch_zoo.py"),
    Kind("MIXING", "points", MIXED, "wild_models.py", "torch_zoo.py"),
)
TEACHER = Kind(
    "TEACHER",
    "points",
    file="odd_zoo.py",
    data_file="torch_zoo.py",
    whole="writes into teacher.weight; hold it in a buffer",
)
"""Its forward pass writes parameters, once for each micro-batch."""
GATHERED = Kind("GATHERED", "classes")
"""Its loss is of the examples of all devices; with several passes a step it would be of those of each pass."""
KERAS = tuple(
    Kind(model, data, file="wild_keras.py")
    for model, data in (
        ("HEADS", "classes"),
        ("MEAN", "classes"),
        ("WEIGHTED", "classes"),
        ("RETURNED", "labelled"),
        ("PADDED", "padded"),
        ("CLASSES_FIRST", "padded"),
    )
)
