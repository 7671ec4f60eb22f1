"""Three models are trained in turn, as in a cross-validation: each is deleted before the next one is made.

"hand" has no optimizer. "wrapped" calls one model in a new wrapper at each step, for which nobody need look through all objects.
"""

import gc
import sys
import weakref

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
made, kept = [], []
if "wrapped" in sys.argv:
    gc.disable()  # no wrapper is a cycle
    get_objects, looks = gc.get_objects, []
    gc.get_objects = lambda generation: looks.append(generation) or get_objects(generation)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs in torch.randn(9, 8, 6):
        optimizer.zero_grad()
        wrapper = nn.Sequential(model)
        wrapper(inputs).square().mean().backward()
        optimizer.step()
        kept.append(weakref.ref(wrapper))
        made.append(len(looks))
    assert made[3] == made[-1] and [each() for each in kept] == [None] * 8 + [wrapper], (made, kept)
    sys.exit()
for _ in range(3):
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    optimizer = None if "hand" in sys.argv else torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = optimizer and torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for inputs in torch.randn(3, 8, 6):
        model.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        if optimizer is None:
            for p in model.parameters():
                p.data -= 0.1 * p.grad
            continue
        optimizer.step()
        schedule.step()
    alive = [each() is not None for each in made]
    if "kept" in sys.argv:
        kept.append(model)
    else:
        assert not any(alive), alive
    model.eval()(inputs)
    gradients = [each.grad for each in model.parameters()]
    made += map(weakref.ref, [model, optimizer or model, *model.parameters(), *model.buffers(), *gradients])
    first, state = weakref.ref(model), optimizer and weakref.ref(optimizer)
    p = None
    del model, optimizer, schedule, loss, gradients, inputs
    gc.collect()
    assert (state is None or state() is None) and (kept or first() is None)
