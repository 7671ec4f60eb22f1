"""Pairs of scripts as strangers write them: the script, a word for it, what is said of the two, and words of that."""

PAIRS = [
    ("groups", "each", "same", "groups are the same in another order"),
    ("groups", "swapped", "unnamed", "update"),
    ("gan", "together", "same", ""),
    ("terms", "idle", "same", "one of the two calls its model more often on the same examples, which changes nothing"),
    ("terms", "clipped", "same", "B clips its gradients to a norm of 100, and A does not; no step shows it"),
    ("terms", "twice", "unnamed", "A calls its model on 8 examples 8 times, and B on the same 16 times"),
    ("terms", "flat", "other_targets", "the same inputs and weights give another loss"),
    (
        "closures",
        "kept",
        "kept_between_calls",
        "3 of the calls of this step added their gradients to those of the call before",
    ),
    ("stream", "repeated", "repeated_in_a_pass", "B is given 32 examples again, and A none"),
    ("moved", "less", "update_factors", "the update of 3.weight is 0.700 times A's"),
    ("encoders", "detached", "same", "further examples, which changes no loss and no gradient that both have"),
    ("encoders", "detached younger", "same", "only B has Sequential.0.weight"),
    ("encoders", "reached", "missing_gradients", "6 parameters (Sequential.1.0.weight, "),
    ("encoders", "reached younger", "missing_gradients", "6 parameters (Sequential.0.weight, "),
    ("encoders", "reached still", "missing_gradients", "get gradients in B alone: frozen, detached, missing or not"),
    ("frozen", "forgotten", "missing_gradients", "6 parameters (Sequential.0.weight, "),
    ("turns", "often", "other_turn", "step 4 updates "),
    ("prepared", "within", "same", "the two call their models on other numbers"),
    ("prepared", "shifted", "unnamed", "0 of A's 8 examples are among the 8 of B"),
    ("prepared", "shifted", "unnamed", "where one argument is another one, such as the labels, no example is alike"),
    ("prepared", "unbiased", "missing_gradients", "inner.bias gets a gradient in A alone"),
    ("cached", "lost", "missing_gradients", "get gradients in A alone"),
    (
        "clipped",
        "value",
        "clip_by_value",
        "A clips its gradients to a norm of 0.05, and B each of their numbers to 0.05",
    ),
    ("clipped", "each", "clip_each_alone", "B clips its gradients in 6 calls"),
    ("warmup", "late", "schedule_shifted", "from step 0 on, A uses the learning rate that B uses 1 step later"),
    ("incomplete", "dropped", "last_batch_dropped", "A takes a step on a batch of 4 examples where B leaves it out"),
    ("rates", "swapped", "update_factors", "of 0.weight, 0.bias is 0.500 times A's"),
    ("rates", "nesterov", "update_times", "only the optimizer of B has the options momentum_decay"),
]
NEWCOMERS = [
    ("temperature", "free", "unnamed", "step 0, update, layer scale"),
    ("critics", "column", "unnamed", "A calls its model on 8 examples 16 times, and B on the same 24 times"),
]
"""As above, of newcomers.py."""
KERAS_PAIRS = [
    ("gan", "swapped", "same", ""),
    ("gan", "late swapped", "same", ""),
    ("towers", "swapped", "same", ""),
    ("towers", "apart", "same", ""),
    ("towers", "forgotten", "optimizer_not_applied", "step 0 updates one/dense/kernel, one/dense/bias"),
    ("towers", "twice", "optimizer_not_applied", "step 1 updates one/dense/kernel, one/dense/bias"),
    ("towers", "faster", "other_hyperparameter", "step 0, hyper-parameters: lr"),
    ("fit", "each", "clip_each_tensor", "B clips the gradient of each tensor to a norm of 0.2, and A none"),
    ("fit", "value", "unnamed", "B clips each number of its gradients to 0.01, and A does not"),
    ("fit", "loose", "same", "B clips the gradient of each tensor to a norm of 1000, and A does not; no step shows it"),
    ("fit", "average", "same", ""),
    ("pairs", "joined", "same", ""),
    ("sampled", "eager", "same", ""),
    ("fakes", "compiled", "same", ""),
    (
        "loop",
        "clipped",
        "clip_forgotten",
        "layer model/dense_1: B clips its gradients to a norm of 0.2",
    ),
]
"""As above, of Keras."""
MORE_KERAS_PAIRS = [
    ("loop clipped", "looser", "other_hyperparameter", "clip_max_norm is 0.2 in A and 0.4 in B"),
    ("towers", "lost", "optimizer_not_applied", "step 0 updates other/dense_2/kernel"),
    ("towers", "ahead", "optimizer_not_applied", "step 0 updates other/dense_2/kernel"),
    ("gan", "eager swapped", "same", ""),
    ("gan", "eager late", "same", ""),
    (
        "fit all",
        "each",
        "clip_each_tensor",
        "B clips the gradient of each tensor to a norm of 0.2, and A all of them to one of 0.2",
    ),
]
