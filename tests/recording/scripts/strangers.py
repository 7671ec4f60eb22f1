"""Scripts as strangers write them: strangers.py KIND [WORD...], where a word is a refactoring or a mistake."""

import copy
import sys

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

kind, *words = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
inputs, targets, noise = torch.randn(32, 6), torch.randint(3, (32,)), torch.randn(32, 4)
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
BATCHES = [slice(start, start + 8) for start in range(0, 32, 8)]


def groups():
    matrices, others = (
        [each for each in model.parameters() if (each.ndim > 1) == is_matrix] for is_matrix in (True, False)
    )
    decays = [(matrices, 0.1), (others, 0.0)]
    if "each" in words:
        decays = [([each], 0.1 if each.ndim > 1 else 0.0) for each in reversed([*model.parameters()])]
    if "swapped" in words:
        decays = [(others, 0.1), (matrices, 0.0)]
    algorithm = torch.optim.AdamW
    if "largest" in words:
        algorithm = torch.optim.Adamax
        decays = [([*model.parameters()], 0.02)] if "every" in words else [(matrices, 0.02), (others, 0.0)]
    optimizer = algorithm([{"params": each, "weight_decay": decay} for each, decay in decays], lr=0.01)
    for part in BATCHES:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part]), targets[part]).backward()
        optimizer.step()


def gan():
    generator, critic = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (generator, critic)]
    for part in BATCHES:
        if "kept" not in words:
            critic.zero_grad()
        real, fake = inputs[part], generator(noise[part]).detach()
        if "together" in words:
            both = critic(torch.cat([real, fake]))
            (both[8:].mean() - both[:8].mean()).backward()
        else:
            (critic(fake).mean() - critic(real).mean()).backward()
        optimizers[1].step()
        if "added" not in words:
            generator.zero_grad()
        (-critic(generator(noise[part])).mean()).backward()
        optimizers[0].step()


def terms():
    """Of several losses, and with a model that is called once more to see how well it does."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in BATCHES:
        for _ in range(2 if "twice" in words else 1):
            optimizer.zero_grad()
            out = model(inputs[part])
            soft = functional.binary_cross_entropy_with_logits(out, inputs[part, :3].sigmoid())
            weight = torch.tensor([1.0, 2.0, 5.0 if "heavier" in words else 0.5]) if "weighted" in words else None
            weight = torch.ones(3) if "even" in words else weight
            hard = 0.1 * functional.cross_entropy(out, targets[part], weight)
            (soft + hard if "flat" in words else soft + hard + out.square().mean()).backward()
        if "idle" in words:
            print("right:", (model(inputs[part]).argmax(1) == targets[part]).float().mean())
        nn.utils.clip_grad_norm_(model.parameters(), 100.0) if "clipped" in words else None
        optimizer.step()


def closures():
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure():
        if "kept" not in words:
            optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs), targets)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.zero_grad()
        optimizer.step(closure)


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        step = worker.num_workers if "repeated" not in words else 1
        for place in range(worker.id if step > 1 else 0, 32, step):
            yield inputs[place], targets[place]


def stream():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for batch, wanted in DataLoader(Stream(), batch_size=8, num_workers=2):
            optimizer.zero_grad()
            functional.cross_entropy(model(batch), wanted).backward()
            optimizer.step()


def moved():
    """An update by a factor of a small matrix alone, which is more than one number that turned around."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in BATCHES:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part]), targets[part]).backward()
        before = model[3].weight.detach().clone()
        optimizer.step()
        if "less" in words:
            model[3].weight.data.lerp_(before, 0.3)


def encoders():
    """An encoder and its copy, which follows it and is not trained."""
    encoder = model
    follower = copy.deepcopy(model)
    if "younger" in words:
        encoder, follower = follower, encoder
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for part in BATCHES:
        with torch.set_grad_enabled(bool(words)):
            wanted = follower(inputs[part] + 0.1)
        optimizer.zero_grad()
        functional.mse_loss(encoder(inputs[part]), wanted if "reached" in words else wanted.detach()).backward()
        optimizer.step()
        with torch.no_grad():
            for mine, own in zip(follower.parameters(), encoder.parameters(), strict=True):
                mine.lerp_(own, 0.0 if "still" in words else 0.1)


def frozen():
    head = nn.Linear(3, 3)
    trained = [*head.parameters()]
    if "forgotten" in words:
        trained += model.parameters()
    else:
        model.requires_grad_(False)
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    for part in BATCHES:
        optimizer.zero_grad()
        functional.cross_entropy(head(model(inputs[part]).tanh()), targets[part]).backward()
        optimizer.step()


def turns():
    generator, critic = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (generator, critic)]
    for number, part in enumerate(BATCHES):
        critic.zero_grad()
        (critic(generator(noise[part]).detach()).mean() - critic(inputs[part]).mean()).backward()
        optimizers[1].step()
        if number % (2 if "often" in words else 3) == 0:
            generator.zero_grad()
            (-critic(generator(noise[part])).mean()).backward()
            optimizers["mistaken" in words].step()


class Centered(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.inner = nn.Linear(6, 3, bias)
        nn.init.zeros_(self.inner.bias) if bias else None

    def forward(self, given):
        return self.inner(given - 0.5 if "within" in words else given)


def prepared():
    """Of a bias that only one has, and of inputs that are prepared within the model."""
    own = Centered("unbiased" not in words)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    for part in BATCHES:
        optimizer.zero_grad()
        given = inputs[part] if "within" in words else inputs[part] - 0.5
        functional.cross_entropy(own(given + 0.1 if "shifted" in words else given), targets[part]).backward()
        optimizer.step()


def cached():
    """A contrastive loss over a batch that does not fit at once: its gradient is that of the outputs, passed on in parts."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for part in BATCHES:
        optimizer.zero_grad()
        parts = inputs[part].chunk(2)
        with torch.set_grad_enabled(not words):
            out = torch.cat([model(each) for each in parts])
        out = out.detach().requires_grad_() if words else out
        out = functional.normalize(out, dim=1)
        functional.cross_entropy(out @ out.T, torch.arange(8).flip(0)).backward()
        optimizer.step()


def clipped():
    optimizer, every = torch.optim.SGD(model.parameters(), lr=0.1), [*model.parameters()]
    together = [[own] for own in every] if "each" in words else [every[:2], every[2:]] if "parts" in words else [every]
    together = [every[2:]] if "head" in words else together
    for each in every if "hooks" in words else ():
        each.register_hook(lambda gradient: gradient * min(1.0, 0.05 / (float(gradient.norm()) + 1e-6)))
    model[0].requires_grad_("frozen" not in words)
    for part in BATCHES:
        if "kept" not in words:
            optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part]), targets[part]).backward()
        if "value" in words:
            nn.utils.clip_grad_value_(model.parameters(), 0.05)
        for each in together if "head" in words or not {"value", "hooks", "free"} & {*words} else []:
            nn.utils.clip_grad_norm_(each, 0.05)
        optimizer.step()


def rates():
    lowest, others = [*model[0].parameters()], [own for layer in model[1:] for own in layer.parameters()]
    ours = [0.05, 0.1] if "swapped" in words else [0.1, 0.05]
    groups = [{"params": each, "lr": rate} for each, rate in zip((lowest, others), ours, strict=True)]
    optimizer = (torch.optim.NAdam if "nesterov" in words else torch.optim.Adam)(groups)
    for part in BATCHES:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part]), targets[part]).backward()
        optimizer.step()


def warmup():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + (not words)) / 8)
    for part in BATCHES:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part]), targets[part]).backward()
        optimizer.step()
        schedule.step()


def incomplete():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(inputs[:20], targets[:20])
    for _ in range(2):
        for batch, wanted in DataLoader(data, batch_size=8, drop_last="dropped" in words):
            optimizer.zero_grad()
            functional.cross_entropy(model(batch), wanted).backward()
            optimizer.step()


def joined():
    """Two processes, of which the second one has fewer batches."""
    distributed.init_process_group("gloo")
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with parallel.join():
        for part in BATCHES[2 * distributed.get_rank() :]:
            optimizer.zero_grad()
            functional.cross_entropy(parallel(inputs[part]), targets[part]).backward()
            optimizer.step()


globals()[kind]()
