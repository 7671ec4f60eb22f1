"""A mixture of experts: a router sends each token to some of the MLPs of its block.

Shape suffixes: N tokens, D width, E experts, k experts of a token, S = N k slots: a token and an expert that it takes.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from samestep.common.workload.models.transformer import TransformerSpec
from samestep.tf_impl.models.layers import ACTIVATIONS, Linear, VariableFactory


class Stacked:
    """Linear layers side by side, each for some of the rows; the shapes of what it keeps do not depend on routing."""

    def __init__(self, variable: VariableFactory, name: str, bias: bool) -> None:
        self.kernel = variable(f"{name}/kernel")
        self.bias = variable(f"{name}/bias") if bias else None

    def __call__(self, x: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
        """Applies each layer to its rows: [rows, in] -> [rows, out].

        Args:
            x: The rows of the first layer, then those of the second, and so on.
            counts: How many rows each layer has; the outputs of rows behind their sum are zero.
        """

        def parts(rows: tf.Tensor) -> list[tf.Tensor]:
            behind = rows.shape[0] or tf.shape(rows)[0]
            sizes = tf.concat([counts, [behind - tf.reduce_sum(counts)]], 0)
            return tf.split(rows, sizes, num=self.kernel.shape[0] + 1)

        def zeros(rows: list[tf.Tensor], columns: int) -> tf.Tensor:
            return tf.zeros((tf.shape(rows[-1])[0], columns), rows[-1].dtype)

        @tf.custom_gradient
        def multiply(x: tf.Tensor, kernel: tf.Tensor, *biases: tf.Tensor) -> tuple[tf.Tensor, Callable[..., object]]:
            def gradient(dy: tf.Tensor) -> tuple[tf.Tensor, ...]:
                kernels, own, gradients = tf.unstack(kernel), parts(x), parts(dy)
                pairs = list(zip(own[:-1], gradients[:-1], kernels, strict=True))
                dx = tf.concat(
                    [*(tf.matmul(d, k, transpose_b=True) for _, d, k in pairs), zeros(own, kernel.shape[1])], 0
                )
                dkernel = tf.stack([tf.matmul(rows, d, transpose_a=True) for rows, d, _ in pairs])
                dbiases = [tf.stack([tf.reduce_sum(d, 0) for _, d, _ in pairs]) for _ in biases]
                return tf.ensure_shape(dx, x.shape), dkernel, *dbiases

            own = parts(x)
            products = [tf.matmul(rows, k) for rows, k in zip(own[:-1], tf.unstack(kernel), strict=True)]
            for bias in biases:
                products = [y + b for y, b in zip(products, tf.unstack(bias), strict=True)]
            y = tf.concat([*products, zeros(own, kernel.shape[2])], 0)
            return tf.ensure_shape(y, (x.shape[0], kernel.shape[2])), gradient

        return multiply(x, *(tf.convert_to_tensor(each) for each in (self.kernel, self.bias) if each is not None))


class Experts:
    """Sum over the k likeliest experts of each token, weighted by their normalized probabilities.

    Attributes:
        noted: The tokens of each expert and the sums of its probabilities in the last call.
    """

    def __init__(self, variable: VariableFactory, name: str, spec: TransformerSpec) -> None:
        self.router = Linear(variable, f"{name}/router", bias=False)
        self.up, self.down = (Stacked(variable, f"{name}/{layer}", not spec.is_llama) for layer in ("up", "down"))
        self.gate = Stacked(variable, f"{name}/gate", bias=False) if spec.is_llama else None
        self.activate = ACTIVATIONS[spec.activation]
        self.top_k, self.count = spec.top_k, spec.experts
        self.noted: Sequence[tf.Tensor] = ()

    def __call__(self, x_BTD: tf.Tensor) -> tf.Tensor:
        """Mixes the outputs of each token's experts: [B, T, D] -> [B, T, D]; notes the terms of the load-balancing loss."""
        tokens, width = x_BTD.shape[1:]
        x_ND = tf.reshape(x_BTD, (-1, width))
        probabilities_NE = tf.nn.softmax(self.router(x_ND))
        top_Nk, chosen_Nk = tf.math.top_k(probabilities_NE, self.top_k)
        weights_Nk = top_Nk / tf.reduce_sum(top_Nk, -1, keepdims=True)
        counts_E = tf.reduce_sum(tf.one_hot(tf.reshape(chosen_Nk, (-1,)), self.count, dtype=tf.int32), 0)
        self.noted = tf.cast(counts_E, x_ND.dtype), tf.reduce_sum(probabilities_NE, 0)
        order_S = tf.argsort(tf.reshape(chosen_Nk, (-1,)), stable=True)  # by expert, then by token
        out_SD = self.compute(tf.gather(x_ND, order_S // self.top_k), counts_E)
        out_NkD = tf.reshape(tf.gather(out_SD, tf.math.invert_permutation(order_S)), (-1, self.top_k, width))
        return tf.reshape(tf.matmul(weights_Nk[:, None], out_NkD), (-1, tokens, width))

    def compute(self, x_SD: tf.Tensor, counts_E: tf.Tensor) -> tf.Tensor:
        """Computes the outputs of the experts: [S, D] -> [S, D].

        Args:
            x_SD: The tokens of the first expert, then those of the second one, and so on.
            counts_E: The number of tokens of each expert.
        """
        inner = self.up(x_SD, counts_E)
        if self.gate is None:
            return self.down(self.activate(inner), counts_E)
        one = tf.constant(1.0, x_SD.dtype)  # as in `GatedMlp`: otherwise a cast of it is kept
        return self.down(tf.nn.silu(self.gate(x_SD, counts_E), one) * inner, counts_E)
