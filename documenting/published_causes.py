"""Writes why published steps took longer than predicted: `python -m documenting.published_causes`.

It writes a sentence for each figure that is far off, as far as the publisher's tables explain it; `samestep predict --validate`
prints the sentence. A difference between two rows of a table is given in numbers. If no other row explains a figure, the sentence
is what the publishers say about their runs, which is not predicted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import tomli_w

from samestep.common.errors import percent
from samestep.common.seconds.published_rows import (
    CAUSES,
    FAR,
    PublishedStep,
    llm_foundry,
    llm_foundry_a100,
    megatron_a100,
    published_steps,
    torchtitan,
)
from samestep.common.seconds.validation import Compared
from samestep.experiments.cli.ending import run_command

_HEADING = "# Table -> figure -> why it is far off; `python -m documenting.published_causes` writes them.\n\n"
_FEW_TOKENS, _LONG, _SMALL = 4096, 32768, 1024


def main(arguments: Sequence[str]) -> int:
    """Writes the file."""
    CAUSES.write_text(text())
    return 0


def text() -> str:
    """Returns the text of the file, computed from the published tables and the current predictions."""
    return _HEADING + tomli_w.dumps({name: causes() for name, causes in _CAUSES.items()})


def torchtitan_causes() -> dict[str, str]:
    """Returns figure -> cause for Llama 3.1 on GPUs of 500 W, and for the memory that PyTorch reserved."""
    by_row = {each.row: each for each in published_steps("torchtitan")}
    causes = _causes(torchtitan(), published_steps("torchtitan"), lambda step: _of_torchtitan(step, by_row))
    reserved = "PyTorch reserves more than it allocates, and what it allocates is predicted"
    return {each.name: reserved for each in torchtitan() if "GiB" in each.name and abs(each.error) > FAR} | causes


def _of_torchtitan(step: PublishedStep, by_row: dict[str, PublishedStep]) -> Iterator[str]:
    if (ring := step.layout.beside.parts("positions")) > 1:
        yield (
            f"torch sent keys and values around a ring of {ring}, with an attention for each part of the "
            "sequence, where one exchange ahead of whole attentions is predicted"
        )
    if step.shape.context >= _LONG:
        yield "most of it is attention, of which PyTorch's kernels reach less of the peak backward than forward"
    if (compiled := by_row.get(f"{step.row} compile")) is not None:
        less = 1 - compiled.seconds / step.seconds
        yield f"norms and rotations of positions were a kernel for each operation: compiled it took {percent(less)} less"
    if step.is_float8 and (plain := by_row.get(step.row.replace(" float8", ""))) and plain is not step:
        less = 1 - step.seconds / plain.seconds
        yield f"casts to float8 are not predicted, with which it took {percent(less)} less than in bfloat16"
    yield "GPUs were limited to 500 of 700 W"


def llm_foundry_causes() -> dict[str, str]:
    """Returns figure -> cause for MPT on H100, for which many rows were also published on A100."""
    on_a100 = {each.name: each for each in llm_foundry_a100()}

    def cause(step: PublishedStep) -> Iterator[str]:
        alike = on_a100.get(f"{step.model} {step.shape.context} tokens 8 A100: seconds")
        if alike is not None and alike.error < -0.1:
            yield f"the same model and sequences are predicted {percent(-alike.error)} too short on A100 as well"
        tokens = step.layout.microbatch_size * step.shape.context
        if tokens <= _FEW_TOKENS:
            yield f"with {tokens:,} tokens a GPU and pass, gathering parameters and computing slow each other down"

    return _causes(llm_foundry(), published_steps("llm-foundry"), cause)


def llm_foundry_a100_causes() -> dict[str, str]:
    """Returns figure -> cause for MPT on A100."""

    def cause(step: PublishedStep) -> Iterator[str]:
        for other in published_steps("llm-foundry-a100"):
            is_longer = other.model == step.model and other.shape.context == 2048 > step.shape.context
            if is_longer and other.rate > step.rate:
                yield (
                    f"{step.rate:,.0f} tokens a second and GPU, where sequences of 2,048 tokens had {other.rate:,.0f}: "
                    "something beside the GPU held it up"
                )
                return
        if step.layout.forward_passes > 1:
            yield "one sequence a GPU in memory that is nearly full: the allocator frees and waits"
        elif step.shape.width <= _SMALL:
            yield "with a model so small a step also waits for data and for what is logged"

    return _causes(llm_foundry_a100(), published_steps("llm-foundry-a100"), cause)


def megatron_causes() -> dict[str, str]:
    """Returns figure -> cause for GPT on A100, split along tensor, pipe and data."""
    compared = megatron_a100()
    near = max(abs(each.error) for each in compared if abs(each.error) <= FAR)
    own = f"Megatron's own of the same model, split alike, is predicted within {percent(near)}"
    clause = f"DeepSpeed's pipeline of that time; {own}"
    return {each.name: clause for each in compared if abs(each.error) > FAR}


def _causes(
    compared: Sequence[Compared], steps: Sequence[PublishedStep], cause: Callable[[PublishedStep], Iterator[str]]
) -> dict[str, str]:
    """Returns figure -> cause for the seconds that are far off."""
    by_name = {f"{step.row}: seconds": step for step in steps}
    far = [each.name for each in compared if abs(each.error) > FAR and each.name in by_name]
    return {name: "; ".join(cause(by_name[name])) for name in far}


_CAUSES: Mapping[str, Callable[[], dict[str, str]]] = {
    "torchtitan": torchtitan_causes,
    "llm-foundry": llm_foundry_causes,
    "llm-foundry-a100": llm_foundry_a100_causes,
    "megatron-a100": megatron_causes,
}


if __name__ == "__main__":
    run_command(main)
