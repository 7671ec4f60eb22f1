"""A worker to which things happen: `TROUBLE` names one of the functions below, called before the worker's own main."""

import json
import os
import signal
import threading
import time

from common.runtime import worker


def replicas_meet() -> None:
    """Every replica's loss waits until another replica computes its own: one after the other, they never meet."""
    import tensorflow as tf

    from tf_impl import program

    barrier = threading.Barrier(2)

    def meet(loss):
        barrier.wait(timeout=20)
        return loss

    plain = dict(program.LOSSES)

    def loss(logits, targets):
        value = plain["cross_entropy"](logits, targets)
        met = tf.numpy_function(meet, [tf.stop_gradient(value)], value.dtype, stateful=False)
        return value + 0 * tf.ensure_shape(met, [])

    program.LOSSES["cross_entropy"] = loss


def _second_worker() -> bool:
    return json.loads(os.environ["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}


def _at_step_5(happens) -> None:
    from common.runtime import loop

    plain = loop.batches

    def batches(*arguments):
        for batch in plain(*arguments):
            if batch.step == 5:
                happens()
            yield batch

    loop.batches = batches


def second_worker_is_killed() -> None:
    if _second_worker():
        _at_step_5(lambda: os.kill(os.getpid(), signal.SIGKILL))


def second_worker_is_stopped() -> None:
    if _second_worker():
        _at_step_5(lambda: os.kill(os.getpid(), signal.SIGSTOP))


def second_worker_never_starts() -> None:
    if _second_worker():
        time.sleep(3600)


def _dies_soon(job: str) -> None:
    if json.loads(os.environ["TF_CONFIG"])["task"] == {"type": job, "index": 0}:
        threading.Timer(4, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()


def ps_dies() -> None:
    _dies_soon("ps")


def worker_dies() -> None:
    _dies_soon("worker")


def dtensor_in_one_function() -> None:
    from tf_impl import global_program

    plain = global_program.GlobalProgram.__init__

    def init(self, *arguments):
        import tensorflow as tf

        plain(self, *arguments)

        def both(xs, ys, corrections):
            loss, gradients = self.gradients(xs, ys)
            self.apply(gradients, corrections)
            return loss, gradients

        whole = tf.function(both)
        now = tf.constant(global_program.corrections(self.optimizer, 1), tf.float64)
        self._gradients = lambda xs, ys: whole(xs, ys, self.layouts.whole(now))
        self._apply = lambda gradients, corrections: None

    global_program.GlobalProgram.__init__ = init


def main(arguments: list[str]) -> int:
    """Lets the trouble happen, then works as usual."""
    if os.environ["TROUBLE"]:
        globals()[os.environ["TROUBLE"]]()
    return worker.main(arguments)
