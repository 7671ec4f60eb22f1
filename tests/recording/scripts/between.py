"""What scripts do between two steps: between.py KIND [WORD...], where a word is another way to do it, or a mistake."""

import copy
import itertools
import sys

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

kind, *words = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
inputs, labels = torch.randn(32, 6), torch.randint(3, (32,))
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
BATCHES = [(inputs[start : start + 8], labels[start : start + 8]) for start in range(0, 32, 8)]
network, own_half = model, slice(None)
if "ranks" in words:
    distributed.init_process_group("gloo")
    network, own_half = nn.parallel.DistributedDataParallel(model), slice(distributed.get_rank(), None, 2)


def backward(batch, own):
    functional.cross_entropy(network(batch[own_half]), own[own_half]).backward()


def step(optimizer, batch, own):
    optimizer.zero_grad()
    backward(batch, own)
    optimizer.step()


def ahead(batches):
    """Yields each batch once the next one is there, as accelerate does."""
    yield from (one for one, _ in itertools.pairwise(itertools.chain(batches, [None])))


def loaders():
    """Passes through a DataLoader, and then steps on examples that are drawn otherwise."""
    optimizer, loader = torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(TensorDataset(inputs, labels), 8)
    noise = torch.randn(8, 6)
    if "twice" in words:
        inputs[5] = inputs[20]
    batches = ahead(loader) if "ahead" in words else loader
    for number, (batch, own) in enumerate([*loader] * 2 if "kept" in words else batches):
        if "left" in words and number == 2:
            break
        if "words" in words:
            for place in range(5):
                functional.cross_entropy(model(batch[:, place : place + 1].sign().expand(-1, 6)), own).backward()
        if "noise" in words:
            functional.cross_entropy(model(noise), own).backward()
        step(optimizer, batch, own)
        if "checked" in words and number == 1:
            with torch.no_grad():
                assert all(len(model(batch)) for batch, _ in loader)
    for draw in range(3):
        some = torch.arange(draw, draw + 4)
        step(optimizer, inputs[some], labels[some])


class Doubled(torch.optim.AdamW):
    """Takes twice the learning rate that it shows."""

    def step(self, closure=None):
        (group,) = self.param_groups
        group["lr"] *= 2
        super().step(closure)
        group["lr"] /= 2


def written():
    """Steps after which the script writes its weights."""
    optimizer = (Doubled if "doubled" in words else torch.optim.AdamW)(model.parameters(), lr=0.01)
    average, first = copy.deepcopy(model), copy.deepcopy(model.state_dict())
    for number, (batch, own) in enumerate(BATCHES * (4 if "late" in words else 1)):
        step(optimizer, batch, own)
        is_time = number == (12 if "late" in words else 2)
        with torch.no_grad():
            for one, other in zip(average.parameters(), model.parameters(), strict=True):
                one.lerp_(other, 0.5)
                if "clipped" in words:
                    other.clamp_(*((-0.2, 0.2) if "tighter" in words else (-0.3, 0.3)))
                if "loosely" in words:
                    other.data.clamp_(-30, 30)
                if "averaged" in words and is_time:
                    (other.data if "hidden" in words else other).copy_(one)
                if "assigned" in words and is_time:
                    other.data = one.clone()
        if "vector" in words and is_time:
            nn.utils.vector_to_parameters(
                vec=nn.utils.parameters_to_vector(average.parameters()), parameters=model.parameters()
            )
        if "restored" in words and is_time:
            model.load_state_dict(first)
        if "swapped" in words:
            kept = copy.deepcopy(model.state_dict())
            model.load_state_dict(average.state_dict())
            model.load_state_dict(kept)
        if "tried" in words and is_time:
            kept = [each.data for each in model.parameters()]
            for one, other in zip(average.parameters(), model.parameters(), strict=True):
                other.data = one.clone()
            model(inputs)
            for one, other in zip(kept, model.parameters(), strict=True):
                other.data = one
        if "short" in words and is_time:
            break


class Perturbed(torch.optim.Optimizer):
    """Sharpness-aware minimization: the gradient is that of weights which are moved along another gradient."""

    def __init__(self, parameters, rho):
        super().__init__(parameters, {"lr": 0.1})
        self.base, self.rho = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9), rho

    @torch.no_grad()
    def first_step(self):
        own = [each for each in self.param_groups[0]["params"] if each.grad is not None]
        norm = torch.stack([each.grad.norm() for each in own]).norm()
        for each in own:
            self.state[each]["old"] = each.data.clone()
            (each.data if "hidden" in words else each).add_(each.grad * (self.rho / norm))
        if "kept" not in words:
            self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for each in self.param_groups[0]["params"]:
            each.data = self.state[each]["old"]
        self.base.step()
        self.zero_grad()


def sharpness():
    rho = 0.1 if "far" in words else 0.05
    optimizer = Perturbed(model.parameters(), rho)
    for batch, own in BATCHES:
        backward(batch, own)
        if "still" not in words:
            optimizer.first_step()
        if "kept" not in words:
            backward(batch, own)
        optimizer.base.step() if "still" in words else optimizer.second_step()
        optimizer.zero_grad()


class Slow(torch.optim.Optimizer):
    """Lookahead: every few steps, the weights go back half of the way from slow ones, which then are the same."""

    def __init__(self, optimizer, every, share=0.5):
        if "hooked" in words:
            super().__init__(optimizer.param_groups, {})
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups
        self.slow = [each.detach().clone() for each in self.param_groups[0]["params"]]
        self.every, self.share, self.count = every, share, 0

    def step(self, closure=None):
        self.optimizer.step()
        self.count += 1
        if self.count % self.every == 0:
            for slow, fast in zip(self.slow, self.param_groups[0]["params"], strict=True):
                slow += self.share * (fast.data - slow)
                fast.data.copy_(slow)


def lookahead():
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = Slow(inner, 6 if "later" in words else 5, 0.8 if "more" in words else 0.5)
    for batch, own in BATCHES * 2:
        inner.zero_grad()
        backward(batch, own)
        optimizer.step()


globals()[kind]()
