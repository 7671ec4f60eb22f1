"""The graph of a step whose tensors are not looked at: a copy of what was traced, without the looks.

A condition that does not hold is not free: its operations run, and what it would look at is kept for it. So a call that takes one
step runs the copy where that step is not to be looked at. The script is not traced again for it, since the Python that it runs
while TensorFlow traces it would run once more.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.core.framework.function_pb2 import FunctionDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.python.eager import context, record
from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction
from tensorflow.python.framework import op_def_registry

from samestep.common.steps.wrapping import Wrap

_LOOK, _GRADIENT = "_samestep_look", "_samestep_gradient"
"""The attributes of conditions: of a step's look, which returns whether it was made, and of a gradient's, before it."""
_CALLS = "PartitionedCall", "StatefulPartitionedCall"
_CONDITIONS = "Identity", "If", "StatelessIf"
_KEEP_NOTHING = (
    *("Assert", "Assign", "If", "IteratorGetNext", "ReadVariableOp", "ResourceApply", "ResourceGather"),
    *("ResourceScatter", "StatefulPartitionedCall", "VarIsInitializedOp", "While"),
)
"""The prefixes of operations that TensorFlow calls stateful although they keep nothing except variables and iterators. One that
draws random numbers keeps its place among them, which a copy would not share.
"""
_PATIENCE = 8
"""The number of calls that take such a step before a copy is made, so a short run does not pay for it."""


def mark(result: tf.Tensor, is_gradient: bool = False) -> None:
    """Marks a condition as a look.

    Args:
        result: What the condition returned, in a graph.
        is_gradient: Whether it looks at one gradient, before the look at the step.
    """
    condition_of(result)._set_attr(_GRADIENT if is_gradient else _LOOK, AttrValue(b=True))


def condition_of(result: tf.Tensor) -> Any:
    """Returns the operation that is a condition.

    Args:
        result: What the condition returned, in a graph.
    """
    return result.op.inputs[0].op if result.op.type == "Identity" else result.op


class Unseen:
    """The copies of all traces."""

    def __init__(self, is_due: Callable[[], bool], guarded: Wrap) -> None:
        """Starts without copies.

        Args:
            is_due: Returns whether the next step is not looked at, and is the first one of a call that begins now.
            guarded: Wraps a function so its errors do not end the script.
        """
        self._is_due, self._find = is_due, guarded(self._of)
        self._made = weakref.WeakKeyDictionary[Any, Any]()
        self._num_calls = weakref.WeakKeyDictionary[Any, int]()

    def follow(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps the method that runs a trace.

        Args:
            original: The method.
        """

        def call(trace: Any, tensor_inputs: Sequence[Any], captured_inputs: Sequence[Any]) -> Any:
            copy = self._find(trace) if self._is_due() and not record.could_possibly_record() else None
            if copy is None:
                return original(trace, tensor_inputs, captured_inputs)
            return copy.call_preflattened([*tensor_inputs, *captured_inputs])

        return call

    def _of(self, trace: Any) -> Any:
        if trace not in self._made:
            self._num_calls[trace] = self._num_calls.get(trace, 0) + 1
            if self._num_calls[trace] < _PATIENCE:
                return None
            self._made[trace] = _without_looks(trace)
        return self._made[trace]


def _without_looks(trace: Any) -> AtomicFunction | None:
    """Returns a copy of a trace that does not look at tensors; None unless the trace takes one step and keeps nothing itself."""
    definition = trace.function_def
    if _num_looks(definition) != 1 or not all(map(_keeps_nothing, _nodes(definition))):
        return None
    return _copied(trace._inference_function)


class _Copy(AtomicFunction):
    """A function whose errors say where the script has made the operations, like the errors of the original."""

    def __init__(self, original: AtomicFunction, definition: FunctionDef, children: list[AtomicFunction]) -> None:
        """Registers the function in the context, for as long as it is referenced.

        Args:
            original: What it was copied from.
            definition: The definition of the copy.
            children: The functions that it calls.
        """
        here = context.context()
        here.add_function_def(definition)
        super().__init__(definition.signature.name, here, original.function_type, children, original.call_options)
        self._original = original

    @property
    def graph_debug_info(self) -> Any:
        """The places where its operations were made."""
        return self._original.graph_debug_info


def _num_looks(definition: FunctionDef) -> int:
    """Returns how many looks a function makes; one in a loop or a condition counts as several, as its number is not known."""
    total = 0
    for node in definition.node_def:
        total += _LOOK in node.attr
        total += (1 if node.op in _CALLS else 2) * sum(map(_num_looks, _functions_of(node)))
    return total


def _nodes(definition: FunctionDef) -> Iterator[NodeDef]:
    for node in definition.node_def:
        yield node
        for each in _functions_of(node):
            yield from _nodes(each)


def _functions_of(node: NodeDef) -> Iterable[FunctionDef]:
    attributes = node.attr.values()
    names = [each.func.name for each in attributes if each.HasField("func")]
    names += [one.name for each in attributes for one in each.list.func]
    return [context.context().get_function_def(name) for name in names]


def _keeps_nothing(node: NodeDef) -> bool:
    known = op_def_registry.get(node.op)
    return known is not None and (not known.is_stateful or node.op.startswith(_KEEP_NOTHING))


def _copied(original: AtomicFunction) -> AtomicFunction | None:
    """Copies a function, and those that it calls if they look, without the looks; None if anything else needs what these return.

    Args:
        original: The function.
    """
    definition, children = original.definition, list(original.children)
    gone = _gone(definition)
    if any(node.name in gone and node.op not in _CONDITIONS for node in definition.node_def):
        return None
    if gone & {_source(each) for each in (*definition.ret.values(), *definition.control_ret.values())}:
        return None
    copy = FunctionDef()
    copy.CopyFrom(definition)
    copy.signature.name += _LOOK
    copy.ClearField("node_def")
    for node in definition.node_def:
        if node.name not in gone:
            copy.node_def.append(_not_looked(node) if _LOOK in node.attr else node)
            copy.node_def[-1].input[:] = [each for each in copy.node_def[-1].input if _source(each) not in gone]
    for node in copy.node_def:
        if node.op in _CALLS and any(map(_num_looks, _functions_of(node))):
            name = node.attr["f"].func.name
            called = next((_copied(each) for each in children if each.name.decode() == name), None)
            if called is None:
                return None
            children.append(called)
            node.attr["f"].func.name = called.name.decode()
    return _Copy(original, copy, children)


def _gone(definition: FunctionDef) -> set[str]:
    """Returns the names of operations that see gradients before a look, and of all that need these except the look itself."""
    gone = {node.name for node in definition.node_def if _GRADIENT in node.attr}
    size = -1
    while size != len(gone):
        size = len(gone)
        gone |= {
            node.name
            for node in definition.node_def
            if _LOOK not in node.attr and any(each[0] != "^" and _source(each) in gone for each in node.input)
        }
    return gone


def _source(name: str) -> str:
    """Returns the name of the operation that an input comes from, or that has to run before."""
    return name.removeprefix("^").partition(":")[0]


def _not_looked(node: NodeDef) -> NodeDef:
    """Returns a constant that takes the place of a look and says that it was not made."""
    values = {"dtype": AttrValue(type=tf.bool.as_datatype_enum), "value": AttrValue(tensor=tf.make_tensor_proto(False))}
    return NodeDef(name=node.name, op="Const", device=node.device, attr=values)
