"""The optimizers, in words and formulas; the three mirrors turn them into arithmetic.

With g the gradient of the GLOBAL mean loss, t = 1, 2, ... the step, and every hyper-parameter a float64:

    sgd      v <- momentum * v + g                     slots: momentum (v, zero at the start)
             w <- w - lr * v

    adamw    w <- w - lr * weight_decay * w            decoupled: the decay never enters the moments
             m <- beta1 * m + (1 - beta1) * g          slots: first_moment (m), second_moment (s), zero at the start
             s <- beta2 * s + (1 - beta2) * g^2
             w <- w - lr * (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon)

References:
    Sutskever et al. 2013 (momentum, in PyTorch's form); Loshchilov and Hutter, arXiv 1711.05101 (AdamW).
"""

import dataclasses

OWN = "own"
"""The name of an optimizer that the user's file builds."""


@dataclasses.dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer with its hyper-parameters.

    Attributes:
        name: "sgd", "adamw" or, of the user's, "own".
        learning_rate: lr above.
        momentum: Of sgd.
        beta1: Of adamw.
        beta2: Of adamw.
        epsilon: Of adamw; outside the root, added to the bias-corrected root.
        weight_decay: Of adamw. Dyadic, as are the workloads' rates: every framework multiplies the weights by
            1 - lr * weight_decay, and float32 rounds a factor so near 1 by up to 3e-8, the same way at every step.
        source: Of the user's: where it is declared, as FILE.py:NAME.
        kept: Of the user's: the names of its slots.
    """

    name: str
    learning_rate: float
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 2**-7
    source: str = ""
    kept: tuple[str, ...] = ()

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of its slots, each shaped like the parameters."""
        return {"sgd": ("momentum",), "adamw": ("first_moment", "second_moment"), OWN: self.kept}[self.name]
