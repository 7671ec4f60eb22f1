"""Why rows refuse techniques. Imports no framework."""

from samestep.common.features.experts.balance import NOT_ROUNDED
from samestep.common.techniques.used import refusal

ONE_DTYPE = {"keep_dtypes": "all layers of a Keras model follow one dtype policy, which --precision bf16 sets"}
NO_SWITCH = {
    **ONE_DTYPE,
    "overlap": "its API decides when gradients are exchanged; tf:mirrored and tf:multi_worker_mirrored let you choose",
    **refusal(
        "exchange",
        "its API adds up the gradients and has no hook for another exchange; tf:multi_worker_mirrored can use one",
    ),
    **refusal(
        "periods",
        "its replicas share parameters or have to communicate in every step; those of tf:mirrored do not",
    ),
}
NO_ORDER = {
    "fixed_order": "it adds up gradients where samestep has no hook; tf:mirrored and tf:multi_worker_mirrored can fix the order"
}
ALONE = {
    **NO_SWITCH,
    **refusal("exchange", "one device exchanges no gradients"),
    **refusal("periods", "there is no other device to average with"),
}
REMOTE = {
    **NO_SWITCH,
    **NO_ORDER,
    "recompute": "tf.recompute_grad reads every variable of a segment four times, and each read sends it",
    "compile": "XLA cannot compile a function whose variables are on another device",
    "norm": "every replica would write to the only copy of the running statistics",
}
ALREADY_COMPILED = {
    **NO_SWITCH,
    **NO_ORDER,
    "compile": "XLA always compiles it",
    "experts": "XLA needs shapes that are known before a step, but the number of tokens of an expert is not",
}
NO_COLLECTIVES = {"compile": "XLA cannot compile our collectives between the replicas of a process"}
OWN_VARIABLES = {
    **refusal("gradient_error", NOT_ROUNDED),
    "recompute": "tf.recompute_grad returns no gradient for a variable of which each replica has its own (2.21)",
}
IN_PARTS = {
    "experts": "DTensor has no layout for tokens that are sorted by their experts",
    **NO_SWITCH,
    **NO_ORDER,
    "recompute": "DTensor sums activations and gradients a second time at both ends of tf.recompute_grad",
    "compile": "DTensor splits the step itself, before XLA can compile it",
    "norm": "a function that assigns running statistics reads the values from before the assignment (2.21)",
}
