"""Random draws of a user's forward pass, held still: each is replaced by its mean, which no seed and no shard changes.

Dropout then passes on what it takes. What is replaced are the functions of TensorFlow that draw, which those of Keras call. What
draws elsewhere, as in NumPy, is not held still by this.
"""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf

Still = Callable[[tf.Tensor, Mapping[str, Any]], tf.Tensor]
"""(what was drawn, the arguments by name) -> what is returned in its place."""


@dataclasses.dataclass
class Draws:
    """Whether the draws of this process are held still.

    Attributes:
        are_installed: Whether the functions that draw look at it.
        are_still: What they look at.
        watcher: Called at every draw, if there is one.
    """

    are_installed: bool = False
    are_still: bool = False
    watcher: Callable[[], None] | None = None

    def install(self) -> None:
        """Has all functions that draw look at `are_still`; to be done before the user's file is imported."""
        if not self.are_installed:
            self.are_installed = True
            for (owner, names), still in _STILL.items():
                for name in names.split():
                    if hasattr(owner, name):
                        setattr(owner, name, _either(getattr(owner, name), still))

    @contextlib.contextmanager
    def held(self, still: bool = True) -> Iterator[None]:
        """Makes a context with the draws held still.

        Args:
            still: Whether they are.
        """
        before, self.are_still = self.are_still, still
        try:
            yield
        finally:
            self.are_still = before


DRAWS = Draws()


def _either(plain: Callable[..., Any], still: Still) -> Callable[..., Any]:
    signature = inspect.signature(plain)

    @functools.wraps(plain)
    def drawn(*args: Any, **named: Any) -> Any:
        if DRAWS.watcher is not None:
            DRAWS.watcher()
        made = plain(*args, **named)
        if not DRAWS.are_still:
            return made
        bound = signature.bind(*args, **named)
        bound.apply_defaults()
        return still(made, bound.arguments)

    return drawn


def _filled(made: tf.Tensor, value: Any) -> tf.Tensor:
    return tf.zeros_like(made) + tf.cast(value, made.dtype)


def _mean(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, given["mean"])


def _middle(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    low, high = given["minval"], 1 if given["maxval"] is None else given["maxval"]
    return _filled(made, (low + high - 1) // 2 if made.dtype.is_integer else (low + high) / 2)


def _passed_on(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return tf.convert_to_tensor(given["x"])


def _in_order(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return tf.convert_to_tensor(given["value"])


def _likeliest(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, tf.argmax(given["logits"], -1)[:, None])


def _of_gamma(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, given["alpha"] / (1.0 if given["beta"] is None else given["beta"]))


def _of_poisson(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, given["lam"])


def _of_binomial(made: tf.Tensor, given: Mapping[str, Any]) -> tf.Tensor:
    return _filled(made, tf.cast(given["counts"], made.dtype) * tf.cast(given["probs"], made.dtype))


_STILL: Mapping[tuple[Any, str], Still] = {
    (tf.nn, "dropout"): _passed_on,
    (tf.nn.experimental, "stateless_dropout"): _passed_on,
    (tf.random, "normal truncated_normal stateless_normal stateless_truncated_normal"): _mean,
    (tf.random, "uniform stateless_uniform"): _middle,
    (tf.random, "categorical stateless_categorical"): _likeliest,
    (tf.random, "shuffle"): _in_order,
    (tf.random.experimental, "stateless_shuffle"): _in_order,
    (tf.random, "gamma stateless_gamma"): _of_gamma,
    (tf.random, "poisson"): _of_poisson,
    (tf.random, "stateless_binomial"): _of_binomial,
    (tf.random.Generator, "normal truncated_normal"): _mean,
    (tf.random.Generator, "uniform"): _middle,
    (tf.random.Generator, "binomial"): _of_binomial,
}
"""Where a function is looked up, and its names -> what it returns instead of a draw."""
