"""Which argument of a call differs is said, and not only that examples do."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from samestep.common.judging.recorded.inputs import ALL_ARGUMENTS, OTHER_MASK
from samestep.common.judging.recorded.judge import judge
from samestep.common.steps.joining import read_run
from samestep.common.steps.recorded_run import RecordedRun
from samestep.common.steps.rows import argument_sums
from tests.recording.records import SCRIPTS, recorded_once, run_forked
from tests.sharing import made_once

WORDS = [
    ("labels", "arguments of the model differ: labels in 2 of 8 examples; the others are the same"),
    ("positions", "arguments of the model differ: position_ids in 8 of 8 examples; the others are the same"),
    (
        "labels positions",
        "arguments of the model differ: labels in 2 of 8 examples, position_ids in 8 of 8 examples; the others are the same",
    ),
    (
        "moved",
        "arguments of the model differ: labels in 5 of 8 examples (the same rows in another order); the others are the same",
    ),
    ("positions shuffled", "arguments of the model differ: position_ids in 8 of 8 examples; the others are the same"),
    ("labels shuffled", "arguments of the model differ: labels in 2 of 8 examples; the others are the same"),
    ("other", "0 of A's 8 examples are among the 8 of B"),
]


KERAS_WORDS = ("labels", "moved", "other")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ["", "mapping", "places", "places labels", "shuffled", *(words for words, _ in WORDS)]
    cases = {f"torch {each}": (f"batches.py torch {each}", {}) for each in words}
    return recorded_once(tmp_path_factory, "records-of-arguments", cases)


@pytest.fixture(scope="module")
def keras_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(folder: Path) -> None:
        orders = []
        for words in ("", *KERAS_WORDS, *(f"compiled {each}" for each in ("", *KERAS_WORDS))):
            out = folder / f"keras {words}".strip()
            out.mkdir(parents=True)
            options = {"out": str(out), "command": ["batches.py", words]}
            orders.append((str(SCRIPTS / "batches.py"), ["keras", *words.split()], options, 1))
        run_forked("keras", orders)

    return made_once(tmp_path_factory, "records-of-keras-arguments", make)


@pytest.mark.tf
@pytest.mark.parametrize("words", KERAS_WORDS)
@pytest.mark.parametrize("how", ["keras", "keras compiled"])
def test_the_argument_of_a_keras_model_that_differs_is_named(keras_folder: Path, how: str, words: str) -> None:
    a, b = run(keras_folder, how), run(keras_folder, f"{how} {words}")
    assert len([*a.steps]) == 1 + 3 and judge(a, run(keras_folder, "keras")).exit_code == 0
    verdict = judge(a, b)
    assert verdict.exit_code == 4 and verdict.headline.startswith(f"not the same: step 0, data: {dict(WORDS)[words]}")


def run(folder: Path, words: str) -> RecordedRun:
    return read_run(folder / words)


@pytest.mark.torch
@pytest.mark.parametrize(("words", "said"), WORDS)
def test_the_argument_that_differs_is_named(folder: Path, words: str, said: str) -> None:
    verdict = judge(run(folder, "torch "), run(folder, f"torch {words}"))
    assert verdict.exit_code == 4 and verdict.headline.startswith(f"not the same: step 0, data: {said}")
    assert (ALL_ARGUMENTS in verdict.notes) == (words == "other")


@pytest.mark.torch
@pytest.mark.parametrize("words", ["mapping", "places", "shuffled"])
def test_the_same_examples_are_the_same_however_they_are_given(folder: Path, words: str) -> None:
    assert judge(run(folder, "torch "), run(folder, f"torch {words}")).exit_code == 0


@pytest.mark.torch
def test_arguments_without_keywords_are_named_by_their_positions(folder: Path) -> None:
    verdict = judge(run(folder, "torch places"), run(folder, "torch places labels"))
    assert "arguments of the model differ: argument 1 in 2 of 8 examples;" in verdict.headline
    assert "of A's 8 examples are among" in judge(run(folder, "torch "), run(folder, "torch places labels")).headline


@pytest.mark.torch
def test_records_without_arguments_say_of_examples_what_they_did(folder: Path) -> None:
    a, b = run(folder, "torch "), run(folder, "torch positions")
    earlier = [dataclasses.replace(step, arguments=()) for step in a.steps]
    verdict = judge(dataclasses.replace(a, steps=earlier), b)
    assert "0 of A's 8 examples are among the 8 of B" in verdict.headline and ALL_ARGUMENTS in verdict.notes


@pytest.mark.torch
def test_an_argument_that_only_one_of_two_models_is_given_is_said(folder: Path) -> None:
    a, b = run(folder, "torch "), run(folder, "torch labels")
    verdict = judge(a, renamed(b, {"position_ids": ""}))
    assert "labels in 2 of 8 examples, position_ids in A alone; the others are the same" in verdict.headline
    assert "position_ids in B alone;" in judge(renamed(b, {"position_ids": ""}), a).headline


@pytest.mark.torch
def test_where_a_mask_is_another_one_it_is_said_that_it_makes_other_data(folder: Path) -> None:
    names = {"position_ids": "batch.attention_mask"}
    verdict = judge(renamed(run(folder, "torch "), names), renamed(run(folder, "torch other"), names))
    assert "0 of A's 8 examples are among the 8 of B" in verdict.headline
    assert OTHER_MASK in verdict.notes and ALL_ARGUMENTS not in verdict.notes


@pytest.mark.torch
def test_a_mask_that_only_one_of_two_models_is_given_is_said_first(folder: Path) -> None:
    """Without it, padding is data in every other argument."""
    a, b = run(folder, "torch "), run(folder, "torch other")
    a, b = renamed(a, {"position_ids": "attention_mask"}), renamed(b, {"position_ids": ""})
    for sides, name in (((a, b), "A"), ((b, a), "B")):
        verdict = judge(*sides)
        assert f"arguments of the model differ: attention_mask in {name} alone, input_ids in " in verdict.headline
        assert OTHER_MASK in verdict.notes and ALL_ARGUMENTS not in verdict.notes


@pytest.mark.torch
def test_arguments_of_several_models_are_compared_with_those_of_the_same_call(folder: Path) -> None:
    """One has two arguments and another one a third as well, so there are more examples of the first two."""
    names = ("input_ids", "labels")

    def called_twice(run: RecordedRun) -> RecordedRun:
        steps = [
            dataclasses.replace(
                step, arguments=[{k: v * 2 if k in names else v for k, v in own.items()} for own in step.arguments]
            )
            for step in run.steps
        ]
        return dataclasses.replace(run, steps=steps)

    a, b = (called_twice(run(folder, f"torch {words}")) for words in ("", "labels"))
    assert "arguments of the model differ: labels in 4 of 16 examples; the others" in judge(a, b).headline


def renamed(run: RecordedRun, names: dict[str, str]) -> RecordedRun:
    """Returns a run with other names of arguments, without those whose name is empty."""
    steps = []
    for step in run.steps:
        found = [{names.get(name, name): each for name, each in own.items()} for own in step.arguments]
        steps.append(dataclasses.replace(step, arguments=[{k: v for k, v in own.items() if k} for own in found]))
    return dataclasses.replace(run, steps=steps)


@pytest.mark.torch
def test_a_target_of_class_zero_is_none_that_is_ignored() -> None:
    import torch

    from samestep.torch_impl.recording.step.targets import Targets

    def hashed(rows: list[list[int]], **options: int) -> bytes | None:
        outputs = torch.zeros(len(rows) * len(rows[0]), 4, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(outputs, torch.tensor(rows).flatten(), **options)
        targets = Targets()
        targets.see([(loss, None)], [torch.zeros(len(rows), dtype=torch.int64)], True)
        return targets.end_step()[0]

    padded = hashed([[1, 0, -100], [2, 3, 1]])
    assert padded != hashed([[1, 0, 0], [2, 3, 1]]) and padded != hashed([[1, -100, -100], [2, 3, 1]])
    assert padded == hashed([[1, 0, -100, -100], [2, 3, 1, -100]])
    assert hashed([[1, 2], [3, 3]]) == hashed([[1, 2, 0], [3, 3, 0]], ignore_index=0) != hashed([[1, 2, 0], [3, 3, 0]])


@pytest.mark.torch
def test_targets_of_records_that_were_hashed_otherwise_are_not_compared(folder: Path) -> None:
    a, b = run(folder, "torch "), run(folder, "torch ")
    steps = [dataclasses.replace(step, targets={0: (1, 2, 3, 4, 5, 6, 7, 8)}, loss=9.0) for step in b.steps]
    b = dataclasses.replace(b, steps=steps)
    assert "the targets of 8 of 8 examples are different" in judge(a, b).headline
    earlier = dataclasses.replace(a, header=dataclasses.replace(a.header, schema=4))
    assert "targets of" not in judge(earlier, b).headline


@pytest.mark.tf
def test_arguments_that_may_have_other_rows_are_told_apart_in_a_graph() -> None:
    """As the nodes of a graph and its edges, whose numbers of rows nobody knows while the step is traced."""
    import tensorflow as tf

    from samestep.tf_impl.recording.examples import Results, inputs_of, sums_of_words
    from samestep.tf_impl.recording.rings import ArgumentRings

    rings = ArgumentRings(64)
    kinds = [tf.TensorSpec([None, size], tf.int64) for size in (3, 2)]

    @tf.function(input_signature=[kinds[0], kinds[1], tf.TensorSpec([], tf.int64)])
    def step(nodes: tf.Tensor, edges: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
        names, inputs = zip(*inputs_of([{"nodes": nodes, "edges": edges}], {}, Results()), strict=True)
        total, alone = sums_of_words(inputs)
        with tf.control_dependencies(rings.write(start + tf.range(tf.size(total, tf.int64)), alone, names)):
            return start + 0

    def numbers(rows: int, size: int) -> np.ndarray:
        return np.arange(rows * size).reshape(rows, size)

    nodes, edges = numbers(4, 3), numbers(4, 2)
    step(nodes, edges, 0)
    step(nodes, numbers(6, 2), 4)
    step(numbers(6, 3), edges, 8)
    expected = argument_sums([edges, nodes])
    assert rings.read(0, 4) == {n: e.tobytes() for n, e in zip(("edges", "nodes"), expected, strict=True)}
    assert rings.read(4, 8) == rings.read(8, 12) == {}


@pytest.mark.torch
def test_each_argument_is_hashed_as_the_statement_says() -> None:
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    ids, scores, mask = torch.arange(12).reshape(4, 3) - 5, torch.randn(4, 2, 2), torch.ones(4, 3, dtype=torch.int32)
    examples, expected = Examples(), argument_sums([each.numpy() for each in (ids, scores, mask)])
    examples.add([ids, (scores,)], {"mask": mask, "ignored": 3})
    examples.add([ids, (scores,)], {"mask": mask})
    found = examples.arguments.end_step()
    assert [*found] == ["0", "1.0", "mask"]
    for each, own in zip(found.values(), expected, strict=True):
        assert np.frombuffer(each, "<u4").tolist() == [*own.tolist()] * 2
    examples.forget()
    examples.add([ids], {})  # whose hashes are those of the examples
    assert examples.arguments.end_step() == {}
    result = torch.nn.Linear(2, 3)(torch.ones(2, 2)).detach()
    examples.add_result(result, ())
    examples.add([torch.cat([result, torch.ones(2, 3)])], {"labels": torch.arange(4)})
    (_, labels) = argument_sums([np.ones((2, 3), np.float32), np.arange(2, 4)[:, None]])
    assert np.frombuffer(examples.arguments.end_step()["labels"], "<u4").tolist() == labels.tolist()


def whole_sums(arguments: dict[str, np.ndarray]) -> dict[str, bytes]:
    return {name: argument_sums([each.reshape(1, -1)])[0].tobytes() for name, each in arguments.items()}


@pytest.mark.torch
def test_what_has_no_row_for_each_example_has_a_hash_of_its_own() -> None:
    """The edges of a graph, scalars, and the floats beside a result, which are no examples."""
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    examples, data, edges = Examples(), torch.rand(4, 3), torch.arange(10).reshape(2, 5)
    examples.add([data, edges], {"scale": torch.tensor(0.5)})
    examples.add_result(result := data * 2, ())
    examples.add([result], {"state": data + 1})
    rows, arguments = examples.end_step()
    whole = {"1:": edges.numpy(), "scale:": np.float32(0.5), "state:": (data + 1).numpy()}
    assert arguments == whole_sums(whole) and rows is not None and len(rows) == 4 * 8


@pytest.mark.torch
def test_an_image_of_a_detector_is_an_example_with_its_targets() -> None:
    import torch

    from samestep.torch_impl.recording.step.examples import Examples

    def rows(images: list[torch.Tensor], *others: object) -> list[bytes]:
        examples = Examples()
        examples.add([images, *others], {})
        found = np.frombuffer(examples.end_step()[0] or b"", np.uint64)
        return sorted(each.tobytes() for each in found)

    images = [torch.rand(3, *sizes) for sizes in ((8, 9), (6, 7))]
    boxes = [{"boxes": torch.rand(k, 4), "labels": torch.arange(k)} for k in (2, 1)]
    assert len(rows(images)) == 2 and rows(images) == rows(images[::-1])
    assert len(both := rows(images, boxes)) == 2 and both == rows(images[::-1], boxes[::-1])
    assert not {*both} & {*rows(images, [boxes[0] | {"labels": torch.ones(2)}, boxes[1] | {"boxes": torch.ones(1, 4)}])}
    assert len(rows([torch.rand(3, 1), torch.rand(3, 2)])) == len(rows([torch.rand(3, 2, 4), torch.rand(3, 2, 5)])) == 3


@pytest.mark.tf
@pytest.mark.parametrize("is_graph", [True, False])
def test_keras_what_has_no_row_for_each_example_has_a_hash_of_its_own(is_graph: bool) -> None:
    import tensorflow as tf

    from samestep.common.steps.argument_names import WHOLE
    from samestep.tf_impl.recording.examples import Results, inputs_of, sums_of_words
    from samestep.tf_impl.recording.journal import Journal

    journal, results = Journal(1, 64), Results()

    def step(data: tf.Tensor, edges: tf.Tensor, scale: tf.Tensor, state: tf.Tensor) -> tf.Tensor:
        rows, *others = inputs_of([data, edges], {"scale": scale}, results)
        journal.add_rows(*sums_of_words([rows[1]]), (rows[0],))
        result = data * 2
        results.add(result)
        others += inputs_of([result], {"state": state}, results)
        assert all(name.endswith(WHOLE) for name, _ in others)
        journal.add_whole({name: sums_of_words([each])[0] for name, each in others})
        return result

    given = [np.ones((4, 3), np.float32), np.arange(10).reshape(2, 5), np.float32(0.5), np.ones((4, 6), np.float32)]
    step_once = tf.function(step, autograph=False) if is_graph else step
    end = tf.function(functools.partial(journal.end_step, True, 0, False, True), autograph=False)
    for _ in range(2):
        step_once(*map(tf.constant, given))
        end(tf.constant(0.1, tf.float64))
    whole = whole_sums(dict(zip(("1:", "scale:", "state:"), given[1:], strict=True)))
    assert [note.arguments for note in journal.read()] == [whole, whole]
