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


def muon(params):
    import torch

    return torch.optim.Muon([param for param in params if param.ndim == 2], 2**-7)


def clipped(params):
    """Scales the gradients of all of its parameters by one norm."""
    import torch

    class Clipped(torch.optim.SGD):
        def step(self, closure=None):
            torch.nn.utils.clip_grad_norm_([each for group in self.param_groups for each in group["params"]], 0.1)
            return super().step(closure)

    return Clipped(params, 2**-7)


def rates(params):
    import torch

    kernels, others = ([param for param in params if (param.ndim > 1) == is_kernel] for is_kernel in (True, False))
    return torch.optim.AdamW([{"params": kernels, "weight_decay": 0.1}, {"params": others, "lr": 2**-8}], lr=2**-10)


def scheduled(params):
    """Its own schedule leaves it standing after two steps."""
    import torch

    made = torch.optim.SGD(params, 2**-4, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1.0 if step < 2 else 0.0)
    made.register_step_post_hook(lambda *_: schedule.step())
    return made


def averaged(params):
    """Keeps the running mean of each weight beside the step of AdamW."""
    import torch

    class Averaged(torch.optim.AdamW):
        @torch.no_grad()
        def step(self, closure=None):
            super().step()
            for group in self.param_groups:
                for param in group["params"]:
                    self.state[param].setdefault("average", torch.zeros_like(param)).lerp_(param, 0.1)

    return Averaged(params, 2**-10)


def lbfgs(params):
    import torch

    return torch.optim.LBFGS(params)


LION = samestep.Model(torch=gpt, optimizer={"torch": lion})
SIGNS = samestep.Model(torch=gpt, optimizer={"torch": signs})
RMSPROP = samestep.Model(torch=gpt, optimizer={"torch": rmsprop})
ADAM = samestep.Model(torch=gpt, optimizer={"torch": adam})
AMSGRAD = samestep.Model(torch=gpt, optimizer={"torch": amsgrad})
RPROP = samestep.Model(torch=gpt, optimizer={"torch": rprop})
MOMENTUM = samestep.Model(torch=gpt, optimizer={"torch": momentum})
MUON = samestep.Model(torch=gpt, optimizer={"torch": muon})
CLIPPED = samestep.Model(torch=gpt, optimizer={"torch": clipped})
RATES = samestep.Model(torch=gpt, optimizer={"torch": rates})
SCHEDULED = samestep.Model(torch=gpt, optimizer={"torch": scheduled})
LBFGS = samestep.Model(torch=gpt, optimizer={"torch": lbfgs})
AVERAGED = samestep.Model(torch=gpt, optimizer={"torch": averaged})
