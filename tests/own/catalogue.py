"""Models as they are in the wild, each with the verdict that is expected of every row that keeps it whole."""

import dataclasses
from pathlib import Path

TORCH_ROWS = ("ddp", "zero1+accumulation_steps=2", "fsdp")
MIXED = "all of it the mixing of a batch's examples in "


@dataclasses.dataclass(frozen=True)
class Kind:
    """A model of the user's.

    Attributes:
        model: Its name in the file.
        data: That of its data.
        cause: What the verdict names, if the model is another function on shards; "" if it is the same step.
        file: Where it is, in this folder.
        data_file: Where its data are.
    """

    model: str
    data: str
    cause: str = ""
    file: str = "wild_losses.py"
    data_file: str = "wild_losses.py"

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
    *(Kind(name, "tokens", file="optimizer_zoo.py", data_file="torch_zoo.py") for name in ("RATES", "SCHEDULED")),
)
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
