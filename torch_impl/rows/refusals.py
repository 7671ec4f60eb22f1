"""The reasons why rows refuse techniques and features. Imports no framework."""

from samestep.common.features.experts.balance import AS_WRITTEN, NOT_ROUNDED
from samestep.common.techniques.used import refusal

NO_SWITCH = {
    "overlap": "it exchanges when its API does; torch:ddp and torch:zero1 have a choice",
    **refusal("exchange", "its API adds up the gradients and has no hook for that; torch:ddp has one"),
    **refusal("periods", "its ranks exchange something in every step; those of torch:ddp can do without"),
}
_ORDERED = "torch:c10d, ddp, zero1, zero2 and fsdp have an order"
NO_ORDER = {"fixed_order": f"it adds up gradients where no hook of ours reaches; {_ORDERED}"}
SCHEDULED = {
    "fixed_order": "its schedule adds up the gradients of all --microbatches within a pass, and the order counts one gradient of "
    f"each parameter a pass; {_ORDERED}"
}
PARTS_OF_SUMS = {
    "fixed_order": f"its ranks compute parts of every example, so sums within one are cut by their number; {_ORDERED}"
}
BY_GROUPS = refusal(
    "periods",
    "its ranks share one model in every step, and no row has groups of ranks take steps alone (DiLoCo over FSDP); torch:ddp does "
    "so, with the whole model on each rank",
)
AT_OWNERS = {
    **refusal("gradient_error", NOT_ROUNDED),
    **refusal("replaces_code", AS_WRITTEN),
    "fixed_order": f"a rank adds up what its experts are given by all ranks in one sum, in no order of ours; {_ORDERED}",
}
ALONE = {
    **NO_SWITCH,
    **refusal("exchange", "one device exchanges no gradients"),
    **refusal("periods", "one device has no other to average with"),
}
BROADCASTS = {
    **refusal("exchange", "it also sends the updated parameters, which no hook of DDP's sees; torch:ddp compresses"),
    **refusal("periods", "each rank has the optimizer state of some parameters only; torch:ddp has all of it on each"),
}
PARTS_OF_MODELS = {
    "keep_dtypes": "its processes hold parts of a model, and hand activations on in float32; torch:c10d, ddp, zero1, zero2 and "
    "fsdp keep them"
}
SPLIT_LAYERS = {
    **NO_SWITCH,
    **PARTS_OF_MODELS,
    "fixed_order": "its micro-batches are those of --accumulation-steps or --microbatches, and one rank adds up all gradients of "
    f"an untied parameter already; {_ORDERED}",
    **refusal("exchange", "its ranks exchange activations; the gradients of parameters stay with them"),
    **refusal("periods", "its ranks have different parts of one model, and none can take a step alone"),
}
NO_WHOLE_GRADIENT = {
    **NO_SWITCH,
    **NO_ORDER,
    **PARTS_OF_MODELS,
    **refusal("transform", "no process sees the whole gradient"),
}
NEW_REPLICAS = {
    **NO_SWITCH,
    **NO_ORDER,
    "recompute": "its replicas have parameters only while their forward pass runs",
    "compile": "its replicas are copies of the module, which drop what was compiled",
    "norm": "its replicas are created again in every step, which loses their running statistics",
}
BY_CALLS = {
    **NO_WHOLE_GRADIENT,
    **refusal("exchange", "its workers exchange activations; the gradients of parameters stay with them"),
    "tied": "each worker's gradients stay with it, and no call adds the two halves up",
    "dropout": "the calls take activations along, but not which examples they are of",
}
"""Refusals for stages on RPC workers."""
