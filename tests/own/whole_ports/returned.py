"""Ports whose models compute their own loss, or are given targets that do not count."""

import functools

from tests.own.whole_ports.tables import model

part = functools.partial


def torch_labelled(own_loss=True):
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.hidden, self.out = nn.Embedding(31, 8), nn.Linear(8, 16), nn.Linear(16, 31)

        def forward(self, ids, labels):
            logits = self.out(self.hidden(self.table(ids)).tanh())
            if not own_loss:
                return logits
            return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits

    return Net()


def tf_labelled(own_loss=True):
    import keras
    import tensorflow as tf
    from keras import layers

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.table, self.hidden, self.out = layers.Embedding(31, 8), layers.Dense(16, "tanh"), layers.Dense(31)

        def call(self, batch):
            logits, labels = self.out(self.hidden(self.table(batch["ids"]))), batch["labels"]
            if not own_loss:
                return logits
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.maximum(labels, 0), logits)
            counts = tf.cast(labels >= 0, logits.dtype)
            return tf.reduce_sum(losses * counts) / tf.reduce_sum(counts), logits

    return Net()


def counted(targets):
    return (targets >= 0).sum()


model("returned", "padded_sentences", torch_labelled, tf_labelled, loss="returned", reduction=counted)
model("ignored", "padded_sentences", part(torch_labelled, False), part(tf_labelled, False))
