"""Models whose packages are imported once for all workers, or by each, where that is not safe."""

import os

from torch_zoo import points  # noqa: F401

import samestep

os.environ["NOTING"] = "quiet"


def noisy():
    from torch import nn

    from tests.imported import noting

    print(noting.where())

    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x + noting.noise(x) if self.training else x)

    return Noisy(6, 2)


def threaded():
    from torch import nn

    from tests.imported import threading_package

    print(threading_package.where())
    return nn.Linear(6, 2)


NOISY = samestep.Model(torch=noisy, loss="mean_squared_error")
THREADED = samestep.Model(torch=threaded, loss="mean_squared_error")
