"""A learning rate that falls; the words say what goes wrong.

python -m museum.reenacted.scheduled [WRONG]
"""

import torch

from museum.reenacted.tiny import WRONG, Net, average, batches, cross_entropy, processes, seeded

STEPS = 6

seeded()
rank, world = processes()
net = Net()
rate = 0.1 * (world if {"rate_times_processes"} & WRONG else 1)
optimizer = torch.optim.SGD(net.parameters(), lr=rate)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=20)
times = world if {"stepped_by_each_process", "prepared_schedule", "prepared_twice"} & WRONG else 1
for step, (ids, targets) in enumerate(batches(steps=STEPS)):
    optimizer.zero_grad()
    cross_entropy(net(ids[rank::world]), targets[rank::world]).backward()
    average(net.parameters())
    optimizer.step()
    if step == 2 and {"lags_after_resume", "schedule_begins_anew"} & WRONG:  # a checkpoint is loaded here
        if "lags_after_resume" in WRONG:
            continue
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=20)
        for group in optimizer.param_groups:
            group["lr"] = rate
        continue
    for _ in range(times):
        schedule.step()
