"""No operation that may exchange anything is left out of the ledger: it is counted, known to move nothing, or refused."""

import textwrap
from pathlib import Path

import pytest

from samestep.common.runtime.parent.launcher import Launcher
from tests.forked_scripts import run_forked

pytestmark = pytest.mark.tf

ALL = """
    import re
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session
    from samestep.common.errors import Unavailable
    from samestep.tf_impl.observing.collectives import COLLECTIVES, MOVE_NOTHING, collective_of

    registered = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())).op
    words = re.compile("collective|nccl|cross_?replica|all_?(reduce|gather|scatter|to_?all)|reduce_?scatter", re.I)
    grouped = {"group_key", "group_assignment", "communicator", "source_target_pairs"}
    suspects = {
        each.name for each in registered
        if words.search(each.name) or grouped & {a.name for a in (*each.input_arg, *each.attr)}
    }
    refused = set()
    for name in suspects:
        try:
            found = collective_of(name)
        except Unavailable as error:
            assert f"a step has {name} of TensorFlow" in str(error), error
            refused.add(name)
        else:
            assert found == COLLECTIVES.get(name) and (found or MOVE_NOTHING[name]), name
    assert {*COLLECTIVES, *MOVE_NOTHING} <= suspects, {*COLLECTIVES, *MOVE_NOTHING} - suspects
    assert refused and not any(re.fullmatch("Collective(?!Permute).*", name) for name in refused), refused
    innocent = {"MatMul", "BroadcastTo", "Copy", "ReadVariableOp", "StatefulPartitionedCall", "XlaReduce", "GatherV2"}
    assert {collective_of(name) for name in innocent} == {None}
    print(len(suspects), "registered,", len(refused), "refused")
"""
GRAPHS = """
    import tensorflow as tf
    from samestep.common.errors import Unavailable
    from samestep.tf_impl.observing.exchanges import sends_of, whole_bytes

    keys = {"group_size": 2, "group_key": 1, "instance_key": 1}
    raw = tf.raw_ops
    gather = lambda x: raw.CollectiveGatherV2(input=x, ordering_token=[], **keys)
    receive = lambda x: raw.CollectiveBcastRecvV2(T=tf.float32, shape=[3, 5], **keys)
    permute = lambda x: raw.CollectivePermute(input=x, source_target_pairs=[[0, 1], [1, 0]])
    nccl = lambda x: raw.NcclReduce(input=[x, x], reduction="sum")
    hidden = lambda x: tf.while_loop(lambda x: tf.reduce_sum(x) < 9, lambda x: [gather(x)], [x], [tf.TensorShape(None)])[0]
    nested = lambda x: tf.function(hidden, autograph=False)(x)
    unsized = lambda x: gather(tf.boolean_mask(x, x > 0))

    def told(take, of=lambda graph: sends_of(graph, "data", 2)):
        graph = tf.function(take, autograph=False).get_concrete_function(tf.ones([3, 5])).graph
        try:
            return [(each.operation, each.bytes) for each in of(graph)]
        except Unavailable as error:
            return str(error).partition(",")[0]

    for take in (gather, receive, permute, nccl, hidden, nested, unsized, tf.exp):
        print(told(take))
    print(told(gather, lambda graph: whole_bytes(graph, False)))
"""


def test_every_operation_is_counted_or_refused_and_so_is_what_a_graph_hides(launcher: Launcher, tmp_path: Path) -> None:
    """Of all that the installed TensorFlow has registered, by its name."""
    scripts = textwrap.dedent(ALL) + textwrap.dedent(GRAPHS)
    counted, *graphs = run_forked(launcher, "tf", tmp_path, scripts).splitlines()
    assert int(counted.partition(" ")[0]) > 25, counted
    assert graphs == [
        "[('all_gather', 60)]",
        "[('broadcast', 60)]",
        "a step has CollectivePermute of TensorFlow 2.21.0",
        "a step has NcclReduce of TensorFlow 2.21.0",
        "a step has CollectiveGatherV2 in a function that its graph calls (While)",
        "a step has CollectiveGatherV2 in a function that its graph calls (StatefulPartitionedCall)",
        "a step has CollectiveGatherV2 of (None",
        "[]",
        "a worker's step has CollectiveGatherV2",
    ]
