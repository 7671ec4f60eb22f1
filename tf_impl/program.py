"""The training step of all TensorFlow strategies, on the replicas of a process. Each strategy passes the parts that differ."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import tensorflow as tf

from samestep.common.batch import Batch, BatchPart
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Hardware, PlainProgram, TrainState
from samestep.common.strategy import Run
from samestep.common.techniques.used import first_steady_step
from samestep.common.tree import add_up
from samestep.tf_impl import weights
from samestep.tf_impl.devices import wait_for
from samestep.tf_impl.features.applied import with_balance
from samestep.tf_impl.holding import Holding, Whole
from samestep.tf_impl.models.inputs import Inputs, as_inputs, gathering
from samestep.tf_impl.observing.activations import kept_bytes
from samestep.tf_impl.observing.exchanges import Copy, copies, sends_of, short_name
from samestep.tf_impl.observing.gpus import follow_allocators
from samestep.tf_impl.optimizers import bind_update, coefficients
from samestep.tf_impl.prediction import Join, build_prediction, join_replicas
from samestep.tf_impl.step import Part, accumulate, mean_loss, micro_batches, sum_parts, with_added
from samestep.tf_impl.techniques.applied import averaged, build_exchange, exchange_read, meeting, transform_replicas
from samestep.tf_impl.upstream import function_names


@dataclasses.dataclass(frozen=True)
class Parts:
    """The parts of a program in which strategies differ.

    Attributes:
        strategy: Model and optimizer state are made in its scope, the step runs under it, and it sums the
            gradients.
        hardware: What the program runs on.
        sum_losses: Sums losses [steps] over processes, as a tree; this process's own replicas are summed already.
        join: Joins the predictions of this process's replicas and, in rank order, those of other processes.
        compiled: Whether XLA compiles the forward and backward pass of each micro-batch; sums, exchange and update stay outside.
        holding: How replicas hold the parameters.
    """

    strategy: tf.distribute.Strategy
    hardware: Hardware
    sum_losses: Callable[[np.ndarray], np.ndarray] = lambda losses: losses
    join: Join = join_replicas
    compiled: bool = False
    holding: Holding = dataclasses.field(default_factory=Whole)


class TrainingProgram(PlainProgram):
    """The replicas of one process in training."""

    def __init__(self, run: Run, parts: Parts) -> None:
        self.run, self.parts, self.hardware = run, parts, parts.hardware
        self.update = bind_update(run.optimizer)
        self._compiled = parts.compiled or run.techniques.compile
        self._step = self._skipped = self._gradients_bytes = 0
        self._shards, self._gather = [BatchPart.of(run.mesh, each) for each in range(run.mesh.size)], gathering(run)
        self._losses: list[tuple[tf.Tensor, ...]] = []
        self._copies: list[Copy] = []
        self._activations, self._allocated = dict[str, int](), dict[str, int]()
        with parts.strategy.scope():
            self.model, self.params = weights.fresh_model(run, parts.holding.make)
            self.trained = weights.trained(run, self.params)
            self.slots = weights.empty_slots(run, self.trained)
        self.loss = with_balance(run, with_added(run, mean_loss(run), self.model), self.model)
        self._buffers = weights.buffers_of(self.model)
        self._predict = build_prediction(parts.strategy, self.model, bool(self._buffers), parts.join)
        self._own_exchange = build_exchange(run, parts.strategy, self.trained, self.slots)
        self._meeting = meeting(self._own_exchange)
        self._first_own = first_steady_step(run.techniques)
        # Nothing here branches on a tensor: without autograph the trace takes half the time.
        # There is a function for each way, since one that takes a bool is called more slowly; what is not called is not traced.
        self._train = {
            is_plain: tf.function(functools.partial(self._replicated_step, is_plain), autograph=False)
            for is_plain in (True, False)
        }
        compiled = tf.function(self.gradients, autograph=False, jit_compile=True)
        self._part_gradients = compiled if self._compiled else self.gradients

    def step(self, batch: Batch) -> None:
        """Calls the traced step once; each replica takes its contiguous shard. Replicas that step alone meet after some steps."""
        self._losses.append(self._step_function()(*self._arguments(batch)))
        self._step += 1
        if self._meeting:
            self._meeting.after_update(self._step)

    def _step_function(self) -> Callable[..., tuple[tf.Tensor, ...]]:
        return self._train[self._own_exchange is None or self._step < self._first_own]

    def _arguments(self, batch: Batch) -> tuple[object, object, tf.Tensor]:
        def shard(own: tf.distribute.experimental.ValueContext) -> tuple[Inputs, ...]:
            return tuple(map(as_inputs, self._gather(batch, self._shards[own.replica_id_in_sync_group])))

        x, y = self.parts.strategy.experimental_distribute_values_from_function(shard)
        now = coefficients(self.run.optimizer_at(self._step + 1), self._step + 1 - self._skipped)
        return x, y, now

    def _replicated_step(
        self, is_plain: bool, x: Inputs, y: tf.Tensor, coefficients: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Takes a step on all replicas; it is traced once for each way to exchange that the run has."""
        losses = self.parts.strategy.run(self._replica_step, args=(x, y, coefficients, is_plain))
        return self.parts.strategy.experimental_local_results(losses)

    def _replica_step(self, x: Inputs, y: tf.Tensor, coefficients: tf.Tensor, is_plain: bool) -> tf.Tensor:
        """Runs on one replica: forward and backward on each micro-batch, then the exchange and the update of all replicas."""
        loss, gradients = sum_parts(self._part_gradients(*part) for part in micro_batches(x, y, self.run.passes))
        self._gradients_bytes = weights.nbytes(each for each in gradients if each is not None)
        gradients = self.parts.holding.sum_divided(dict(zip(self.trained, gradients, strict=True))).values()
        if self._own_exchange and not is_plain:
            gradients = exchange_read(self._own_exchange, gradients, self.trained.values())
        tf.distribute.get_replica_context().merge_call(self.apply, args=(coefficients, is_plain, *gradients))
        return loss

    def gradients(self, x: Inputs, y: tf.Tensor) -> Part:
        """Computes a micro-batch's share of the loss and of the gradient of the global mean loss, see `accumulate`.

        XLA compiles this for each micro-batch alone: in one program with others, it would be rounded otherwise.

        Args:
            x: The inputs of the micro-batch.
            y: Its targets.
        """
        return accumulate(self.model, self.loss, list(self.trained.values()), [(x, y)])

    def apply(
        self, strategy: tf.distribute.Strategy, coefficients: tf.Tensor, is_plain: bool, *gradients: tf.Tensor | None
    ) -> None:
        """Sums the gradients, clips by the global norm, and updates each parameter where its variable is.

        Args:
            strategy: The strategy, in its cross-replica context.
            coefficients: The coefficients of the step, as `optimizers.coefficients` computes them.
            is_plain: Whether the strategy sums the gradients; otherwise a technique's exchange has done so already.
            *gradients: The gradients of each replica, in the order of the parameters; None leaves a parameter unchanged.
        """
        read = {name: each for name, each in zip(self.trained, gradients, strict=True) if each is not None}
        if is_plain:
            shared = {name: each for name, each in read.items() if name not in self.parts.holding.divided}
            read |= zip(shared, self.exchange(strategy, shared), strict=True)
        add_up = functools.partial(self.parts.holding.sum_squares, list(read))
        total = transform_replicas(strategy, list(read.values()), self.run.techniques, add_up)
        for gradient, name in zip(total, read, strict=True):
            slots = tuple(slot[name] for slot in self.slots.values() if name in slot)
            strategy.extended.update(self.trained[name], self.update, args=(gradient, slots, coefficients), group=False)

    def exchange(self, strategy: tf.distribute.Strategy, gradients: Mapping[str, tf.Tensor]) -> list[tf.Tensor]:
        """Sums gradients over all replicas: packed, or with overlap each as soon as it is computed.

        Args:
            strategy: The strategy, in its cross-replica context.
            gradients: The gradients of each replica, by parameter.
        """
        pairs = [(gradient, self.trained[name]) for name, gradient in gradients.items()]
        if self.run.techniques.overlap:
            # Collectives go one after the other, and the backward pass yields the last parameter's gradient first.
            reduce = functools.partial(strategy.extended.batch_reduce_to, tf.distribute.ReduceOp.SUM)
            return [reduce([pair])[0] for pair in reversed(pairs)][::-1]
        return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)

    def losses(self) -> list[float]:
        """Returns the global losses since the last call."""
        taken, self._losses = self._losses, []
        return self.parts.sum_losses(np.array([add_up([x.numpy() for x in each], np.add) for each in taken])).tolist()

    def agree(self, value: float) -> float:
        """Computes the mean over processes."""
        total, count = self.parts.sum_losses(np.array([value, 1.0]))
        return float(total / count)

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Computes logits."""
        return self._predict(inputs)

    def state(self) -> TrainState:
        """Reads parameters and optimizer state."""
        read = self.parts.holding.read
        state = weights.snapshot(self._step, self.params, self.slots, read, self._buffers, self._skipped)
        kept = self._own_exchange.snapshot() if self._own_exchange else ()
        return averaged(dataclasses.replace(state, local=kept))

    def restore(self, state: TrainState) -> None:
        """Assigns everything on every replica."""
        self._step, self._skipped = state.step, state.skipped
        weights.restore(state, self.run.dtype, self.params, self.slots, self.parts.holding.write, self._buffers)
        if self._own_exchange:
            self._own_exchange.restore(state.local)

    def observe(self, batch: Batch) -> None:
        """Takes one more step, whose sends are read from its graph."""
        self._observed = batch
        with follow_allocators(self.parts.strategy.extended.worker_devices) as self._allocated:
            self.step(batch)

    def sends(self) -> tuple[Send, ...]:
        """Returns what one device takes part in, in the order of the graph."""
        graph = self._step_function().get_concrete_function(*self._arguments(self._observed)).graph  # pyrefly: ignore[missing-attribute]
        self._copies, self._activations = copies(graph), kept_bytes(graph)  # pyrefly: ignore[bad-assignment]
        sends = sends_of(graph, self.run.mesh.only_axis, self.run.mesh.size, self._copies)
        return sends + self._meeting.sends() if self._meeting else sends

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the variables of each replica; gradients live in the graph only, and are counted there."""
        extended = self.parts.strategy.extended
        devices = dict.fromkeys((*extended.worker_devices, *extended.parameter_devices))
        return tuple(self._footprint(device) for device in devices)

    def _footprint(self, device: str) -> Footprint:
        params_bytes = self._local_bytes(self.params.values(), device)
        copied = (copy for copy in self._copies if copy.of_variable and copy.target == short_name(device))
        return Footprint(
            device=device,
            params_bytes=params_bytes,
            params_peak_bytes=params_bytes + sum(copy.bytes for copy in copied),
            gradients_bytes=self._gradients_bytes,
            optimizer_bytes=sum(self._local_bytes(slot.values(), device) for slot in self.slots.values()),
            activations_bytes=None if self._compiled or self._activations is None else self._activations.get(device, 0),
            allocated_peak_bytes=self._allocated.get(device),
            residuals_bytes=self._local_bytes(self._own_exchange.kept.values() if self._own_exchange else (), device),
            source="graph",
            optimizer_dtype=weights.dtype_names(v for slot in self.slots.values() for v in slot.values()),
        )

    def _local_bytes(self, variables: Iterable[tf.Variable], device: str) -> int:
        """Returns the bytes of the copies of variables that are on a device."""
        local_results = self.parts.strategy.experimental_local_results
        every = (copy for variable in variables for copy in local_results(variable))
        return weights.nbytes(copy for copy in every if copy.device == device)

    def sync(self) -> None:
        """Waits for the accelerators of this process."""
        wait_for(self.parts.strategy.extended.worker_devices)


def num_compilations() -> int:
    """Returns how many functions this process has traced so far; XLA compiles none twice without a new trace."""
    return len(function_names())
