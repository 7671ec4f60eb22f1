import sys
import types

# Nothing is computed without numbers here, and the import of what does that takes a third of torch's.
sys.modules.setdefault("torch._meta_registrations", types.ModuleType("torch._meta_registrations"))

import torch  # noqa: E402
from torch import nn  # noqa: E402

# Nothing is compiled here, and the import of the compiler takes as long as that of all else in torch.
if "torch._dynamo" not in sys.modules:
    torch._dynamo = types.SimpleNamespace(disable=lambda function, *_, **__: function, graph_break=lambda: None)
    sys.modules["torch._dynamo"] = torch._dynamo

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
inputs, targets = torch.randn(64, 6), torch.randint(4, (64,))
for step in range(12):
    part = slice(step % 4 * 16, step % 4 * 16 + 16)
    loss = nn.CrossEntropyLoss()(model(inputs[part]), targets[part])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
print("done", loss.item())
sys.exit(3 if "--fail" in sys.argv else 0)
