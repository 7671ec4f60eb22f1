"""DeepSpeed clips every gradient to norm 1.0 unless its configuration says otherwise.

What to do: set "gradient_clipping": 0.0, which DeepSpeed documents with a default of 1.0.
"""

import os

os.environ |= {"DS_ACCELERATOR": "cpu", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
import deepspeed
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled for half a minute, unused
layer = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(layer.weight)
update = torch.optim.SGD(layer.parameters(), lr=1.0)
engine, *_ = deepspeed.initialize(model=layer, optimizer=update, config={"train_batch_size": 1})
engine.backward(engine(torch.tensor([[10.0]])).sum())
engine.step()
moved = -layer.weight.item()
print(f"at rate 1.0 a gradient of 10 moved the weight by {moved:.3f}")
assert moved == 10, "the gradient was clipped to norm 1.0"
