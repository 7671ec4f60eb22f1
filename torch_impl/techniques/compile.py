"""Compilation by torch.compile of the forward and backward pass; exchange and update are not compiled.

References:
    torch.nn.Module.compile (torch 2.13), which keeps the names of parameters.
"""

from torch import nn

from samestep.common.strategy import Run


def compile_model(run: Run, model: nn.Module) -> None:
    """Sets up a model, in place, to be compiled at its first call if the run asks for it.

    Args:
        run: The run.
        model: The model, or a stage of it, before a strategy wraps it.
    """
    if run.techniques.compile:
        from torch._inductor import config  # imported here, because only torch.compile needs it

        config.compile_threads = run.threads  # the cores of this process; the default is a larger pool of compilers
        model.compile()
