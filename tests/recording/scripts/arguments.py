"""Gives autograd generators, a model rows that are sparse or of several lengths, and an optimizer a complex parameter."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 4)
        self.outer = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))

    def forward(self, rows):
        if rows.is_sparse:
            return torch.sparse.mm(rows, self.inner.weight.T)
        hidden = self.inner(rows)
        return hidden.values() if rows.is_nested else (hidden.to(torch.complex64) @ self.outer).abs()


torch.set_num_threads(1)
torch.manual_seed(0)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    sparse = net(torch.eye(8, 6).to_sparse()).sum()
    several = net(torch.nested.nested_tensor([torch.ones(2, 6), torch.ones(3, 6)], layout=torch.jagged)).sum()
    loss = nn.functional.cross_entropy(net(torch.randn(8, 6)), torch.randint(3, (8,)))
    gradients = torch.autograd.grad(loss, (each for each in net.parameters()), create_graph=True)
    penalty = sum(each.abs().square().sum() for each in gradients)
    torch.autograd.backward(each for each in (loss, penalty, sparse, several))
    optimizer.step()
