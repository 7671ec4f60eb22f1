"""The training step of a chief that hands whole steps to workers, whose variables are on servers.

The parts are those of `program.py`. There is no exchange between workers: a step's gradients go to the servers, where
the update runs, so that the slots never travel.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from common.batch import Batch
from common.config import RunConfig
from common.ledger import Exchange, Footprint
from common.runtime.topology import num_devices
from common.strategy import TrainState
from common.workload.models.spec import init
from common.workload.table import Workload
from tf_impl import weights
from tf_impl.models import build_model
from tf_impl.models.losses import LOSSES
from tf_impl.optimizers import UPDATES, corrections

Gradient = tf.Tensor | tf.IndexedSlices


class ServedProgram:
    """A model in training, seen from its chief."""

    def __init__(
        self,
        workload: Workload,
        config: RunConfig,
        resolver: tf.distribute.cluster_resolver.ClusterResolver,
        servers: int,
    ) -> None:
        self.device_note = f"{num_devices(config)} worker processes, {servers} server processes"
        self.loss = LOSSES[workload.model.loss]
        self.optimizer = workload.optimizer(config)
        self.update = UPDATES[self.optimizer.name]
        self.micro_batches = config.techniques.micro_batches
        self.clip_norm = config.techniques.clip_norm
        self._workers = num_devices(config)
        tables = {name: param for name, param in workload.model.params().items() if param.lookups}
        self._tables = frozenset(tables)
        item = np.dtype(config.dtype).itemsize
        self._bytes_looked_up = [param.lookups * param.shape[1] * item for param in tables.values()]
        self._shards = 1
        self._servers = servers
        self._step = 0
        self._losses: list[float] = []
        self._read_bytes = self._rows_bytes = 0
        self.strategy = tf.distribute.ParameterServerStrategy(resolver, self._partitions)
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            variables = weights.NamedVariables(init(workload.model, config.seed), config.dtype, self._variable, _lookup)
            self.model = build_model(workload.model, variables)
            self.params = {name: _parts(variable) for name, variable in variables.by_name.items()}
            self.slots = {slot: self._zeros() for slot in self.optimizer.slots}
        self._train = tf.function(self._worker_step)
        self._predict = tf.function(self.model)

    def _partitions(self, shape: tf.TensorShape, dtype: tf.DType) -> list[int]:
        """Into how many parts the variable that is being made is cut along each dimension."""
        return [min(self._shards, shape[0]), *[1] * (shape.rank - 1)] if shape.rank else []

    def _variable(self, value: np.ndarray, name: str) -> tf.Variable:
        """Tables are cut by rows over the servers; what is read whole stays whole."""
        self._shards = self._servers if name in self._tables else 1
        return weights.make_variable(value, name)

    def _zeros(self) -> dict[str, list[tf.Variable]]:
        """A slot, each part where the part of its parameter is."""
        slot = {}
        self._shards = 1
        for name, parts in self.params.items():
            slot[name] = []
            for part in parts:
                with self.strategy.extended.colocate_vars_with(part):
                    slot[name].append(tf.Variable(tf.zeros(part.shape, part.dtype), trainable=False))
        return slot

    def step(self, batch: Batch) -> None:
        """One step on whichever worker takes it; the next one waits for it, and so sees its update."""
        loss = self.coordinator.schedule(self._train, args=self._arguments(batch))
        self._losses.append(float(loss.fetch()))
        self._step += 1

    def _arguments(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        x, y = map(tf.constant, batch.rows(0, 1))
        return x, y, tf.constant(corrections(self.optimizer, self._step + 1), tf.float64)

    def _worker_step(self, x: tf.Tensor, y: tf.Tensor, corrections: tf.Tensor) -> tf.Tensor:
        loss, gradients = self.gradients(x, y)
        self.apply(corrections, gradients)
        return loss

    def gradients(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, list[Gradient]]:
        """Loss and gradients of the mean loss, accumulated over the micro-batches; those of tables as rows."""
        variables = [part for parts in self.params.values() for part in parts]
        count = y.shape.num_elements()
        total_loss, total = tf.constant(0.0, variables[0].dtype), []
        self._rows_bytes = sum(y.shape[0] * rows for rows in self._bytes_looked_up)
        for xs, ys in zip(*(tf.split(a, self.micro_batches) for a in (x, y)), strict=True):
            with tf.GradientTape() as tape:
                loss = self.loss(self.model(xs), ys) / count
            gradients = tape.gradient(loss, variables)
            total = [_sum(a, g) for a, g in zip(total, gradients, strict=True)] if total else gradients
            total_loss += loss
        return total_loss, total

    def apply(self, corrections: tf.Tensor, gradients: list[Gradient]) -> None:
        """Clips by the global norm, then updates every part on the server that holds it."""
        if self.clip_norm is not None:
            gradients = [tf.convert_to_tensor(g) for g in gradients]
            norm = tf.sqrt(tf.add_n([tf.reduce_sum(g * g) for g in gradients]))
            gradients = [g * tf.minimum(self.clip_norm / norm, 1.0) for g in gradients]
        remaining = iter(gradients)
        for name, parts in self.params.items():
            for index, part in enumerate(parts):
                slots = tuple(slot[name][index] for slot in self.slots.values())
                gradient = next(remaining)
                with tf.device(part.device):
                    self.update(self.optimizer, part, tf.convert_to_tensor(gradient), slots, corrections)

    def losses(self) -> list[float]:
        """The losses since the last call; every step was on a whole global batch."""
        taken, self._losses = self._losses, []
        return taken

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits, on a worker."""
        return self.coordinator.schedule(self._predict, args=(tf.constant(inputs),)).fetch()

    def state(self) -> TrainState:
        """Parameters and slots, read from the servers."""
        slots = {slot: _whole(variables) for slot, variables in self.slots.items()}
        return TrainState(self._step, _whole(self.params), slots)

    def restore(self, state: TrainState) -> None:
        """Each server takes its parts."""
        self._step = state.step
        for variables, values in ((self.params, state.params), *((self.slots[s], state.slots[s]) for s in self.slots)):
            for name, parts in variables.items():
                cuts = np.cumsum([part.shape[0] for part in parts])[:-1]
                for part, value in zip(parts, np.split(values[name], cuts), strict=True):
                    part.assign(value.astype(part.dtype.as_numpy_dtype))

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step; what its worker reads and sends is in its graph, but for the rows of tables."""
        arguments = self._arguments(batch)
        self.step(batch)
        self._read_bytes, sent_bytes = _crossing(self._train.get_concrete_function(*arguments).graph)
        count = len(self.params)
        pulled, pushed = self._read_bytes + self._rows_bytes, sent_bytes + self._rows_bytes
        return (Exchange("pull", count, pulled), Exchange("push", count, pushed))

    def footprint(self) -> tuple[Footprint, ...]:
        """The chief answers for its servers, which hold everything, and for its workers, which hold what they read."""
        held = {f"/job:ps/replica:0/task:{index}/device:CPU:0": [0, 0] for index in range(self._servers)}
        for kind, variables in ((0, self.params), *((1, slot) for slot in self.slots.values())):
            for part in (part for parts in variables.values() for part in parts):
                held[part.device][kind] += weights.nbytes([part])
        servers = [Footprint(device, p, p, p, slots, "graph") for device, (p, slots) in held.items()]
        gradients = self._read_bytes + self._rows_bytes
        workers = [f"/job:worker/replica:0/task:{index}/device:CPU:0" for index in range(self._workers)]
        return (*(Footprint(w, 0, self._read_bytes, gradients, 0, "graph") for w in workers), *servers)

    def measures(self) -> Mapping[str, float]:
        """None."""
        return {}

    def sync(self) -> None:
        """Waits for every step that was handed out."""
        self.coordinator.join()

    def close(self) -> None:
        """The servers are stopped by whoever started them, after the chief has left."""


def _parts(variable: tf.Variable) -> list[tf.Variable]:
    """The parts of a variable, in order; one that is not cut is its own part."""
    return [variable] if isinstance(variable, tf.Variable) else list(variable.variables)


def _lookup(table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
    """Each server gathers from its rows; only they travel, and only their gradients."""
    if isinstance(table, tf.Variable):
        return tf.gather(table, ids)
    rows = tf.nn.embedding_lookup(table, tf.reshape(ids, [-1]))  # a ShardedVariable takes ids of one dimension
    return tf.reshape(rows, [*ids.shape, table.shape[-1]])


def _sum(one: Gradient, other: Gradient) -> Gradient:
    """Of rows: both, since the server adds rows of equal id up."""
    if isinstance(one, tf.IndexedSlices):
        values, indices = tf.concat([one.values, other.values], 0), tf.concat([one.indices, other.indices], 0)
        return tf.IndexedSlices(values, indices, one.dense_shape)
    return one + other


def _whole(variables: Mapping[str, list[tf.Variable]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part.numpy() for part in parts]) for name, parts in variables.items()}


def _crossing(graph: tf.Graph) -> tuple[int, int]:
    """The bytes of whole variables that a worker reads, and of gradients that it sends, in one execution of a graph."""
    variables = {inner.op.name: outer.device for outer, inner in graph.captures if outer.dtype == tf.resource}

    def server(operation: tf.Operation) -> str:
        held = [variables[tensor.op.name] for tensor in operation.inputs if tensor.op.name in variables]
        return held[0] if held else operation.device

    read, sent = {}, {}
    for operation in graph.get_operations():
        for tensor in operation.inputs:
            source, target = server(tensor.op), server(operation)
            if tensor.op.type != "Placeholder" and tensor.dtype.is_floating and source != target and _size(tensor):
                (read if source else sent)[tensor.name, target] = _size(tensor)
    return sum(read.values()), sum(sent.values())


def _size(tensor: tf.Tensor) -> int:
    """Its bytes; 0 if it has as many rows as happen to be looked up on one server."""
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size
