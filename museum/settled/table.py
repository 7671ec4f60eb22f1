"""Questions of other projects, "rounding or a bug?", each with the commands that answer it."""

import dataclasses

ONE = "python -m museum.settled"
TWO = "torchrun --nproc-per-node 2 -m museum.settled"


@dataclasses.dataclass(frozen=True)
class Answer:
    """A command, and what it says.

    Attributes:
        runs: What the two runs are, in one sentence.
        a: The command of the one.
        b: That of the other.
        said: How the verdict begins.
        exit_code: That of the command.
        option: A further word of the command.
    """

    runs: str
    a: str
    b: str
    said: str
    exit_code: int
    option: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The words behind `samestep`."""
        return ("diff", self.a, self.b, *self.option.split())

    @property
    def script(self) -> str:
        """The module of both in this folder."""
        return self.a.partition("museum.settled.")[2].split()[0]

    @property
    def command(self) -> str:
        """The line to type."""
        return " ".join(filter(None, (f'samestep diff "{self.a}" "{self.b}"', self.option)))


@dataclasses.dataclass(frozen=True)
class Question:
    """A question, and what answers it.

    Attributes:
        thread: Where it is asked, as owner/repository#number.
        asked: What is asked, in one sentence.
        answers: The commands.
    """

    thread: str
    asked: str
    answers: tuple[Answer, ...]


QUESTIONS = (
    Question(
        "tensorflow/tensorflow#118713",
        "Under XLA, the gradient of `tf.where` is so far off that of eager execution that it does not look like rounding: is it?",
        (
            Answer(
                "The function of the thread, eager and compiled; the numbers are weights.",
                f"{ONE}.where_mask",
                f"{ONE}.where_mask xla",
                "cannot tell",
                3,
            ),
            Answer(
                "The same two in float64.",
                f"{ONE}.where_mask",
                f"{ONE}.where_mask xla",
                "same: 2 steps",
                0,
                "--float64",
            ),
            Answer(
                "The same two in float32, where 0.001 is added to the number of each row that is the mean of its row.",
                f"{ONE}.where_mask off_the_tie",
                f"{ONE}.where_mask off_the_tie xla",
                "same: 2 steps",
                0,
            ),
        ),
    ),
    Question(
        "Lightning-AI/pytorch-lightning#6789",
        "Why does DDP on two GPUs with half the batch each not give the results of one GPU?",
        (
            Answer(
                "In PyTorch, a linear layer whose loss is the sum of what it returns: one process with 8 examples a step, and "
                "two with 4 each.",
                f"{ONE}.summed_loss",
                f"{TWO}.summed_loss",
                "not the same: step 0, loss: the loss and every gradient of B are 0.500 times A's",
                4,
            ),
            Answer(
                "The same with the mean for the sum.",
                f"{ONE}.summed_loss mean",
                f"{TWO}.summed_loss mean",
                "same: 8 steps",
                0,
            ),
        ),
    ),
    Question(
        "deepspeedai/DeepSpeed#966",
        "Why do the stages of ZeRO give different losses?",
        (
            Answer(
                "Stages 0 and 1 on two processes, with Adam in float32 and without clipping.",
                f"{TWO}.zero_stages 0",
                f"{TWO}.zero_stages 1",
                "same: 10 steps",
                0,
            ),
        ),
    ),
    Question(
        "deepspeedai/DeepSpeed#1488",
        "Why do the stages of ZeRO give different losses when gradients are accumulated?",
        (
            Answer(
                "Stages 0 and 2 on two processes, with four micro-batches a step.",
                f"{TWO}.zero_stages 0 accumulate",
                f"{TWO}.zero_stages 2 accumulate",
                "same: 10 steps",
                0,
            ),
        ),
    ),
    Question(
        "pytorch/pytorch#187279",
        "After 20 steps of AdamW at a large learning rate, a ResNet-18's loss with CUDA and NCCL is 41 % off that with CPUs and "
        "Gloo: is that a bug?",
        (
            Answer(
                "Two processes with Gloo on a CPU, whose convolutions are oneDNN's or PyTorch's own: no GPU has part in it.",
                f"{TWO}.resnet 18",
                f"{TWO}.resnet 18 native",
                "same, rounding amplified ",
                0,
            ),
        ),
    ),
    Question(
        "pytorch/pytorch#187276",
        "A ResNet-50 trained in the same way ends with the same loss, but with another gradient norm and other weights: why?",
        (
            Answer(
                "Two processes with Gloo on a CPU, whose convolutions are oneDNN's or PyTorch's own: no GPU has part in it. In "
                "float64 both would be PyTorch's own, so that pass says nothing here.",
                f"{TWO}.resnet 50",
                f"{TWO}.resnet 50 native",
                "cannot tell",
                3,
            ),
        ),
    ),
    Question(
        "tensorflow/tensorflow#120988",
        "With SGD and accumulated gradients, why does a step that XLA compiled have another loss than the same step uncompiled?",
        (
            Answer(
                "A small residual network with four micro-batches a step, compiled or not, on one CPU: it has no second worker.",
                f"{ONE}.compiled sgd accumulate",
                f"{ONE}.compiled sgd accumulate xla",
                "cannot tell",
                3,
            ),
            Answer(
                "The same two in float64.",
                f"{ONE}.compiled sgd accumulate",
                f"{ONE}.compiled sgd accumulate xla",
                "same: 10 steps",
                0,
                "--float64",
            ),
        ),
    ),
)
"""In the order of docs/settled.md."""
