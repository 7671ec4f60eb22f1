"""A model of texts that is called on several arguments: batches.py FRAMEWORK [WORD...], where words are how and what is other."""

import sys

import numpy as np

framework, *words = sys.argv[1:]
draw = np.random.default_rng(0)
ids, labels = draw.integers(1, 9, (24, 5)), draw.integers(0, 3, (24, 1))
positions = np.tile(np.arange(5), (24, 1))
if "labels" in words:
    labels[[1, 2, 9]] = (labels[[1, 2, 9]] + 1) % 3
if "positions" in words:
    positions = positions[:, ::-1].copy()
if "moved" in words:
    labels[:8] = np.roll(labels[:8], 1, 0)
if "shuffled" in words:
    ids, labels, positions = (np.concatenate([each[7::-1], each[8:]]) for each in (ids, labels, positions))
if "other" in words:
    ids, labels, positions = 9 - ids, labels + 1, 4 - positions[:, ::-1] % 3
BATCHES = [
    {"input_ids": ids[part], "labels": labels[part], "position_ids": positions[part]}
    for part in (slice(start, start + 8) for start in (0, 8, 16))
]


def of_torch():
    import torch
    from torch import nn

    class Texts(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places, self.head = nn.Embedding(9, 6), nn.Embedding(5, 6), nn.Linear(6, 4)

        def forward(self, input_ids, labels=None, position_ids=None):
            if isinstance(input_ids, dict):
                return self(**input_ids)
            hidden = self.words(input_ids) * self.places(position_ids)
            return nn.functional.cross_entropy(self.head(hidden.mean(1)), labels[:, 0])

    torch.manual_seed(0)
    model = Texts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in BATCHES:
        given = {name: torch.from_numpy(each) for name, each in batch.items()}
        loss = model(*given.values()) if "places" in words else model(given) if "mapping" in words else model(**given)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def of_keras():
    import keras
    import tensorflow as tf

    class Texts(keras.Model):
        def __init__(self):
            super().__init__()
            self.words, self.places = keras.layers.Embedding(9, 6), keras.layers.Embedding(5, 6)
            self.head = keras.layers.Dense(4)

        def call(self, given):
            hidden = self.words(given["input_ids"]) * self.places(given["position_ids"])
            found = self.head(tf.reduce_mean(hidden, 1))
            self.add_loss(
                keras.ops.mean(
                    keras.losses.sparse_categorical_crossentropy(given["labels"][:, 0], found, from_logits=True)
                )
            )
            return found

    keras.utils.set_random_seed(0)
    model = Texts()
    optimizer = keras.optimizers.SGD(0.1)

    def step(batch):
        with tf.GradientTape() as tape:
            model(batch)
            loss = sum(model.losses)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    if "compiled" in words:
        model.compile(optimizer, jit_compile=False)
        model.fit(
            {name: np.concatenate([each[name] for each in BATCHES]) for name in BATCHES[0]},
            batch_size=8,
            shuffle=False,
            verbose=0,
        )
        return
    for batch in BATCHES:
        step({name: tf.constant(each) for name, each in batch.items()})


{"torch": of_torch, "keras": of_keras}[framework]()
