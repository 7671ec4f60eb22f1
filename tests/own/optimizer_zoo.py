"""Optimizers as users bring them, of a model in which the true gradient of the biases of the keys is zero."""

from torch_zoo import gpt

import samestep


def signs(params, beta=0.0, kept=0.0):
    """The sign of the gradient, or with betas that of what Lion averages."""
    import torch

    class Signs(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for param in group["params"]:
                    moment = self.state[param].setdefault("moment", torch.zeros_like(param))
                    param.add_((beta * moment + (1 - beta) * param.grad).sign(), alpha=-group["lr"])
                    moment.mul_(kept).add_(param.grad, alpha=1 - kept)

    return Signs(params, {"lr": 2**-8})


def lion(params):
    return signs(params, 0.9, 0.99)


def rmsprop(params):
    import torch

    return torch.optim.RMSprop(params, 2**-10, eps=1e-20)


def adam(params):
    import torch

    return torch.optim.Adam(params, 2**-10, eps=1e-20)


def amsgrad(params):
    import torch

    return torch.optim.AdamW(params, 2**-10, eps=1e-20, amsgrad=True)


def rprop(params):
    import torch

    return torch.optim.Rprop(params, 2**-10)


def momentum(params):
    import torch

    return torch.optim.SGD(params, 2**-7, momentum=0.9, nesterov=True)


LION = samestep.Model(torch=gpt, optimizer={"torch": lion})
SIGNS = samestep.Model(torch=gpt, optimizer={"torch": signs})
RMSPROP = samestep.Model(torch=gpt, optimizer={"torch": rmsprop})
ADAM = samestep.Model(torch=gpt, optimizer={"torch": adam})
AMSGRAD = samestep.Model(torch=gpt, optimizer={"torch": amsgrad})
RPROP = samestep.Model(torch=gpt, optimizer={"torch": rprop})
MOMENTUM = samestep.Model(torch=gpt, optimizer={"torch": momentum})
