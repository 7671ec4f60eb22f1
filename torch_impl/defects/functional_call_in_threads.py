"""torch.func.functional_call races between threads that share a module.

It swaps the module's parameters in place. What to do: give each thread a copy of the module.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.func import functional_call

torch.set_num_threads(1)
module = nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in range(8)])
weights = [{name: torch.full([64, 64], scale) for name, _ in module.named_parameters()} for scale in (0.01, 0.02)]
alone = [functional_call(module, each, torch.ones(32, 64)) for each in weights]
with ThreadPoolExecutor(2) as threads:
    calls = [
        [threads.submit(functional_call, module, each, torch.ones(32, 64)) for each in weights] for _ in range(100)
    ]
wrong = sum(not all(torch.equal(a, b.result()) for a, b in zip(alone, pair, strict=True)) for pair in calls)
print("some of 100 pairs of calls differ from each call alone" if wrong else "100 pairs of calls agree with each alone")
assert not wrong, "a call computed with the other thread's parameters"
