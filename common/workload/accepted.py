"""The known differences between two implementations of a model that a user may accept, by name."""

from collections.abc import Iterable, Mapping

from samestep.common.errors import unknown

ACCEPTABLE: Mapping[str, str] = {
    "double_bias": "torch's second bias of a recurrent layer stands still",
    "epsilon": "torch adds the epsilon that Keras adds, and where Keras adds it",
    "momentum": "torch's running statistics and optimizer have Keras' momentum",
    "gelu": "torch's GELU is computed as Keras' is",
    "slope": "torch's leaky ReLU has Keras' slope",
    "scale": "torch multiplies and adds between two layers what Keras does",
    "order": "torch puts the inputs of a layer into Keras' order",
    "pooling": "torch pools over positions as Keras does",
    "padding_idx": "torch trains the row of padding",
    "dropout": "what each side drops is not compared",
    "added_loss": "Keras' loss leaves out what regularizers add",
    "clip_epsilon": "torch clips by a norm without adding to it, as Keras does",
    "learning_rate": "torch takes Keras' learning rate",
    "beta_1": "torch takes Keras' beta_1",
    "beta_2": "torch takes Keras' beta_2",
    "weight_decay": "torch takes Keras' weight decay",
    "amsgrad": "torch switches amsgrad on or off as Keras does",
    "nesterov": "torch switches Nesterov's momentum on or off as Keras does",
}
"""Name -> what is done to compensate for the difference, so later differences show."""


def check_accepted(names: Iterable[str], where: str) -> tuple[str, ...]:
    """Returns the names without duplicates.

    Args:
        names: The names of the differences to accept.
        where: Where the names were given, for messages.

    Raises:
        ConfigError: A name is not in `ACCEPTABLE`.
    """
    found = tuple(dict.fromkeys(name.strip() for name in names))
    for name in found:
        if name not in ACCEPTABLE:
            raise unknown("difference to accept", name, ACCEPTABLE, where)
    return found
