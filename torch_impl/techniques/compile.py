"""Compilation: torch.compile of the forward and backward pass; exchange and update stay as they are.

References:
    torch.nn.Module.compile (torch 2.13), which leaves the names of parameters as they are.
"""

from torch import nn

from samestep.common.strategy import Run


def compile_model(run: Run, model: nn.Module) -> None:
    """Has a model compiled at its first call if the run asks for it, in place.

    Args:
        run: The run.
        model: The model, or a stage of it, before a strategy wraps it.
    """
    if run.techniques.compile:
        from torch._inductor import config  # of torch.compile alone

        config.compile_threads = run.threads  # a process has no more cores; by default it starts a pool of compilers
        model.compile()
