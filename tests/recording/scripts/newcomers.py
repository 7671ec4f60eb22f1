"""Scripts as newcomers write them: newcomers.py KIND [WORD...], where a word is a refactoring or a mistake."""

import copy
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

kind, *words = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
inputs, texts, returns = torch.randn(32, 6), torch.randn(32, 4), torch.randn(32)
labels, sentences = torch.randint(3, (32,)), torch.randint(6, (32, 8))
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
BATCHES = [slice(start, start + 8) for start in range(0, 32, 8)]


class Pairs(nn.Module):
    """Images and texts, with a temperature that is learned."""

    def __init__(self):
        super().__init__()
        self.image, self.text, self.scale = nn.Linear(6, 8), nn.Linear(4, 8), nn.Parameter(torch.tensor(2.66))

    def forward(self, images, words):
        image, text = (functional.normalize(each, dim=-1) for each in (self.image(images), self.text(words)))
        return self.scale.exp() * image @ text.T


def temperature():
    pairs, labels = Pairs(), torch.arange(8)
    optimizer = torch.optim.AdamW(pairs.parameters(), lr=0.005)
    for part in BATCHES:
        optimizer.zero_grad()
        functional.cross_entropy(pairs(inputs[part], texts[part]), labels).backward()
        optimizer.step()
        if "free" not in words:
            pairs.scale.data.clamp_(0, 2.64)


def critics():
    """An actor and a critic, which is called for its value once more where that has the wrong shape."""
    critic = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam([*model.parameters(), *critic.parameters()], lr=0.01)
    for part in BATCHES:
        value = critic(inputs[part]).squeeze(-1)
        advantage = (returns[part] - value).detach()
        value = critic(inputs[part]) if "column" in words else value
        errors = value - returns[part]
        optimizer.zero_grad()
        (errors.square().mean() - (model(inputs[part]).log_softmax(1)[:, 0] * advantage).mean()).backward()
        optimizer.step()


def average():
    """An average of the weights, which the script only keeps, beside a network that is left from something else."""
    if "other" in words:
        torch.manual_seed(1)
    _left = copy.deepcopy(model)
    _left[0].reset_parameters()
    _best = copy.deepcopy(model) if "best" in words and "gone" not in words else None
    kept, decay = copy.deepcopy(model), 0.9 if "fast" in words else 0.99
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in BATCHES:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part]), labels[part]).backward()
        for _ in range(1 + ("again" in words)):
            optimizer.step()
        with torch.no_grad():
            for own, each in zip(kept.parameters(), model.parameters(), strict=True):
                own.lerp_(each, 1 - decay)


class Renamed(nn.Module):
    """The model under other names, which B gives it."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.act, self.last = model

    def forward(self, batch):
        return self.last(self.act(self.norm(self.first(batch))))


def renamed():
    """Its names are others in B, which keeps a copy of the model as well."""
    trained = Renamed() if "other" in words else model
    _best = copy.deepcopy(trained) if "other" in words else None
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for part in BATCHES:
        optimizer.zero_grad()
        functional.cross_entropy(trained(inputs[part]), labels[part]).backward()
        optimizer.step()


def second():
    """Two networks of one class, of which the second is trained after the first."""
    for network in [model, copy.deepcopy(model)]:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for part in BATCHES[:2]:
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(inputs[part]), labels[part])
            (loss / 2 if "half" in words and network is not model else loss).backward()
            optimizer.step()


class Reader(nn.Module):
    """Reads a word, from a state on."""

    def __init__(self):
        super().__init__()
        self.table, self.cell, self.out = nn.Embedding(6, 8), nn.GRUCell(8, 8), nn.Linear(8, 6)

    def forward(self, word, state):
        state = self.cell(self.table(word), state)
        return self.out(state), state


def translator():
    """Its words are given one after the other, and each has a loss."""
    writer = Reader()
    optimizer = torch.optim.SGD(writer.parameters(), lr=0.1)
    for part in BATCHES:
        sentence = sentences[part] if "source" not in words else sentences[part].flip(1)
        state, loss = inputs.new_zeros(8, 8), 0
        for place in range(7):
            out, state = writer(sentence[:, place], state)
            loss = loss + functional.cross_entropy(out, sentence[:, place + 1])
        optimizer.zero_grad()
        (loss if "sum" in words else loss / 7).backward()
        nn.utils.clip_grad_norm_([*writer.table.parameters(), *writer.cell.parameters()], 0.01)
        optimizer.step()


def spectral():
    """Weights that are computed, the first of them before the model is there."""
    norm = nn.utils.parametrizations.spectral_norm
    critic = nn.Sequential(norm(nn.Linear(6, 8)), nn.Tanh(), norm(nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    for part in BATCHES:
        optimizer.zero_grad()
        critic(inputs[part]).mean().backward()
        optimizer.step()


def entropy():
    """A weight of the entropy that an optimizer of its own trains first, on a half of what the step of the model is given."""
    optimizer, weight = torch.optim.SGD(model.parameters(), lr=0.1), torch.zeros((), requires_grad="fixed" not in words)
    own = None if "fixed" in words else torch.optim.SGD([weight], lr=0.1)
    for part in BATCHES:
        probabilities = model(inputs[part]).softmax(1)
        if own:
            own.zero_grad()
            (weight * (probabilities * probabilities.log()).sum(1).mean().detach()).backward()
            own.step()
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part] + 1), labels[part]).backward()
        optimizer.step()


def windows():
    """Gradients of as many batches as are accumulated; who forgets to take smaller ones trains on more at a step."""
    optimizer, count = torch.optim.SGD(model.parameters(), lr=0.1), 2 if "accumulated" in words else 1
    size = 7 if "smaller" in words else 8
    starts = [*range(0, 28, size)]
    if "passes" in words:
        size, starts, count = 2, [*range(0, 24, 2)] * 2, 4 if "larger" in words else 3
    for number, part in enumerate(slice(start, start + size) for start in starts):
        (functional.cross_entropy(model(inputs[part]), labels[part]) / count).backward()
        if number % count == count - 1:
            optimizer.step()
            optimizer.zero_grad()


def crossing():
    """Windows of three batches, in passes of seven: who forgets the last step of a pass goes on with the next one."""
    optimizer, number = torch.optim.SGD(model.parameters(), lr=0.1), 0
    loader = DataLoader(TensorDataset(inputs[:28], labels[:28]), 4)
    batches = [*loader] if "kept" in words else loader
    for _ in range(3):
        for part, targets in batches:
            number += 1
            (functional.cross_entropy(model(part), targets) / 3).backward()
            if number % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()
        if "flushed" in words:
            number = 0
            optimizer.step()
            optimizer.zero_grad()


def filled():
    """Passes in one order, of which a sampler may fill up the last batch with the first example."""
    optimizer, order = torch.optim.SGD(model.parameters(), lr=0.1), [*range(31)] + [0] * ("sampler" in words)
    for part in [order[start : start + 8] for start in range(0, 31, 8)] * 2:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part]), labels[part]).backward()
        optimizer.step()


class Process(nn.Module):
    """A module that is called in a way of its own, as those of GPyTorch are, with a bound that is infinite."""

    def __init__(self):
        super().__init__()
        self.scale, self.weight = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.randn(6, 3))
        self.register_buffer("bound", torch.tensor(float("inf")))

    def __call__(self, given):
        if self.bound > 0:  # at the first call
            self.weight.data.add_(0.25)
            self.bound.neg_()
        return given @ (self.weight * functional.softplus(self.scale).clamp(max=-self.bound.item()))


def process():
    own = Process()
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    for part in BATCHES:
        if "later" not in words:
            optimizer.zero_grad()
        loss = functional.cross_entropy(own(inputs[part]), labels[part])
        if "later" in words:
            optimizer.zero_grad()
        (loss * (2 if "twice" in words else 1)).backward()
        optimizer.step()


def energies():
    """Data shall have less energy than noise; what the last bias adds to both cancels."""
    energy, data = nn.Sequential(nn.Linear(4, 24), nn.SiLU(), nn.Linear(24, 1)), torch.randn(4, 2, 64, 4)
    optimizer = torch.optim.SGD(energy.parameters(), lr=0.1)
    for real, noise in data:
        optimizer.zero_grad()
        if "together" in words:
            low, high = energy(torch.cat([real, noise])).chunk(2)
        else:
            low, high = energy(real), energy(noise)
        (low.mean() - high.mean() + 0.1 * (low.square() + high.square()).mean()).backward()
        if "off" in words:
            energy[2].bias.grad += 1e-4
        optimizer.step()


class Stream(IterableDataset):
    def __iter__(self):
        halves = [slice(start, start + 4) for start in (0, 8, 4, 12, 16, 24, 20, 28)]  # of two workers, in turn
        for part in halves if "halves" in words else BATCHES:
            for _ in range(2 if "twice" in words else 1):
                yield inputs[part], labels[part]


def batches():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch, own in DataLoader(Stream(), batch_size=None):
        optimizer.zero_grad()
        found = model(batch)
        functional.cross_entropy(model(batch).tanh() if "again" in words else found, own).backward()
        optimizer.step()


class Tied(nn.Module):
    """Its words are told by the table that they are looked up in, or by a copy of it."""

    def __init__(self):
        super().__init__()
        self.table, self.body, self.out = nn.Embedding(6, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 6)
        tied = self.table.weight
        self.out.weight = tied if "untied" not in words else nn.Parameter(tied.detach().clone())

    def forward(self, given):
        return self.out(0.12 * self.body(self.table(given))[0])


def tied():
    """Its norm is clipped, by which a tensor that has lost a part of its gradient moves all others by a factor."""
    network = Tied()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for part in BATCHES:
        given = sentences[part]
        optimizer.zero_grad()
        functional.cross_entropy(network(given[:, :-1]).flatten(0, 1), given[:, 1:].flatten()).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 0.05)
        optimizer.step()


class Quantized(nn.Module):
    """Features are replaced by the nearest row of a table, past which gradients are passed straight, or not at all."""

    def __init__(self):
        super().__init__()
        self.coder, self.body, self.out = nn.Linear(6, 4), nn.Linear(4, 8), nn.Linear(8, 6)

    def forward(self, given):
        features = self.coder(given)
        nearest = texts[:16][torch.cdist(features, texts[:16]).argmin(1)]
        passed = nearest if "cut" in words else features + (nearest - features).detach()
        return self.out(self.body(passed).relu()), functional.mse_loss(features, nearest)


def quantized():
    network = Quantized()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for part in BATCHES:
        out, apart = network(inputs[part])
        optimizer.zero_grad()
        (functional.mse_loss(out, inputs[part]) + apart).backward()
        if "rounded" in words:  # as sums are whose terms cancel
            network.out.bias.grad *= 1 + 2.2e-6
        optimizer.step()


def carried():
    """A network that goes on through a text with the state that it ended with; its batches have the time first."""
    table, body, out = nn.Embedding(6, 8), nn.GRU(8, 8), nn.Linear(8, 6)
    optimizer = torch.optim.SGD([*table.parameters(), *body.parameters(), *out.parameters()], lr=0.1)
    text, state = sentences.T.clone(), None
    text[6] = 0  # padding: such a row has the same hash however wide it is
    parts = [slice(0, 16), slice(16, 32)] if "columns" in words else [slice(0, 32)]
    for start in (0, 2, 4):
        given, following = text[start : start + 3], text[start + 1 : start + 4]
        states = []
        for part in parts:
            before = None if state is None or "anew" in words else state[:, part].contiguous()
            before = torch.zeros_like(state) if "zeros" in words and state is not None else before
            features, after = body(table(given[:, part]), before)
            loss = functional.cross_entropy(out(features).flatten(0, 1), following[:, part].flatten())
            (loss / len(parts)).backward()
            states.append(after.detach())
        state = torch.cat(states, 1) if len(states) > 1 else states[0]
        optimizer.step()
        optimizer.zero_grad()


class Graphs(nn.Module):
    """Adds the features of the neighbours of each node to its own, and adds up the nodes of each graph."""

    def __init__(self):
        super().__init__()
        self.body, self.out = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, nodes, edges, graphs):
        features = self.body(torch.zeros_like(nodes).index_add_(0, edges[1], nodes[edges[0]]) + nodes).relu()
        return self.out(torch.zeros(2, 8).index_add_(0, graphs, features))


def graphs():
    """Two graphs of four nodes each step, in one call, with all their edges."""
    network = Graphs()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for part in BATCHES:
        edges = torch.tensor([[0, 1, 2, 2, 4, 5, 6], [1, 2, 3, 0, 5, 6, 4]])
        if "reversed" in words and part.start == 8:
            edges = edges.flip(0)
        if "sorted" in words:
            edges = edges[:, edges[1].argsort()]
        optimizer.zero_grad()
        found = network(inputs[part], edges, torch.arange(8) // 4)
        functional.cross_entropy(found, labels[part][::4]).backward()
        optimizer.step()


class Conditioned(nn.Module):
    """Scales features by what a strength makes of them."""

    def __init__(self):
        super().__init__()
        self.scale, self.out = nn.Linear(1, 8), nn.Linear(8, 3)

    def forward(self, features, strength):
        return self.out(features * self.scale(strength.reshape(-1, 1)))


def conditioned():
    """A head is called on the features of a batch and on how strong an effect is: one number for all of them."""
    body, head = nn.Linear(6, 8), Conditioned()
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    for part in BATCHES:
        strength = torch.tensor(0.9 if "other" in words and part.start == 16 else 0.5)
        strength = strength.repeat(8) if "tiled" in words else strength
        optimizer.zero_grad()
        functional.cross_entropy(head(body(inputs[part]).tanh(), strength=strength), labels[part]).backward()
        optimizer.step()


globals()[kind]()
