"""The training step of a chief that hands updates to workers, whose variables are on servers.

The parts are those of `program.py`. There is no exchange between workers: the gradients of an update go to the servers,
where it runs, so that the slots never travel. Serial, a step is one update on the whole global batch. Asynchronous, it is
one on each worker's shard, a batch of its own, and nothing waits for anything before the window ends.
"""

import functools
import itertools
from collections.abc import Iterable, Mapping

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
from tf_impl.served_graph import crossing
from tf_impl.served_updates import Updates

Gradient = tf.Tensor | tf.IndexedSlices
AHEAD = 8
"""How many updates a worker the chief hands out before they are done: each holds its shard, and a step handed out counts
as progress, which is to mean that one was taken."""


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
        self._serial = config.options["consistency"] == "serial"
        self._updates_per_step = 1 if self._serial else self._workers
        self._ahead = AHEAD * self._workers
        tables = {name: param for name, param in workload.model.params().items() if param.lookups}
        self._tables = frozenset(tables)
        item = np.dtype(config.dtype).itemsize
        self._bytes_looked_up = [param.lookups * param.shape[1] * item for param in tables.values()]
        self._shards = 1
        self._servers = servers
        self._step = self._first_update = self._scheduled = self._begun = 0
        self._results: list[tf.distribute.coordinator.RemoteValue] = []
        self._staleness: list[float] = []
        self._read_bytes = self._rows_bytes = 0
        self.strategy = tf.distribute.ParameterServerStrategy(resolver, self._partitions)
        _answer_once(self._workers, {tf.float64, tf.as_dtype(config.dtype)})
        self.coordinator = tf.distribute.coordinator.ClusterCoordinator(self.strategy)
        with self.strategy.scope():
            variables = weights.NamedVariables(init(workload.model, config.seed), config.dtype, self._variable, _lookup)
            self.model = build_model(workload.model, variables)
            self.params = {name: _parts(variable) for name, variable in variables.by_name.items()}
            self.slots = {slot: self._zeros() for slot in self.optimizer.slots}
            self.updates = Updates(part for parts in self.params.values() for part in parts)
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
        """Hands out the step's updates, each to whichever worker takes it; serial, the next waits, and so sees its update."""
        for shard in range(self._updates_per_step):
            if len(self._results) >= self._ahead:
                self._results[-self._ahead].get()
            self._results.append(self.coordinator.schedule(self._train, args=self._arguments(batch, shard)))
            self._scheduled += 1
        if self._serial:
            self.coordinator.join()
        self._step += 1

    def _arguments(self, batch: Batch, shard: int) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        x, y = map(tf.constant, batch.rows(shard, self._updates_per_step))
        update = self._first_update + self._scheduled + 1
        return x, y, tf.constant(corrections(self.optimizer, update), tf.float64)

    def _worker_step(self, x: tf.Tensor, y: tf.Tensor, corrections: tf.Tensor) -> tf.Tensor:
        version = self.updates.version()
        loss, gradients = self.gradients(x, y)
        staleness = self.updates.begin(version, gradients)
        with tf.control_dependencies([staleness]):
            self.apply(corrections, gradients)
        return tf.stack([tf.cast(loss, tf.float64), tf.cast(staleness, tf.float64)])  # one tensor: one answer

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
                    arguments = (part, tf.convert_to_tensor(gradient), slots, corrections)
                    self.updates.alone(part, functools.partial(self.update, self.optimizer, *arguments))

    def losses(self) -> list[float]:
        """The losses since the last call; a step's is the mean of its updates', each as its worker computed it."""
        taken, self._results = self._results, []
        if not taken:
            return []
        losses, staleness = np.array([result.fetch() for result in taken]).T
        self._staleness += staleness.tolist()
        self._begun = self.updates.begun()
        return losses.reshape(-1, self._updates_per_step).mean(axis=1).tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Logits, on a worker."""
        return self.coordinator.schedule(self._predict, args=(tf.constant(inputs),)).fetch()

    def state(self) -> TrainState:
        """Parameters and slots, read from the servers."""
        slots = {slot: _whole(variables) for slot, variables in self.slots.items()}
        return TrainState(self._step, _whole(self.params), slots)

    def restore(self, state: TrainState) -> None:
        """Each server takes its parts."""
        self._step = self._first_update = state.step
        for variables, values in ((self.params, state.params), *((self.slots[s], state.slots[s]) for s in self.slots)):
            for name, parts in variables.items():
                cuts = np.cumsum([part.shape[0] for part in parts])[:-1]
                for part, value in zip(parts, np.split(values[name], cuts), strict=True):
                    part.assign(value.astype(part.dtype.as_numpy_dtype))

    def observe(self, batch: Batch) -> tuple[Exchange, ...]:
        """One more step; what its workers read and send is in their graph, but for the rows of tables."""
        arguments = self._arguments(batch, 0)
        self.step(batch)
        self._read_bytes, sent_bytes = crossing(self._train.get_concrete_function(*arguments).graph)
        updates = self._updates_per_step
        pulled, pushed = self._read_bytes + self._rows_bytes, sent_bytes + self._rows_bytes
        count = updates * len(self.params)
        return (Exchange("pull", count, updates * pulled), Exchange("push", count, updates * pushed))

    def footprint(self) -> tuple[Footprint, ...]:
        """The chief answers for all: itself, workers, which hold what they read, and servers, which hold everything."""
        held = {f"/job:ps/replica:0/task:{index}/device:CPU:0": [0, 0] for index in range(self._servers)}
        for kind, variables in ((0, self.params), *((1, slot) for slot in self.slots.values())):
            for part in (part for parts in variables.values() for part in parts):
                held[part.device][kind] += weights.nbytes([part])
        servers = [Footprint(device, p, p, p, slots, "graph") for device, (p, slots) in held.items()]
        gradients = self._read_bytes + self._rows_bytes
        workers = [f"/job:worker/replica:0/task:{index}/device:CPU:0" for index in range(self._workers)]
        chief = Footprint("/job:chief/replica:0/task:0/device:CPU:0", 0, 0, 0, 0, "graph")
        return (chief, *(Footprint(w, 0, self._read_bytes, gradients, 0, "graph") for w in workers), *servers)

    def measures(self) -> Mapping[str, float]:
        """What the servers counted up to the last window's end."""
        applied = len(self._staleness)
        staleness = sum(self._staleness) / applied
        return {"staleness": staleness, "updates_applied": applied, "updates_repeated": self._begun - applied}

    def sync(self) -> None:
        """Waits for every step that was handed out."""
        self.coordinator.join()

    def close(self) -> None:
        """The servers are stopped by whoever started them, after the chief has left."""


def _answer_once(workers: int, dtypes: Iterable[tf.DType]) -> None:
    """Copies what updates and predictions answer from each worker to the chief, one worker after the other.

    The first copy from a worker lengthens a list, unlocked, that the copy from another may be reading: TensorFlow 2.21's
    EagerClusterFunctionLibraryRuntime, which ended about one asynchronous start in a thousand by SIGSEGV.
    """
    for index, dtype in itertools.product(range(workers), dtypes):
        with tf.device(f"/job:worker/replica:0/task:{index}"):
            answer = tf.fill([2], tf.constant(0.0, dtype))
        with tf.device("/job:chief"):
            tf.identity(answer)


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
