"""The training step of a chief that hands updates to workers, whose variables are on servers.

The parts are those of `program.py`. There is no exchange between workers: the gradients of an update go to the servers,
where it runs, so the optimizer state is never sent. In serial mode, a step is one update on the whole global batch. In
asynchronous mode, it is one update on each worker's shard, and nothing waits for anything before the window ends.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf

from samestep.common.batch import WHOLE, Batch
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Hardware, PlainProgram, TrainState
from samestep.common.strategy import Run
from samestep.tf_impl import weights
from samestep.tf_impl.models import predictor
from samestep.tf_impl.models.inputs import Inputs, as_inputs, gathering
from samestep.tf_impl.observing.exchanges import whole_bytes
from samestep.tf_impl.optimizers import bind_update, coefficients
from samestep.tf_impl.parameter_server.counted_updates import Updates
from samestep.tf_impl.parameter_server.parts import assign, flat, lookup, parts_of
from samestep.tf_impl.rows.options import ParameterServerOptions
from samestep.tf_impl.step import Gradient, accumulate, mean_loss, micro_batches, with_added
from samestep.tf_impl.techniques.applied import transform

MAX_IN_FLIGHT = 8
"""Maximum number of in-flight updates per worker. It bounds the memory held by queued shards and keeps the reported
progress close to the work actually done."""


class ParameterServerProgram(PlainProgram):
    """A model in training, seen from its chief."""

    def __init__(
        self, run: Run[ParameterServerOptions], resolver: tf.distribute.cluster_resolver.ClusterResolver
    ) -> None:
        self.run = run
        self._workers, self._servers = run.num_devices, run.options.parameter_servers
        note = f"{self._workers} worker processes, {self._servers} server processes"
        self.hardware = Hardware(note=note, backend="grpc")
        self._updates_per_step = 1 if run.options.is_serial else self._workers
        self.update, self._gather = bind_update(run.optimizer), gathering(run)
        self._tables = {name: param for name, param in run.workload.model.params().items() if param.lookups}
        rows = sum(param.lookups * param.shape[1] for param in self._tables.values())
        self._rows_bytes = run.batch_size // self._updates_per_step * rows * run.item_bytes
        self._sends_rows = any(param.read_by_rows for param in self._tables.values())
        self._shards = 1
        self._step = self._skipped = self._first_update = self._scheduled = self._begun = 0
        self._results: list[tf.distribute.coordinator.RemoteValue] = []
        self._applied, self._staleness = 0, 0.0  # the sum over all updates that were applied
        self._read_bytes = self._pushed_bytes = 0
        self._unread: list[tf.Variable] = []
        self.strategy = tf.distribute.ParameterServerStrategy(resolver, self._partitions)
        _answer_once(self._workers, {tf.float64, tf.as_dtype(run.dtype)})
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            self.model, variables = weights.fresh_model(run, self._variable, lookup)
            self.loss = with_added(run, mean_loss(run, self._updates_per_step), self.model, self._updates_per_step)
            self.params = {name: parts_of(variable) for name, variable in variables.items()}
            self.trained = weights.trained(run, self.params)
            self.slots = {slot: self._zeros() for slot in run.optimizer.slots}
            self.updates = Updates(flat(self.trained))
        # Nothing here branches on a tensor: without autograph the trace takes half the time.
        self._train = tf.function(self._worker_step, autograph=False)
        self._predict = tf.function(predictor(self.model), autograph=False)

    def _partitions(self, shape: tf.TensorShape, dtype: tf.DType) -> list[int]:
        """Returns the number of parts along each dim of the variable that is being made."""
        return [min(self._shards, shape[0]), *[1] * (shape.rank - 1)] if shape.rank else []

    def _variable(self, value: np.ndarray, name: str) -> tf.Variable:
        """Makes a variable: tables are cut by rows over the servers, every other parameter is on one of them."""
        self._shards = self._servers if name in self._tables else 1
        return weights.make_variable(value, name)

    def _zeros(self) -> dict[str, list[tf.Variable]]:
        """Makes one kind of optimizer state, each part in one piece on the server of its parameter's part."""
        return {name: [self._zeros_beside(part) for part in parts] for name, parts in self.trained.items()}

    def _zeros_beside(self, part: tf.Variable) -> tf.Variable:
        with self.strategy.extended.colocate_vars_with(part):
            return tf.Variable(tf.zeros(part.shape, part.dtype), trainable=False)

    def step(self, batch: Batch) -> None:
        """Hands out the step's updates, each to any free worker; in serial mode, waits until they are applied."""
        in_flight = MAX_IN_FLIGHT * self._workers
        for shard in range(self._updates_per_step):
            if len(self._results) >= in_flight:
                self._results[-in_flight].get()
            self._results.append(self.coordinator.schedule(self._train, args=self._arguments(batch, shard)))
            self._scheduled += 1
        if self.run.options.is_serial:
            self.coordinator.join()
        self._step += 1

    def _arguments(self, batch: Batch, shard: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        x, y = map(as_inputs, self._gather(batch, WHOLE.split(shard, self._updates_per_step)))
        return x, y, coefficients(self.run.optimizer_at(self._step + 1), self._first_update + self._scheduled + 1)

    def _worker_step(self, x: Inputs, y: tf.Tensor, coefficients: tf.Tensor) -> tf.Tensor:
        version = self.updates.version()
        loss, gradients = self.gradients(x, y)
        staleness = self.updates.begin(version, [each for each in gradients if each is not None])
        with tf.control_dependencies([staleness]):
            self.apply(coefficients, gradients)
        return tf.stack([tf.cast(loss, tf.float64), tf.cast(staleness, tf.float64)])  # one tensor: one answer

    def gradients(self, x: Inputs, y: tf.Tensor) -> tuple[tf.Tensor, list[Gradient | None]]:
        """Accumulates the mean loss of one update and its gradients; those of the tables of our models stay rows.

        Args:
            x: The inputs of the update's batch.
            y: Its targets.
        """
        parts = micro_batches(x, y, self.run.passes)
        taken = accumulate(self.model, self.loss, flat(self.trained), parts, keep_rows=self._sends_rows)
        self._unread = [part for part, each in zip(flat(self.trained), taken[1], strict=True) if each is None]
        return taken

    def apply(self, coefficients: tf.Tensor, gradients: list[Gradient | None]) -> None:
        """Clips by the global norm, then updates every part on the server that holds it.

        Args:
            coefficients: The coefficients of the update, as `optimizers.coefficients` computes them.
            gradients: The gradients, in the order of the parameters' parts.
        """
        read = [number for number, gradient in enumerate(gradients) if gradient is not None]
        transformed = dict(
            zip(read, transform([gradients[number] for number in read], self.run.techniques), strict=True)
        )
        for number, (part, *slots) in enumerate(zip(flat(self.trained), *map(flat, self.slots.values()), strict=True)):
            if (gradient := transformed.get(number)) is None:
                continue  # nothing reads it, and no optimizer updates it
            with tf.device(part.device):
                arguments = (part, tf.convert_to_tensor(gradient), slots, coefficients)
                self.updates.alone(part, functools.partial(self.update, *arguments))

    def losses(self) -> list[float]:
        """Returns the losses since the last call; that of a step is the mean over its updates, as their workers computed it."""
        taken, self._results = self._results, []
        if not taken:
            return []
        losses, staleness = np.array([result.fetch() for result in taken]).T
        self._applied += len(taken)
        self._staleness += float(staleness.sum())
        self._begun = self.updates.begun()
        return losses.reshape(-1, self._updates_per_step).mean(axis=1).tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Computes logits, on a worker."""
        return self.coordinator.schedule(self._predict, args=(as_inputs(inputs),)).fetch()

    def state(self) -> TrainState:
        """Reads parameters and optimizer state from the servers."""
        buffers = weights.buffers_of(self.model)
        return weights.snapshot(self._step, self.params, self.slots, np.concatenate, buffers, self._skipped)

    def restore(self, state: TrainState) -> None:
        """Assigns each server its parts."""
        self._step, self._skipped = state.step, state.skipped
        self._first_update, self._scheduled = state.updates, 0
        weights.restore(state, self.run.dtype, self.params, self.slots, assign, weights.buffers_of(self.model))

    def observe(self, batch: Batch) -> None:
        """Takes one more step; what its workers read and send is in their graph, except for the rows of tables."""
        self._observed = batch
        self.step(batch)

    def sends(self) -> tuple[Send, ...]:
        """Returns what workers pull and push."""
        with self.strategy.scope():  # it was traced for the workers in this scope; outside it would be traced once more
            graph = self._train.get_concrete_function(*self._arguments(self._observed, 0)).graph
        self._read_bytes, sent_bytes = whole_bytes(graph, self._sends_rows)
        self._pushed_bytes = sent_bytes + (self._rows_bytes if self._sends_rows else 0)
        updates = self._updates_per_step
        pulled, pushed = updates * (self._read_bytes + self._rows_bytes), updates * self._pushed_bytes
        pulls, pushes = updates * len(self.params), updates * (len(self.trained) - len(self._unread))
        pull = Send("forward", "pull", "data", self._workers, pulled, pulls, to="worker", source="ps")
        return pull, Send("backward", "push", "data", self._workers, pushed, pushes, to="ps", source="worker")

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the footprints of the chief, of the workers, which hold what they read, and of the servers, which hold all."""
        workers = (
            Footprint(
                device=_device("worker", index),
                params_bytes=0,
                params_peak_bytes=self._read_bytes,
                gradients_bytes=self._pushed_bytes,
                optimizer_bytes=0,
                source="graph",
            )
            for index in range(self._workers)
        )
        servers = (self._server_footprint(_device("ps", index)) for index in range(self._servers))
        return (Footprint.uniform(_device("chief", 0), 0, 0, "graph"), *workers, *servers)

    def _server_footprint(self, device: str) -> Footprint:
        params_bytes, gradients_bytes, *slots_bytes = (
            weights.nbytes(part for part in flat(kind) if part.device == device)
            for kind in (self.params, self.trained, *self.slots.values())
        )
        dtypes = weights.dtype_names(part for slot in self.slots.values() for part in flat(slot))
        held = Footprint.uniform(device, params_bytes, sum(slots_bytes), "graph", dtypes)
        unread = weights.nbytes(part for part in self._unread if part.device == device)
        return dataclasses.replace(held, gradients_bytes=gradients_bytes - unread)

    def measures(self) -> Mapping[str, float]:
        """Returns what the servers counted up to the last window's end."""
        applied = self._applied
        staleness = self._staleness / applied
        return {"staleness": staleness, "updates_applied": applied, "updates_repeated": self._begun - applied}

    def sync(self) -> None:
        """Waits for every step that was handed out."""
        self.coordinator.join()


def _answer_once(workers: int, dtypes: Iterable[tf.DType]) -> None:
    """Copies an answer like that of an update or a prediction from each worker to the chief, one worker after another.

    The first copy from a worker lengthens a list, unlocked, that the copy from another may be reading: TensorFlow 2.21's
    EagerClusterFunctionLibraryRuntime, which ended about one asynchronous start in a thousand by SIGSEGV.
    """
    for index, dtype in itertools.product(range(workers), dtypes):
        with tf.device(f"/job:worker/replica:0/task:{index}"):
            answer = tf.fill([2], tf.constant(0.0, dtype))
        with tf.device("/job:chief"):
            tf.identity(answer)


def _device(job: str, index: int) -> str:
    return f"/job:{job}/replica:0/task:{index}/device:CPU:0"
