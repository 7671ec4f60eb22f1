"""Two processes, two epochs of a DataLoader with a DistributedSampler; the words say what goes wrong.

torchrun --nproc-per-node 2 -m museum.reenacted.loaded [odd] [WRONG]: an odd number of examples, the last of which is dropped.
"""

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from museum.reenacted.tiny import BATCH, LENGTH, WRONG, Net, average, batches, cross_entropy, processes, seeded

EPOCHS = 2

seeded()
rank, world = processes()
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
ids, targets = (torch.cat(each) for each in zip(*batches(steps=2), strict=True))
if "odd" in WRONG:
    ids, targets = ids[:-1], targets[:-1]
data = TensorDataset(ids, targets)
shares = (1, 0) if "same_files_on_every_worker" in WRONG else (world, rank)
sampler = DistributedSampler(
    data,
    *shares,
    shuffle="not_shuffled" not in WRONG,
    seed=rank if "seed_by_rank" in WRONG else 0 if "seed_always_zero" in WRONG else 3,
    drop_last="padded" not in WRONG,
)
for epoch in range(EPOCHS):
    if not {"no_set_epoch", "epoch_order_after_resume"} & WRONG:
        sampler.set_epoch(epoch)
    for x, y in DataLoader(data, BATCH // world, sampler=sampler):
        if "one_worker_gets_less" in WRONG and rank:
            x, y = x[:1], y[:1]
        optimizer.zero_grad()
        cross_entropy(net(x), y).backward()
        average(net.parameters())
        optimizer.step()
assert ids.shape[1] == LENGTH
