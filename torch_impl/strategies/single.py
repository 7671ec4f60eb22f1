"""One process, one device: the plain step, against which every other row is read.

Replicated: nothing. Split: nothing. Sent: nothing.
Use it whenever model and batch fit one device and it is fast enough.
"""

from common.config import RunConfig
from common.workload.table import Workload
from torch_impl.devices import use_device
from torch_impl.optimizers import build_optimizer
from torch_impl.program import Parts, TrainingProgram, fresh_model


def build(workload: Workload, config: RunConfig) -> TrainingProgram:
    """The program of the one process there is."""
    device = use_device(config)
    model = fresh_model(workload, config, device)
    optimizer = build_optimizer(workload.optimizer(config), model.parameters())
    return TrainingProgram(workload, config, Parts(model=model, bare=model, optimizer=optimizer, device=device))
