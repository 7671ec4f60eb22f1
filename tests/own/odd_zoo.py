"""Models as users bring them whose parts are used now and then, hand several tensors on, or are parameters of the root."""

import samestep


def unused():
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.never, self.out = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 2)

        def forward(self, x):
            return self.out(self.hidden(x).tanh())

    return Net()


def sometimes():
    """An expert that a few examples are sent to, so that some steps, and some ranks, have none of them."""
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.expert, self.never = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 16)
            self.out = nn.Linear(16, 2)

        def route(self, x):
            rows = (x[:, 0] > 0.7).nonzero()[:, 0]
            return x.index_add(0, rows, self.expert(x[rows])) if len(rows) else x

        def forward(self, x):
            return self.out(self.route(self.inner(x).tanh()))

    return Net()


def sometimes_in_part():
    """The same, of which a parameter of the last stage is frozen."""
    net = sometimes()
    net.out.bias.requires_grad_(False)
    return net


def sometimes_segments(model):
    return {"inner": lambda x: model.inner(x).tanh(), "expert+never": model.route, "out": model.out}


def experts():
    """A list of experts, each of which sees the tokens that are sent to it."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.gate, self.out = nn.Embedding(31, 8), nn.Linear(8, 16), nn.Linear(8, 31)
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(16))

        def forward(self, ids):
            x = self.table(ids)
            weight, chosen = torch.softmax(self.gate(x), -1).max(-1)
            y = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                if (chosen == number).any():
                    y[chosen == number] = expert(x[chosen == number]) * weight[chosen == number][:, None]
            return self.out(x + y)

    return Net()


def unet():
    """A skip connection and a mask that go past layers; `scale` and `shift` belong to no module but the root."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.shift = nn.Parameter(torch.ones(16)), nn.Parameter(torch.zeros(1, 16))
            self.layers = nn.ModuleList([nn.Linear(6, 16), *(nn.Linear(16, 16) for _ in range(2))])
            self.out = nn.Linear(32, 2)

        def first(self, x):
            return self.layers[0](x).tanh() * self.scale, (x[:, :1] > 0).to(x.dtype)

        def second(self, handed):
            x, mask = handed
            return (self.layers[1](x) * mask).tanh(), mask, x

        def third(self, handed):
            x, mask, skip = handed
            return torch.cat([self.layers[2](x).tanh() + self.shift * mask, skip], 1)

        def forward(self, x):
            return self.out(self.third(self.second(self.first(x))))

    return Net()


def unet_segments(model):
    inner = {"layers.1": model.second, "layers.2+shift": model.third}
    return {"layers.0+scale": model.first, **inner, "out": model.out}


def casting():
    """Its norms compute in float32 whatever they are given, weights and all, and a softmax does."""
    import torch
    from torch import nn

    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(8))

        def forward(self, x):
            y = x.float()
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
            return (y * (1 + self.weight.float())).to(x.dtype)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.out = nn.Linear(6, 8), Norm(), nn.Linear(8, 2)

        def forward(self, x):
            x = self.norm(self.first(x))
            return self.out(nn.functional.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype) * x)

    return Net()


def queries():
    """Learned queries, which a module is given."""
    import torch
    from torch import nn

    class Read(nn.Module):
        def forward(self, queries, x):
            return (queries @ x.mT).softmax(-1) @ x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.read, self.out = nn.Linear(1, 4), Read(), nn.Linear(8, 2)
            self.queries = nn.Parameter(torch.randn(2, 4))

        def forward(self, x):
            return self.out(self.read(self.queries, self.first(x[..., None])).flatten(1))

    return Net()


def scalar():
    """A temperature that is a single number, as CLIP's."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.out, self.scale = nn.Linear(6, 8), nn.Linear(8, 2), nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return self.out(self.first(x).tanh() * self.scale.exp())

    return Net()


def teacher():
    """Weights that follow those of a part which is trained, written in the forward pass."""
    import copy

    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.student, self.out = nn.Linear(6, 8), nn.Linear(8, 2)
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)

        def forward(self, x):
            if self.training:
                with torch.no_grad():
                    for kept, moved in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
                        kept.lerp_(moved, 0.5)
            return self.out((self.student(x) + self.teacher(x)).tanh())

    return Net()


def uncertain():
    """A weight that only the loss uses, which the model returns for it."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.out, self.doubts = nn.Linear(6, 8), nn.Linear(8, 2), nn.Parameter(torch.zeros(2))

        def forward(self, x):
            return self.out(self.inner(x).tanh()), self.doubts

    return Net()


def by_doubts(outputs, targets):
    found, doubts = outputs
    return (found - targets) ** 2 * (-doubts).exp() + doubts


def without_decay_of_biases(params):
    import torch

    decayed, others = [p for p in params if p.ndim >= 2], [p for p in params if p.ndim < 2]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.25}, {"params": others, "weight_decay": 0.0}], 2**-6
    )


def of_the_whole_alone(params):
    import torch

    assert len(params) == 8
    return torch.optim.SGD(params, 2**-6)


UNUSED = samestep.Model(torch=unused, loss="mean_squared_error")
SOMETIMES = samestep.Model(torch=sometimes, loss="mean_squared_error", segments={"torch": sometimes_segments})
IN_PART = samestep.Model(torch=sometimes_in_part, loss="mean_squared_error", segments={"torch": sometimes_segments})
EXPERTS = samestep.Model(torch=experts)
CASTING, QUERIES, SCALAR, TEACHER = (
    samestep.Model(torch=each, loss="mean_squared_error") for each in (casting, queries, scalar, teacher)
)
UNET = samestep.Model(torch=unet, loss="mean_squared_error", segments={"torch": unet_segments})
UNET_GROUPS = samestep.Model(
    torch=unet,
    loss="mean_squared_error",
    segments={"torch": unet_segments},
    optimizer={"torch": without_decay_of_biases},
)
GROUPS = samestep.Model(torch=unused, loss="mean_squared_error", optimizer={"torch": without_decay_of_biases})
WHOLE = samestep.Model(
    torch=sometimes,
    loss="mean_squared_error",
    segments={"torch": sometimes_segments},
    optimizer={"torch": of_the_whole_alone},
)
UNCERTAIN = samestep.Model(torch=uncertain, loss={"torch": by_doubts})
