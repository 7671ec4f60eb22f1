"""Why rows refuse techniques. Imports no framework."""


def uncompressed(why: str) -> dict[str, str]:
    """The refusal of compression, and first of its option, for a reason."""
    return {"compress_rank": why, "compress": why}


UNNORMALISED = {"norm": "its models have no batch normalisation yet; torch's rows have"}
NO_SWITCH = {
    **UNNORMALISED,
    "overlap": "it exchanges when its API does; tf:mirrored and tf:multi_worker_mirrored have a choice",
    **uncompressed("its API adds up the gradients itself; tf:multi_worker_mirrored has one of ours"),
}
ALONE = {**NO_SWITCH, **uncompressed("one device exchanges no gradients")}
REMOTE = {
    **NO_SWITCH,
    "recompute": "tf.recompute_grad reads every variable of a segment four times, and each time it is sent",
    "compile": "XLA compiles no function whose variables are on another device",
}
IN_PARTS = {
    **NO_SWITCH,
    "recompute": "DTensor sums activations and gradients at each end of tf.recompute_grad once more",
    "compile": "DTensor cuts the step up itself, before XLA could compile it",
}
