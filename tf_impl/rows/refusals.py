"""Why rows refuse techniques. Imports no framework."""

from samestep.common.features.experts.balance import NOT_ROUNDED
from samestep.common.techniques.used import refusal

ONE_DTYPE = {
    "keep_dtypes": "the layers of a Keras model follow one policy for their dtypes, which --precision bf16 sets"
}
NO_SWITCH = {
    **ONE_DTYPE,
    "overlap": "it exchanges when its API does; tf:mirrored and tf:multi_worker_mirrored have a choice",
    **refusal("exchange", "its API adds up the gradients itself; tf:multi_worker_mirrored can use an exchange of ours"),
    **refusal(
        "periods",
        "its replicas share parameters, or exchange something in every step; those of tf:mirrored can do without",
    ),
}
NO_ORDER = {
    "fixed_order": "TensorFlow adds up its gradients in its own order; tf:mirrored and tf:multi_worker_mirrored can fix the order"
}
ALONE = {
    **NO_SWITCH,
    **refusal("exchange", "one device exchanges no gradients"),
    **refusal("periods", "one device has no other to average with"),
}
REMOTE = {
    **NO_SWITCH,
    **NO_ORDER,
    "recompute": "tf.recompute_grad reads every variable of a segment four times, and each time it is sent",
    "compile": "XLA compiles no function whose variables are on another device",
    "norm": "every replica would write running statistics in the one place where the variables are",
}
ALREADY_COMPILED = {
    **NO_SWITCH,
    **NO_ORDER,
    "compile": "XLA compiles it in any case",
    "experts": "XLA needs shapes that are known before a step, and how many tokens an expert takes is not known",
}
NO_COLLECTIVES = {"compile": "XLA compiles no collectives of ours between the replicas of a process"}
OWN_VARIABLES = {
    **refusal("gradient_error", NOT_ROUNDED),
    "recompute": "tf.recompute_grad returns no gradient of a variable of which each replica has its own (2.21)",
}
IN_PARTS = {
    "experts": "DTensor has no layout for rows that are sorted by what a router chose",
    **NO_SWITCH,
    **NO_ORDER,
    "recompute": "DTensor sums activations and gradients at each end of tf.recompute_grad once more",
    "compile": "DTensor cuts the step up itself, before XLA could compile it",
    "norm": "a function that assigns running statistics reads variables from before their assignment (2.21)",
}
