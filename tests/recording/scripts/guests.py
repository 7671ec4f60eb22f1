"""Scripts as guests write them: guests.py KIND [WORD...], where a word is a refactoring or a mistake."""

import copy
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

kind, *words = sys.argv[1:]
torch.manual_seed(0)
torch.set_num_threads(1)
inputs, texts, labels = torch.randn(32, 6), torch.randn(32, 4), torch.randint(3, (32,))
model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
BATCHES = [slice(start, start + 8) for start in range(0, 32, 8)]


def critic():
    """A mean minus a mean: the gradient of the last bias is 0, or what rounding leaves of it, and Adam divides it by its size."""
    network, maker = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Linear(4, 6)
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.01, eps=1e-12) for each in (network, maker)]
    average = copy.deepcopy(network).requires_grad_(False)
    shares = torch.tensor([-1 / 5] * 5 + [1 / 3] * 3)
    for part in BATCHES:
        one, other = inputs[part][:5], maker(texts[part][:3])
        if "joined" in words:
            loss = (network(torch.cat([one, other]))[:, 0] * shares).sum()
        else:
            loss = network(other).mean() - network(one).mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if "decayed" in words:
                torch._foreach_mul_([each.data for each in network.parameters()], 0.999)
            torch._foreach_lerp_([*average.parameters()], [each.data for each in network.parameters()], 0.1)
            loss = -network(maker(texts[part])).mean()


def contrastive():
    """Images are told from texts, and texts from images, with the same targets; one of the two terms is easily lost."""
    text = nn.Linear(4, 3)
    optimizer = torch.optim.SGD([*model.parameters(), *text.parameters()], lr=0.1)
    for part in BATCHES:
        logits = 5 * functional.normalize(model(inputs[part]), dim=1) @ functional.normalize(text(texts[part]), dim=1).T
        own = torch.arange(8)
        losses = [functional.cross_entropy(each, own) for each in (logits, logits.T)]
        optimizer.zero_grad()
        (losses[0] if "one" in words else sum(losses) / 2).backward()
        optimizer.step()


def scheduled():
    """Of a schedule that one step leaves out, and of a loss that overflows."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1 if "each" in words else 2, 0.5)
    for number, part in enumerate([*BATCHES, *BATCHES[:2]]):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(inputs[part]), labels[part])
        (loss * float("inf") if "infinite" in words and number == 2 else loss).backward()
        for _ in range(1 + ("again" in words)):
            optimizer.step()
        schedule.step() if "skipped" not in words or number != 1 else None


def unfrozen():
    """The first layer is trained from the third step on, as a group of its own."""
    model[0].requires_grad_(False)
    optimizer = torch.optim.Adam(model[1:].parameters(), lr=0.01)
    for number, part in enumerate(BATCHES):
        if number == (3 if "late" in words else 2):
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.001})
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[part]), labels[part]).backward()
        optimizer.step()


def restored():
    """A network that is made anew in the middle, and goes on from the weights of the first."""
    network = model
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for number, part in enumerate(BATCHES):
        if number == 2 and "anew" in words:
            kept = copy.deepcopy((network.state_dict(), optimizer.state_dict()))
            network = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
            optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
            for each, state in zip(
                (network, optimizer), kept[: 2 - words.count("lost") - 2 * words.count("fresh")], strict=False
            ):
                each.load_state_dict(state)
        optimizer.zero_grad()
        functional.cross_entropy(network(inputs[part]), labels[part]).backward()
        optimizer.step()


def chosen():
    """One network chooses the points along a ray on which another one is called."""
    coarse, fine = (nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)) for _ in range(2))
    optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=0.01)
    for part in BATCHES:
        out = coarse(inputs[part, :, None])[..., 0]
        shares = out.log_softmax(1).exp() if "logs" in words else out.softmax(1)
        points = inputs[part] * (shares if "reached" in words else shares.detach())
        losses = [(each - texts[part, :1]).square().mean() for each in (out, fine(points[..., None])[..., 0])]
        optimizer.zero_grad()
        (sum(losses) if "double" not in words else losses[0] + 2 * losses[1]).backward()
        optimizer.step()


def share():
    """The share of one process of two, which is another one in each epoch."""
    optimizer, data = torch.optim.SGD(model.parameters(), lr=0.1), TensorDataset(inputs, labels)
    sampler = DistributedSampler(data, 2, 0)
    for epoch in range(3):
        if "forgotten" not in words:
            sampler.set_epoch(epoch)
        for batch, own in DataLoader(data, 8, sampler=sampler):
            optimizer.zero_grad()
            functional.cross_entropy(model(batch), own).backward()
            optimizer.step()


def grown():
    """A block is added, at first with a factor of 0, and is trained from then on; or it is added a step too early."""
    block = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for number, part in enumerate(BATCHES):
        if number == (1 if "early" in words else 2):
            optimizer.add_param_group({"params": block.parameters()})
        optimizer.zero_grad()
        out = model(inputs[part])
        out = out + (number - 1) * block(out) if number >= (1 if "early" in words else 2) else out
        functional.cross_entropy(out, labels[part]).backward()
        optimizer.step()


def clients():
    """Copies of a model are trained in turn, and their average is copied in the next round."""
    mean, states = model, []
    for number in range(4):
        if number == 2:
            shares = (0.5, 0.5) if "uneven" in words else (0.75, 0.25)
            average = {
                name: sum(share * state[name] for share, state in zip(shares, states, strict=True))
                for name in states[0]
            }
            mean = copy.deepcopy(model)
            mean.load_state_dict(average)
        own = copy.deepcopy(mean)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        functional.cross_entropy(own(inputs[BATCHES[number]]), labels[BATCHES[number]]).backward()
        if "twice" in words and number == 3:
            for each in own.parameters():
                each.grad *= 2
        optimizer.step()
        states.append(own.state_dict())


def folds():
    """A model is made anew for each fold; the optimizer may still hold the last one's parameters."""
    optimizer = None
    for part in BATCHES[:3]:
        own = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        if optimizer is None or "stale" not in words:
            optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        optimizer.zero_grad()
        functional.cross_entropy(own(inputs[part]), labels[part]).backward()
        optimizer.step()


def straight():
    """An absolute error of outputs that are far below all targets."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for part in BATCHES:
        target = texts[part, :3] + (20 if "shifted" not in words else 21)
        optimizer.zero_grad()
        (model(inputs[part]) - target).abs().mean().backward()
        optimizer.step()


def taught():
    """A student, and a teacher of its class, which the optimizer may hold as well, or train; and another one, which is called."""
    teacher, other = (nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)) for _ in range(2))
    other(inputs)
    held = [*model.parameters(), *(teacher.parameters() if {"held", "trained"} & {*words} else ())]
    optimizer = torch.optim.SGD(held, lr=0.1)
    for part in BATCHES:
        loss = functional.cross_entropy(teacher(inputs[part]), labels[part]) if "trained" in words else 0
        with torch.no_grad():
            target = teacher(inputs[part]).softmax(1)
        optimizer.zero_grad()
        (loss + functional.cross_entropy(model(inputs[part]), target)).backward()
        optimizer.step()


class Trained(nn.Module):
    """A model with a method for its step, which a wrapper runs in place of the forward pass, as those of Lightning do."""

    def __init__(self):
        super().__init__()
        self.net = model

    def forward(self, given):
        return self.net(given)

    def training_step(self, given, target):
        return functional.cross_entropy(self(given), target)

    def run(self, wrapper, method_name, *batch):
        original_forward = self.forward

        def wrapped_forward(*batch):
            self.forward = original_forward
            return getattr(self, method_name)(*batch)

        self.forward = wrapped_forward
        return wrapper(*batch)


class Wrapper(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *given):
        return self.module(*given)


def redirected():
    """A step is a method of the model."""
    own = Trained()
    wrapper, optimizer = Wrapper(own), torch.optim.SGD(own.parameters(), lr=0.1)
    for number, part in enumerate(BATCHES):
        if number == 2 and "other" in words:
            inputs[part.start] = 0.5
        batch = inputs[part], labels[part]
        optimizer.zero_grad()
        (own.run(wrapper, "training_step", *batch) if "wrapped" in words else own.training_step(*batch)).backward()
        optimizer.step()


def adapted():
    """Two domains are told apart by a loss over the examples of both, and one of them alone has labels."""
    features, head, judge = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*features.parameters(), *head.parameters(), *judge.parameters()], lr=0.1)
    domains = torch.tensor([1.0] * 8 + [0.0] * 8)
    for part in BATCHES:
        ours, theirs = features(inputs[part]), features(inputs[part] + 1)
        own = labels[part].clone()
        own[0] = (own[0] + ("mislabelled" in words)) % 3
        wanted = domains.flip(0) if "flipped" in words else domains
        told = functional.binary_cross_entropy_with_logits(judge(torch.cat([ours, theirs]))[:, 0], wanted)
        optimizer.zero_grad()
        (functional.cross_entropy(head(ours), own) + told).backward()
        optimizer.step()


def fakes():
    """A GAN with batch normalization, whose fakes are made without gradients, or detached."""
    maker, critic = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 6)), nn.Linear(6, 1)
    optimizers = [torch.optim.Adam(each.parameters(), lr=0.01) for each in (critic, maker)]
    for number, part in enumerate(BATCHES):
        with torch.set_grad_enabled("detached" in words):
            fake = maker(texts[part]).detach()
        loss = critic(fake).mean() - critic(inputs[part]).tanh().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if "often" in words and number % 3 < 2:
                break
            loss = -critic(maker(texts[part])).tanh().mean()


def adapter():
    """One that begins with zeros, so that its scale is in its gradient and not yet in the loss; no norm is clipped."""
    first, last = nn.Linear(6, 4), nn.Linear(4, 3)
    [nn.init.zeros_(each) for each in last.parameters()]
    model.requires_grad_(False)
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1)
    for part in BATCHES[:2]:
        optimizer.zero_grad()
        for row in range(part.start, part.stop, 2):
            logits = model(inputs[row : row + 2]) + (2 if "larger" in words else 1) * last(first(inputs[row : row + 2]))
            (functional.cross_entropy(logits, labels[row : row + 2]) / 4).backward()
        nn.utils.clip_grad_norm_([*first.parameters(), *last.parameters()], 100)
        optimizer.step()


def tuned():
    """A head is trained alone first, and has a learning rate of its own then."""
    head = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    for number, part in enumerate(BATCHES):
        if number == 2:
            groups = [{"params": model.parameters(), "lr": 0.001}, {"params": head.parameters(), "lr": 0.1}]
            both = [*model.parameters(), *head.parameters()]
            optimizer = torch.optim.Adam(both if "one" in words else groups, lr=0.001)
        optimizer.zero_grad()
        functional.cross_entropy(head(model(inputs[part])), labels[part]).backward()
        optimizer.step()


def whole():
    """All examples at every step, on which the model may be called twice."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        again = functional.cross_entropy(model(inputs), labels) if "twice" in words else 0
        (functional.cross_entropy(model(inputs), labels) + again).backward()
        optimizer.step()


def lazy():
    """Of two optimizers, one may never take a step."""
    head = nn.Linear(3, 3)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, head)]
    for part in [*BATCHES, *BATCHES]:
        for each in optimizers:
            each.zero_grad()
        functional.cross_entropy(head(model(inputs[part])), labels[part]).backward()
        for each in optimizers[: 1 if "lost" in words else 2]:
            each.step()


class Labelled(nn.Module):
    """Computes its loss, if it is given labels. The gradient of its key's bias is what rounding makes of 0."""

    def __init__(self):
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(6, 1, batch_first=True), nn.Linear(6, 3)

    def forward(self, texts, wanted=None):
        logits = self.head(self.attention(texts, texts, texts)[0])
        return logits if wanted is None else functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())


def labelled():
    """The labels are an argument of the model, or of the loss alone."""
    network, positions = Labelled(), labels.unsqueeze(1).expand(-1, 4)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for part in BATCHES:
        rows, wanted = inputs[part].unsqueeze(1) * torch.arange(1, 5).unsqueeze(1), positions[part]
        apart = functional.cross_entropy(network(rows).transpose(1, 2), wanted) if "apart" in words else None
        optimizer.zero_grad()
        (network(rows, wanted) if apart is None else apart).backward()
        optimizer.step()


def curved():
    """A Newton step by conjugate gradients, which ask for the derivative of many products of the gradient."""
    weights = [*model.parameters()]
    for part in BATCHES:
        loss = functional.cross_entropy(model(inputs[part]), labels[part])
        gradients = torch.autograd.grad(loss, weights, create_graph=True)
        slope = torch.cat([each.flatten() for each in gradients])
        rest = -slope.detach()
        found, way = torch.zeros_like(rest), rest
        for _ in range(3 if "fewer" in words else 5):
            products = torch.autograd.grad(slope @ way, weights, retain_graph=True)
            turned = torch.cat([each.flatten() for each in products]) + (0.2 if "damped" in words else 0.1) * way
            length = (rest @ rest) / (way @ turned)
            found, left = found + length * way, rest - length * turned
            rest, way = left, left + (left @ left) / (rest @ rest) * way
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(weights) + 0.5 * found, weights)


class Momentum(nn.Module):
    """Holds the average of its encoder, which moves before it is asked."""

    def __init__(self):
        super().__init__()
        self.encoder, self.average = (nn.Linear(6, 4) for _ in range(2))
        self.average.load_state_dict(self.encoder.state_dict())
        self.average.requires_grad_(False)

    @torch.no_grad()
    def follow(self):
        for own, led in zip(self.average.parameters(), self.encoder.parameters(), strict=True):
            own.lerp_(led, 0.5 if "faster" in words else 0.1)

    def forward(self, rows):
        if "later" not in words:
            self.follow()
        return functional.mse_loss(self.encoder(rows), self.average(rows.flip(1)))


def momentum():
    network = Momentum()
    optimizer = torch.optim.SGD(network.encoder.parameters(), lr=0.1)
    for part in BATCHES:
        optimizer.zero_grad()
        network(inputs[part]).backward()
        optimizer.step()
        if "later" in words:
            network.follow()


def stacked():
    """Models whose weights are stacked, called together or in turn."""
    models = [nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3)) for _ in range(3)]
    stacks, _ = torch.func.stack_module_state(models)
    weights = {name: stack.detach().requires_grad_() for name, stack in stacks.items()}
    optimizer = torch.optim.Adam(weights.values(), lr=0.01)

    def loss_of(own, rows, wanted):
        return functional.cross_entropy(torch.func.functional_call(models[0], own, (rows,)), wanted)

    for part in BATCHES:
        optimizer.zero_grad()
        if "turns" in words:
            for place in range(3):
                own = {name: stack[place] for name, stack in weights.items()}
                loss_of(own, inputs[part], labels[part]).backward()
        else:
            every = torch.vmap(torch.func.grad_and_value(loss_of), (0, None, None))
            for name, gradient in every(weights, inputs[part], labels[part])[0].items():
                weights[name].grad = gradient.detach()
        optimizer.step()


globals()[kind]()
