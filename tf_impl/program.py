"""THE training step, in TensorFlow, on the replicas of one process. A strategy hands it the parts in which it differs."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import tensorflow as tf

from common.batch import Batch
from common.config import RunConfig
from common.ledger import Exchange, Footprint
from common.strategy import TrainState
from common.workload.models.spec import init
from common.workload.table import Workload
from tf_impl import weights
from tf_impl.exchanges import copies, count_exchanges
from tf_impl.models import build_model
from tf_impl.models.losses import LOSSES
from tf_impl.optimizers import UPDATES, corrections


def _no_measures() -> Mapping[str, float]:
    return {}


def _one_replica(losses: np.ndarray) -> np.ndarray:
    return losses


@dataclasses.dataclass(frozen=True)
class Parts:
    """Where strategies differ.

    Attributes:
        strategy: The model and its slots are made in its scope, the step runs under it; it sums the gradients.
        first_replica: The number of this process's first replica among all.
        sum_losses: Sums losses [steps] over processes; this process's own replicas are summed already.
        measures: The strategy's own quantities.
        device_note: What its devices really are, in words.
        compiled: XLA compiles the forward and backward pass of each replica; exchange and update stay outside.
    """

    strategy: tf.distribute.Strategy
    first_replica: int = 0
    sum_losses: Callable[[np.ndarray], np.ndarray] = _one_replica
    measures: Callable[[], Mapping[str, float]] = _no_measures
    device_note: str = ""
    compiled: bool = False


class TrainingProgram:
    """The replicas of one process in training."""

    def __init__(self, workload: Workload, config: RunConfig, parts: Parts) -> None:
        self.parts = parts
        self.device_note = parts.device_note
        self.loss = LOSSES[workload.model.loss]
        self.optimizer = workload.optimizer(config)
        self.update = UPDATES[self.optimizer.name]
        self.micro_batches = config.techniques.micro_batches
        self.clip_norm = config.techniques.clip_norm
        self._step = 0
        self._losses: list[tf.Tensor] = []
        self._gradients_bytes = 0
        self._copied_bytes: collections.Counter[str] = collections.Counter()
        with parts.strategy.scope():
            variables = weights.NamedVariables(init(workload.model, config.seed), config.dtype)
            self.model = build_model(workload.model, variables)
            self.params = variables.by_name
            self.slots = {slot: weights.zeros_like(self.params) for slot in self.optimizer.slots}
        # Nothing here branches on a tensor: without autograph the trace takes half the time.
        self._train = tf.function(self._replicated_step, autograph=False)
        self._predict = tf.function(self.model, autograph=False)
        compiled = tf.function(self.gradients, autograph=False, jit_compile=True)
        self._replica_gradients = compiled if parts.compiled else self.gradients

    def step(self, batch: Batch) -> None:
        """One call of the traced step; each replica takes its contiguous shard."""
        self._losses.append(self._train(*self._arguments(batch)))
        self._step += 1

    def _arguments(self, batch: Batch) -> tuple[object, object, tf.Tensor]:
        distribute = self.parts.strategy.experimental_distribute_values_from_function
        count = self.parts.strategy.num_replicas_in_sync
        shards = [tuple(map(tf.constant, batch.rows(i, count))) for i in self._local_replicas()]
        first = self._local_replicas()[0]
        x, y = (distribute(lambda c, k=k: shards[c.replica_id_in_sync_group - first][k]) for k in (0, 1))
        return x, y, tf.constant(corrections(self.optimizer, self._step + 1), tf.float64)

    def _replicated_step(self, x: tf.Tensor, y: tf.Tensor, corrections: tf.Tensor) -> tuple[tf.Tensor, ...]:
        losses = self.parts.strategy.run(self._replica_step, args=(x, y, corrections))
        return self.parts.strategy.experimental_local_results(losses)

    def _replica_step(self, x: tf.Tensor, y: tf.Tensor, corrections: tf.Tensor) -> tf.Tensor:
        """On one replica: forward and backward on each micro-batch, then the exchange and the update of all replicas."""
        loss, gradients = self._replica_gradients(x, y)
        tf.distribute.get_replica_context().merge_call(self.apply, args=(corrections, *gradients))
        return loss

    def gradients(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Loss and gradients of the global mean loss, this replica's part, accumulated over the micro-batches."""
        count = y.shape.num_elements() * self.parts.strategy.num_replicas_in_sync
        total_loss, total = tf.constant(0.0, x.dtype if x.dtype.is_floating else self._dtype()), []
        for xs, ys in zip(*(tf.split(a, self.micro_batches) for a in (x, y)), strict=True):
            with tf.GradientTape() as tape:
                loss = self.loss(self.model(xs), ys) / count
            gradients = [tf.convert_to_tensor(g) for g in tape.gradient(loss, list(self.params.values()))]
            total = [a + g for a, g in zip(total, gradients, strict=True)] if total else gradients
            total_loss += loss
        self._gradients_bytes = weights.nbytes(total)
        return total_loss, total

    def apply(self, strategy: tf.distribute.Strategy, corrections: tf.Tensor, *gradients: tf.Tensor) -> None:
        """In the cross-replica context: sums the gradients, clips by the global norm, updates where each variable is."""
        gradients = self.exchange(strategy, gradients)
        if self.clip_norm is not None:
            gradients = strategy.extended.call_for_each_replica(self._clipped, args=(gradients,))
        for index, (name, variable) in enumerate(self.params.items()):
            slots = tuple(slot[name] for slot in self.slots.values())
            arguments = (gradients[index], slots, corrections)
            strategy.extended.update(variable, self._update, args=arguments, group=False)

    def exchange(self, strategy: tf.distribute.Strategy, gradients: tuple[tf.Tensor, ...]) -> list[tf.Tensor]:
        """Sums every gradient over all replicas."""
        pairs = list(zip(gradients, self.params.values(), strict=True))
        return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)

    def _clipped(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        norm = tf.sqrt(tf.add_n([tf.reduce_sum(g * g) for g in gradients]))
        return [g * tf.minimum(self.clip_norm / norm, 1.0) for g in gradients]

    def _update(self, w: tf.Variable, g: tf.Tensor, slots: tuple[tf.Variable, ...], corrections: tf.Tensor) -> None:
        self.update(self.optimizer, w, g, slots, corrections)

    def losses(self) -> list[float]:
        """The global losses since the last call."""
        taken, self._losses = self._losses, []
        own = np.array([sum(float(loss) for loss in replicas) for replicas in taken])
        return self.parts.sum_losses(own).tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits, on this process's first copy of the model."""
        return self._predict(tf.constant(inputs)).numpy()

    def state(self) -> TrainState:
        """Parameters and slots."""
        slots = {slot: {name: v.numpy() for name, v in variables.items()} for slot, variables in self.slots.items()}
        return TrainState(self._step, {name: v.numpy() for name, v in self.params.items()}, slots)

    def restore(self, state: TrainState) -> None:
        """Assigns everything on every replica."""
        self._step = state.step
        for variables, values in ((self.params, state.params), *((self.slots[s], state.slots[s]) for s in self.slots)):
            for name, variable in variables.items():
                variable.assign(values[name].astype(variable.dtype.as_numpy_dtype))

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step; its collectives are counted in its graph."""
        arguments = self._arguments(batch)
        self.step(batch)
        graph = self._train.get_concrete_function(*arguments).graph
        self._copied_bytes = collections.Counter()
        for copy in copies(graph):
            self._copied_bytes[copy.target] += copy.bytes if copy.of_variable else 0
        return count_exchanges(graph)

    def footprint(self) -> tuple[Footprint, ...]:
        """The variables of each replica; gradients live in the graph only, and are counted there."""
        slots = [v for variables in self.slots.values() for v in variables.values()]
        rows = []
        extended = self.parts.strategy.extended
        for device in dict.fromkeys((*extended.worker_devices, *extended.parameter_devices)):
            params = weights.nbytes(self._held(self.params.values(), device))
            slots_bytes = weights.nbytes(self._held(slots, device))
            peak = params + self._copied_bytes[device.rpartition("/device:")[2]]
            rows.append(Footprint(device, params, peak, self._gradients_bytes, slots_bytes, "graph"))
        return tuple(rows)

    def _held(self, variables: Iterable[tf.Variable], device: str) -> list[tf.Variable]:
        """The copies of variables that are on a device."""
        held = (copy for variable in variables for copy in self.parts.strategy.experimental_local_results(variable))
        return [copy for copy in held if copy.device == device]

    def measures(self) -> Mapping[str, float]:
        """The strategy's own."""
        return self.parts.measures()

    def sync(self) -> None:
        """Waits for the accelerators of this process; a step on CPUs has ended when its call returns.

        One by one: `sync_devices` would ask those of other processes, too, and fail.
        """
        for device in self.parts.strategy.extended.worker_devices:
            if ":CPU:" not in device:
                with tf.device(device):
                    tf.raw_ops.SyncDevice()

    def close(self) -> None:
        """TensorFlow's collectives end with the process."""

    def _dtype(self) -> tf.DType:
        return next(iter(self.params.values())).dtype

    def _local_replicas(self) -> list[int]:
        count = len(self.parts.strategy.extended.worker_devices)
        return list(range(self.parts.first_replica, self.parts.first_replica + count))
