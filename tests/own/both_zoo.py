"""A CNN as users bring it who have it in both frameworks; both take images as [height, width, channels]."""

import numpy as np

import samestep


def images() -> tuple[np.ndarray, ...]:
    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(120, 8, 8, 3)), draw.integers(0, 10, 120)
    return inputs[:96], targets[:96], inputs[96:], targets[96:]


def torch_cnn():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
            self.hidden, self.out = nn.Linear(8, 16), nn.Linear(16, 10)

        def forward(self, x):
            x = nn.functional.max_pool2d(torch.relu(self.conv1(x.permute(0, 3, 1, 2))), 2)
            return self.out(torch.relu(self.hidden(torch.relu(self.conv2(x)).mean((2, 3)))))

    return Net()


def keras_cnn():
    import keras
    from keras import layers

    return keras.Sequential(
        [
            keras.Input((8, 8, 3)),
            layers.Conv2D(4, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(16, activation="relu"),
            layers.Dense(10),
        ]
    )


CNN = samestep.Model(torch=torch_cnn, tf=keras_cnn)
