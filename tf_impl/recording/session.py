"""The state of one process of a script: hooks report what happens, graphs write it down, and the session writes the record.

A step is an update by an optimizer. Each replica of a strategy is a rank of the record, with its own file. Its losses are
multiplied by the number of replicas, so their mean over the ranks is the loss of the step, as it is in PyTorch.
"""

import dataclasses
import math
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from samestep.common.steps.gradient_transforms import GRADIENT_ROWS
from samestep.common.steps.record import INITIAL, Phase, RecordedStep
from samestep.common.steps.recording import Recorder
from samestep.tf_impl.recording.between_steps import BetweenSteps
from samestep.tf_impl.recording.dtypes import dtype_of_products
from samestep.tf_impl.recording.examples import Results
from samestep.tf_impl.recording.joined import in_order, joined_notes, merged, numbers_of
from samestep.tf_impl.recording.journal import CAPACITY, Journal, Note
from samestep.tf_impl.recording.plans import Plans, UpdatePlan, is_wide
from samestep.tf_impl.recording.predicted import Predicted
from samestep.tf_impl.recording.slots import Slots
from samestep.tf_impl.recording.start import FirstWeights
from samestep.tf_impl.recording.tensors import TensorTable, TrackedTensor, replica_id


class Session:
    """Follows the script."""

    def __init__(self, recorder: Recorder) -> None:
        """Waits for the first step.

        Args:
            recorder: The recorder of the first replica; the others get one each.
        """
        self._last = dict[int, np.ndarray]()
        self._recorder, self.first, self.results = recorder, FirstWeights(recorder, self._last), Results()
        self.predicted = Predicted(self.results)
        self._recorders: dict[int, Recorder] = {}
        self._recorded: dict[int, list[TrackedTensor]] = {}
        self._began_with, self._added = list[TrackedTensor](), set[tuple[int, int]]()
        self._table, self._journals = TensorTable(), dict[int, Journal]()
        self._plans = Plans(self._table)
        self.between = BetweenSteps(self._journals)
        self.models = weakref.WeakSet[Any]()  # that are called in training
        self.steppers = weakref.WeakSet[Any]()  # functions of TensorFlow that take steps
        self.function: Any = None
        self._is_loss_noted = self.is_async = False  # calls may return before their steps are taken
        self._open_notes: dict[int, list[Note]] = {}

    # --- what hooks ask ------------------------------------------------------------------------------------------------

    def add_model(self, model: Any) -> None:
        """Remembers a model that is called in training."""
        if model not in self.models and tf.executing_eagerly() and not tf.distribute.has_strategy():
            self.first.see_model(model)
        self.models.add(model)

    def add_variables(self, variables: Iterable[Any]) -> None:
        """Remembers what a script that calls no layer may train, before its first pass."""
        self.first.expect(replica_id(), self._table.of_optimizer([*variables]))

    def journal(self) -> Journal:
        """Returns the journal of the replica whose code runs."""
        replica = replica_id()
        if replica not in self._journals:
            self._journals[replica] = Journal(self._recorder.options.every, self._capacity())
        return self._journals[replica]

    def is_inner(self, optimizer: Any) -> bool:
        """Returns whether an optimizer takes the steps of one that scales the loss."""
        return self._plans.owner_of(optimizer) is not optimizer

    def plan(self, optimizer: Any, variables: Iterable[Any] = ()) -> UpdatePlan:
        """Returns what is recorded of an optimizer.

        Args:
            optimizer: The Keras optimizer.
            variables: The variables that it updates; only needed the first time.
        """
        return self._plans.of(optimizer, variables, self.models)

    def slots(self, plan: UpdatePlan) -> Slots:
        """Returns the slots of an optimizer on the replica whose code runs.

        Args:
            plan: The plan of the optimizer.
        """
        replica = replica_id()
        if replica not in plan.slots:
            weights = [each.of_replica(replica) for each in plan.held]
            plan.slots[replica] = Slots(self.journal(), plan, weights)
            self.first.expect(replica, self._table.held)
            self.between.watch(plan, weights)
        return plan.slots[replica]

    def _capacity(self) -> int:
        """Returns how many steps one call may take."""
        return max([CAPACITY, *(getattr(model, "steps_per_execution", None) or 1 for model in self.models)])

    def is_next_unseen(self) -> bool:
        """Returns whether a call of a tf.function with steps begins, the first of which is not looked at."""
        if self.function not in self.steppers or self.is_async or len(self._journals) != 1:
            return False
        journal = self._journals.get(0)
        is_known = journal is not None and tf.executing_eagerly() and not self._recorder.is_ended
        return is_known and not self._recorder.looks_at(journal.num_read)

    def step_was_taken(self) -> None:
        """Reads the slots, or remembers that a step is in the graph that is built."""
        self.between.end_calls(replica_id())
        if tf.executing_eagerly():
            self.write_steps(is_open=True)
        elif self.function is not None:
            self.steppers.add(self.function)

    def begin_pass(self, is_tape: bool = False) -> None:
        """Ends the step before a tape or a call of a tf.function, whose effect is not known yet."""
        if (self._open_notes or self.between.before) and tf.executing_eagerly():
            if self._open_notes:
                self.write_steps()
            self.between.begin(is_tape)
        for journal in self._journals.values():
            journal.open_step.close()

    def count_pass(self) -> None:
        """Counts a pass through data that Keras begins, for the next batch that is trained on."""
        self.begin_pass()
        self.between.count_pass()

    # --- writing -------------------------------------------------------------------------------------------------------

    def write_steps(self, is_open: bool = False) -> None:
        """Writes the steps that were taken since the last call.

        Args:
            is_open: Whether other optimizers may join the last one, which is then written later.
        """
        if self.is_async:
            context.async_wait()
        self.results.end_step()
        last, plans = INITIAL, self._plans.all
        for replica, journal in sorted(self._journals.items()):
            is_plain = not is_open and not self._open_notes and self.between.is_empty(replica, journal.num_read)
            while is_plain and (alike := journal.read_alike()) is not None:
                step, (sums, _) = alike
                self._write_step(replica, step, sums, plans)
                last = journal.num_read - 1
            notes = [*self._open_notes.pop(replica, ()), *journal.read()]
            if is_open and notes:
                self._open_notes[replica] = [notes.pop()]
            for note in notes:
                self._write(replica, note, plans)
                last = max(last, note.number)
            if journal.num_lost and not self._is_loss_noted:
                self._is_loss_noted = True
                self._recorder.note(journal.lost())
        if not self._open_notes:
            self._plans.forget_deleted()
        stop_after = self._recorder.options.stop_after
        if stop_after is not None and last > INITIAL and stop_after <= last + 1:
            self._recorder.leave()

    def end(self) -> None:
        """Writes the last steps, and says whether more were counted."""
        self.write_steps()
        for note in filter(None, [each.unread() for each in self._journals.values()]):
            self._recorder.note(note)

    def _open(self, replica: int, num_replicas: int) -> None:
        options = dataclasses.replace(self._recorder.options, stop_after=None)
        self._recorders[replica] = recorder = Recorder(options, self._recorder.framework)
        self._began_with = held = self._began_with or [*self._table.held]
        self._recorded[replica] = [*held]
        layouts = ("mirrored",) if num_replicas > 1 else ()
        tensors = [each.tensor for each in held]
        recorder.begin(tensors, replica, num_replicas, is_wide(held), layouts, dtype_of_products())
        self._last[replica] = self.first.of(replica, held)
        recorder.write(RecordedStep(INITIAL, stats={"weight": self._last[replica]}))

    def _add(self, replica: int, held: Iterable[TrackedTensor]) -> None:
        """Adds the tensors that a script has made since the first step, such as those of another model."""
        known, there = {*self._recorded[replica]}, {*self._table.held}
        new = [each for each in held if each in there and each not in known]
        if new:
            weights = self.first.of(replica, new).astype(self._last[replica].dtype)
            self._recorders[replica].add([each.tensor for each in new], weights)
            self._recorded[replica] += new
            self._last[replica] = np.concatenate([self._last[replica], weights])

    def _write(self, replica: int, note: Note, plans: Sequence[UpdatePlan]) -> None:
        plan, joined = plans[note.optimizer], joined_notes(plans, replica, note)
        if replica not in self._recorders:
            self._open(replica, plan.num_replicas)
        for each in (plan, *joined):
            if (replica, each.number) not in self._added:
                self._added.add((replica, each.number))
                self._add(replica, each.held)
        transforms = {} if joined else {key: value for key, value in note.transforms.items() if not math.isnan(value)}
        if num_in_rows := sum(each.num_in_rows for each in (plan, *joined)):
            transforms[GRADIENT_ROWS] = float(num_in_rows)
        rates, notes = {plan: note.lr}, [note, *joined.values()]
        if joined:
            rates = in_order(rates | {each: more.lr for each, more in joined.items()}, self._recorded[replica])
        loss = math.fsum(each.loss for each in notes) * plan.num_replicas / plan.num_batches
        num_losses = sum(each.num_losses for each in notes)
        step = RecordedStep(
            note.number,
            losses=(loss,) if num_losses else (),
            scalars=numbers_of(rates) | transforms,
            is_skipped=note.is_skipped,
            counts=self.between.counts(replica, note.number, num_losses // len(notes)),
            stats=self._stats(replica, note.number, [*rates]) if note.is_looked_at and replica in plan.slots else None,
            arguments=note.arguments,
        )
        self._write_step(replica, step, note.sums, plans)
        is_plain = plan.num_replicas * plan.num_batches == 1 and not joined
        self._journals[replica].scalars = step.scalars if is_plain else None

    def _write_step(self, replica: int, step: RecordedStep, sums: bytes | None, plans: Sequence[UpdatePlan]) -> None:
        """Writes a step without the rows that a trained model has returned, whose place among the arguments is not known."""
        kept = self.predicted.without(sums, plans)
        step = step if kept == sums or not step.arguments else dataclasses.replace(step, arguments={})
        self._recorders[replica].write(step, (kept, None))

    def _stats(self, replica: int, number: int, plans: Sequence[UpdatePlan]) -> dict[Phase, np.ndarray]:
        """Returns the statistics of all recorded tensors; the weights of other optimizers keep theirs."""
        found = [plan.slots[replica].read(number, plan.is_float64) for plan in plans]
        if self._recorded[replica] == plans[0].held:  # one optimizer updates all
            self._last[replica] = found[0]["weight"]
            return found[0]
        places = {each: place for place, each in enumerate(self._recorded[replica])}
        to = [[places.get(each, -1) for each in plan.held] for plan in plans]
        return merged(found, to, self._last[replica])
