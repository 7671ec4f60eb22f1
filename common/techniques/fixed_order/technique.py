"""The fixed order as a technique.

With Ψ numbers of w bytes and N devices, a device sends 2(N-1)/N w Ψ bytes, as many as in a ring: in an all-to-all, each piece
to the device that adds it up, and in an all-gather, the sums to all.
"""

from collections.abc import Iterator, Sequence

from samestep.common.errors import ConfigError
from samestep.common.features.used import running_buffers
from samestep.common.ledger import Send
from samestep.common.strategy import Run
from samestep.common.techniques.fixed_order.flag import MOST_LEAVES, FixedOrderFlags
from samestep.common.techniques.technique import Technique
from samestep.common.workload.models.findings import Habits
from samestep.common.workload.models.spec import Param


def check_order(run: Run) -> None:
    """Refuses a tree that the devices cannot share, and everything whose bits depend on the number of devices.

    Raises:
        ConfigError: The devices cannot share the tree, or the bits depend on their number.
    """
    leaves, devices = run.techniques.fixed_order or 1, run.mesh.replicas
    if leaves & (leaves - 1):
        below = 1 << leaves.bit_length() - 1
        above = f" or {2 * below}" if 2 * below <= MOST_LEAVES else ""
        raise ConfigError(f"--fixed-order {leaves} is not a power of two, which its tree needs; give {below}{above}.")
    if devices & (devices - 1) or devices > leaves:
        fitting = ", ".join(str(1 << bit) for bit in range(leaves.bit_length()))
        raise ConfigError(
            f"--fixed-order {leaves} gives each device an equal subtree of {leaves} micro-batches, which {devices} "
            f"devices cannot have; use --devices with one of {fitting}, or a larger --fixed-order."
        )
    for is_asked, why in _conflicts(run):
        if is_asked:
            raise ConfigError(f"--fixed-order {leaves} {why}")


def _conflicts(run: Run) -> Iterator[tuple[bool, str]]:
    """Yields what makes bits depend on the number of devices: whether the run has it, and the reason in words."""
    facts, buffers = run.workload.model.facts, running_buffers(run.workload.model)
    yield (
        run.techniques.accumulation_steps > 1,
        "says how many micro-batches there are; leave out --accumulation-steps.",
    )
    if buffers is not None:
        yield (
            not buffers.are_kept(run),
            f"needs micro-batches that do not affect each other, and they do in the {buffers.in_words} of "
            f"{buffers.asked_by}; add {buffers.kept_by}.",
        )
    yield (
        bool(facts.buffers or any(facts.featured.values()) or facts.may_skip) or facts.habits != Habits(),
        f"needs micro-batches that do not affect each other, and {run.workload.name} has buffers, draws random "
        "numbers, or may leave a parameter without a gradient; leave it out.",
    )


def ordered_sends(run: Run, params: Sequence[Param]) -> Iterator[Send]:
    """Yields the sends that sum gradients that are exchanged together over all devices.

    Args:
        run: What is trained.
        params: The parameters of the gradients.
    """
    row_bytes = -(-sum(param.size for param in params) // run.num_devices) * run.item_bytes
    for operation, size in (("all_to_all", run.num_devices * row_bytes), ("all_gather", row_bytes)):
        yield Send("backward", operation, run.mesh.only_axis, run.num_devices, size)


FIXED_ORDER = Technique(flags=FixedOrderFlags, refuse=check_order, gradient_sends=ordered_sends)
