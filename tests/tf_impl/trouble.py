"""A worker to which things happen: `TROUBLE` names one of the functions below, called before the worker's own main."""

import json
import os
import pathlib
import signal
import threading
import time

from samestep.common.runtime.worker import worker

RUN = pathlib.Path()
"""The run directory."""


def replicas_meet() -> None:
    """Every replica's loss waits until another replica computes its own: one after the other, they never meet."""
    import tensorflow as tf

    from samestep.tf_impl.models.losses import LOSSES

    barrier = threading.Barrier(2)

    def meet(loss):
        barrier.wait(timeout=20)
        return loss

    plain = dict(LOSSES)

    def loss(logits, targets):
        value = plain["cross_entropy"](logits, targets)
        met = tf.numpy_function(meet, [tf.stop_gradient(value)], value.dtype, stateful=False)
        return value + 0 * tf.ensure_shape(met, [])

    LOSSES["cross_entropy"] = loss


def _is_worker(index: int) -> bool:
    return json.loads(os.environ["TF_CONFIG"])["task"] == {"type": "worker", "index": index}


def _at_step(step, happens) -> None:
    from samestep.common.runtime.worker import loop

    plain = loop.batches

    def batches(*arguments):
        for batch in plain(*arguments):
            if batch.step == step:
                happens()
            yield batch

    loop.batches = batches


def second_worker_is_killed() -> None:
    if _is_worker(1):
        _at_step(5, lambda: os.kill(os.getpid(), signal.SIGKILL))


def second_worker_is_stopped() -> None:
    if _is_worker(1):
        _at_step(5, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def first_worker_is_stopped() -> None:
    if _is_worker(0):
        _at_step(5, lambda: os.kill(os.getpid(), signal.SIGSTOP))


def second_worker_never_starts() -> None:
    if _is_worker(1):
        time.sleep(3600)


def _strike(role: str, number: signal.Signals) -> None:
    """Sends a signal to another process of the run, and leaves a file that says when."""
    os.kill(json.loads((RUN / f"process-{role}.json").read_text())["pid"], number)
    (RUN / "struck").touch()


def _the_chief_strikes(role: str, number: signal.Signals, at_step: int = 5) -> None:
    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "chief":
        _at_step(at_step, lambda: _strike(role, number))


def ps_dies() -> None:
    _the_chief_strikes("ps-0", signal.SIGKILL)


def worker_dies() -> None:
    _the_chief_strikes("worker-0", signal.SIGKILL)


def worker_stops() -> None:
    _the_chief_strikes("worker-1", signal.SIGSTOP)


def both_workers_die() -> None:
    _the_chief_strikes("worker-0", signal.SIGKILL)
    _the_chief_strikes("worker-1", signal.SIGKILL, at_step=8)


def updates_count_themselves() -> None:
    """Each adds 1 to what it read of every weight, which takes a while: two at once would lose one."""
    import tensorflow as tf

    from samestep.tf_impl.optimizers import sgd

    def update(spec, w, g, slots, coefficients):
        slow = tf.fill([150, 150], tf.reduce_mean(w) / 150)
        for _ in range(4):
            slow = slow @ slow
        w.assign(w + tf.sign(1 + slow[0, 0] ** 2) + 0 * g)  # 1, but nobody knows before it is computed

    sgd.update = update


def worker_dies_in_an_update() -> None:
    """At step 5 both workers begin an update, which waits; the chief kills one of them and lets the updates go on."""
    from samestep.tf_impl.parameter_server.counted_updates import Updates
    from samestep.tf_impl.parameter_server.program import ParameterServerProgram

    updates_count_themselves()
    build, plain, begin = ParameterServerProgram.__init__, ParameterServerProgram.step, Updates.begin
    gates = []

    def init(self, *arguments):
        import tensorflow as tf

        build(self, *arguments)
        with self.strategy.scope():
            gates.append(tf.Variable(True, trainable=False))

    def begin_and_wait(self, version, gradients):
        import tensorflow as tf

        staleness = begin(self, version, gradients)
        with tf.control_dependencies([staleness]):
            turns = tf.while_loop(lambda _: tf.logical_not(gates[0].read_value()), lambda turn: turn + 1, [0])
        with tf.control_dependencies(turns):
            return tf.identity(staleness)

    def step(self, batch):
        if batch.step == 5:
            self.sync()
            gates[0].assign(False)
        plain(self, batch)
        if batch.step == 5:
            while self.updates.begun() < self._scheduled:
                time.sleep(0.001)
            _strike("worker-0", signal.SIGKILL)
            gates[0].assign(True)

    ParameterServerProgram.__init__, ParameterServerProgram.step, Updates.begin = init, step, begin_and_wait


def dtensor_in_one_function() -> None:
    from samestep.tf_impl.dtensor.program import DTensorProgram
    from samestep.tf_impl.optimizers import coefficients as coefficients_of

    plain = DTensorProgram.__init__

    def init(self, *arguments):
        import tensorflow as tf

        plain(self, *arguments)

        def both(parts, coefficients):
            loss, gradients = self.gradients(parts)
            self.apply(gradients, coefficients)
            return loss, gradients

        whole = tf.function(both)
        now = coefficients_of(self.run.optimizer, 1)
        self._gradients = lambda parts: whole(parts, self.layouts.replicate(now))
        self._apply = lambda gradients, coefficients: None

    DTensorProgram.__init__ = init


def main(arguments: list[str]) -> int:
    """Lets the trouble happen, then works as usual."""
    global RUN
    RUN = pathlib.Path(arguments[0])
    if os.environ["TROUBLE"]:
        globals()[os.environ["TROUBLE"]]()
    return worker.main(arguments)
