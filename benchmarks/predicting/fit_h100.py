"""Fits two shares of an H100's peaks to steps that llm-foundry published.

`python -m benchmarks.predicting.fit_h100` prints and writes the shares of their peaks that matrix products and the memory
reach. The steps of each model are predicted with the shares of another fit, which left them out
(`common/seconds/published/left-out.toml`); those of torchtitan are predicted with the fit to all of llm-foundry's steps,
which is in the machine files.
"""

import dataclasses
import math
from collections.abc import Sequence

from scipy.optimize import least_squares

from benchmarks.predicting.fit_machine import write_constants
from samestep.common.errors import percent
from samestep.common.seconds.machine import machines
from samestep.common.seconds.published_rows import LEFT_OUT, PublishedStep, on_h100, published_steps
from samestep.common.seconds.validation import score

H100 = ("h100-80gb", "h100-96gb")
"""The machines whose shares are fitted to llm-foundry's steps."""
FITTED = ("matrix_share", "memory_share")
SCALE = 0.1
"""The error above which a step counts less than quadratically."""
LARGEST_SHARE = 0.92


def fit(steps: Sequence[PublishedStep]) -> dict[str, float]:
    """Returns the shares, fitted by the soft-L1 loss of the logarithm of predicted over measured seconds.

    Args:
        steps: The measured steps.
    """
    machine = on_h100({})

    def residuals(logarithms: Sequence[float]) -> list[float]:
        used = dataclasses.replace(machine, **dict(zip(FITTED, map(math.exp, logarithms), strict=True)))
        return [math.log(step.compared(used).predicted / step.seconds) for step in steps]

    found = least_squares(
        residuals,
        [math.log(0.5)] * len(FITTED),
        bounds=([math.log(1e-3)] * len(FITTED), [math.log(LARGEST_SHARE)] * len(FITTED)),
        loss="soft_l1",
        f_scale=SCALE,
    )
    return {name: float(f"{math.exp(value):.4g}") for name, value in zip(FITTED, found.x, strict=True)}


def main() -> None:
    """Fits to all steps, and to all but those of each model, prints the errors, and writes the files."""
    steps = published_steps("llm-foundry")
    lines = [
        "# Shares of an H100 without the steps of one model; written by `python -m benchmarks.predicting.fit_h100`."
    ]
    unseen = []
    for model in dict.fromkeys(step.model for step in steps):
        constants = fit([step for step in steps if step.model != model])
        unseen += [step.compared(on_h100(constants)) for step in steps if step.model == model]
        lines += [f'\n["{model}"]', *(f"{name} = {value:g}" for name, value in constants.items())]
    LEFT_OUT.write_text("\n".join(lines) + "\n")
    constants = fit(steps)
    print(
        f"left out: mean error {percent(score(unseen).mape, 1)}; "
        + ", ".join(f"{n} = {v:g}" for n, v in constants.items())
    )
    for name in H100:
        write_constants(machines()[name], constants)


if __name__ == "__main__":
    main()
