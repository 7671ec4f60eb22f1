"""DDP fails in the second step of a GPipe pipeline.

What to do: use fully_shard inside pipelines, or the schedule 1F1B.
"""

import tempfile

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
stage = PipelineStage(DistributedDataParallel(torch.nn.Linear(4, 4)), 0, 1, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=mse_loss)
taken, reason = 0, "none"
try:
    while taken < 3:
        schedule.step(torch.ones(4, 4), target=torch.ones(4, 4))
        taken += 1
except RuntimeError as error:
    reason = str(error.__cause__).partition(" at ")[0]
print(f"steps taken: {taken} of 3; error: {reason}")
assert taken == 3, "DDP counts the parameters once for each micro-batch"
