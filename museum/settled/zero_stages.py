"""DeepSpeed#966 and #1488: the stages of ZeRO, with gradients accumulated over 4 micro-batches or not.

torchrun --nproc-per-node 2 -m museum.settled.zero_stages 0 | 1 | 2 [accumulate]
"""

import sys

import deepspeed
import deepspeed.ops
import torch
from torch import nn

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled first, for inference alone

stage, passes = int(sys.argv[1]), 4 if "accumulate" in sys.argv else 1
torch.set_num_threads(1)
torch.manual_seed(0)
net = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())), nn.Linear(16, 16))
config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": passes,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": stage},
}
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
engine, *_ = deepspeed.initialize(model=net, optimizer=optimizer, config=config, dist_init_required=True)
generator = torch.Generator().manual_seed(engine.global_rank)
for _ in range(10 * passes):
    inputs = torch.randn(4, 16, generator=generator)
    targets = torch.randint(16, (4,), generator=generator)
    engine.backward(nn.functional.cross_entropy(engine(inputs), targets))
    engine.step()
