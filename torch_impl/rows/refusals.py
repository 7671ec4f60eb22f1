"""The reasons why rows refuse techniques and features. Imports no framework."""

from samestep.common.features.experts.balance import AS_WRITTEN, NOT_ROUNDED
from samestep.common.techniques.used import refusal

NO_SWITCH = {
    "overlap": "its API decides when gradients are exchanged; torch:ddp and torch:zero1 let you choose",
    **refusal("exchange", "its API adds up the gradients and has no hook for another exchange; torch:ddp has one"),
    **refusal("periods", "its ranks have to communicate in every step; those of torch:ddp do not"),
}
_ORDERED = "torch:c10d, ddp, zero1, zero2 and fsdp can fix the order"
NO_ORDER = {"fixed_order": f"it adds up gradients where samestep has no hook; {_ORDERED}"}
SCHEDULED = {
    "fixed_order": "its schedule adds up the gradients of all --microbatches within a pass, but the order needs one gradient of "
    f"each parameter per pass; {_ORDERED}"
}
PARTS_OF_SUMS = {
    "fixed_order": f"its ranks compute parts of every example, so their number decides where sums are split; {_ORDERED}"
}
BY_GROUPS = refusal(
    "periods",
    "its ranks share one model in every step, and no row lets groups of ranks take steps alone (DiLoCo over FSDP); torch:ddp "
    "takes such steps, with the whole model on each rank",
)
AT_OWNERS = {
    **refusal("gradient_error", NOT_ROUNDED),
    **refusal("replaces_code", AS_WRITTEN),
    "fixed_order": f"each expert adds up the gradients of tokens of all ranks in one sum, which has no hook; {_ORDERED}",
}
ALONE = {
    **NO_SWITCH,
    **refusal("exchange", "one device exchanges no gradients"),
    **refusal("periods", "there is no other device to average with"),
}
BROADCASTS = {
    **refusal("exchange", "it also sends the updated parameters, which DDP's hooks do not see; torch:ddp can compress"),
    **refusal("periods", "each rank has only a part of the optimizer state; with torch:ddp each has all of it"),
}
PARTS_OF_MODELS = {
    "keep_dtypes": "its processes hold parts of a model and exchange activations in float32; torch:c10d, ddp, zero1, zero2 and "
    "fsdp can keep dtypes"
}
SPLIT_LAYERS = {
    **NO_SWITCH,
    **PARTS_OF_MODELS,
    "fixed_order": "its micro-batches are those of --accumulation-steps or --microbatches, and one rank already adds up all "
    f"gradients of an untied parameter; {_ORDERED}",
    **refusal("exchange", "its ranks exchange activations and keep the gradients of their parameters"),
    **refusal("periods", "its ranks have different parts of one model, so none can take a step alone"),
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
    "compile": "its replicas are copies of the module, which lose the compiled code",
    "norm": "its replicas are created anew in every step, which loses their running statistics",
}
BY_CALLS = {
    **NO_WHOLE_GRADIENT,
    **refusal("exchange", "its workers exchange activations and keep the gradients of their parameters"),
    "tied": "each worker keeps its own gradients, and no call adds up the two halves",
    "dropout": "its calls pass activations on, but not the numbers of the examples, on which dropout depends",
}
"""Refusals for stages on RPC workers."""
