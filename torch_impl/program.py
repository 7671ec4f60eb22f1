"""The training step of all strategies of PyTorch, on one replica. Each strategy passes the parts in which it differs."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from samestep.common.batch import Batch, BatchPart
from samestep.common.features.used import initial_buffers
from samestep.common.ledger import Footprint, Send
from samestep.common.program import Hardware, StatePiece, TrainState, whole
from samestep.common.strategy import Run
from samestep.common.tree import add_up
from samestep.torch_impl import devices, weights
from samestep.torch_impl.division import Division
from samestep.torch_impl.features.applied import with_balance
from samestep.torch_impl.local_state import HeldState, build_local_state
from samestep.torch_impl.models import summed_loss
from samestep.torch_impl.models.inputs import Inputs, as_inputs
from samestep.torch_impl.models.outputs import main_outputs
from samestep.torch_impl.observing.activations import follow_activations
from samestep.torch_impl.observing.exchanges import Observer
from samestep.torch_impl.observing.gpus import AllocatorPeak
from samestep.torch_impl.optimizers import build_optimizer, matrices_of, set_rate
from samestep.torch_impl.sharded import full_tensor
from samestep.torch_impl.step import Loss, accumulation, target_share
from samestep.torch_impl.step_context import StepContext
from samestep.torch_impl.techniques.applied import scaler_of, transform
from samestep.torch_impl.upstream import num_graphs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a program in which strategies differ.

    Attributes:
        bare: The model without wrappers, whose modules have their own paths; in a pipeline, the stages of this rank.
        hardware: What the program runs on.
        context: The context that the model was built with.
        model: Computes logits; the wrapped model, if the strategy wraps it.
        predict: Computes logits in evaluation, if that differs from training.
        optimizer: The optimizer, if it is not torch's own for the parameters of `bare`.
        part: The part of the global batch that this process takes, if its place on the mesh does not determine it. If there are
            several parts, the losses of all ranks are summed.
        sums_losses: Whether losses are summed even if there is only one part, because each rank has a part of the loss.
        averages_gradients: Whether each rank computes the gradient of its own mean loss, because a wrapper averages gradients.
        forward_backward: Given inputs and targets, accumulates gradients and returns the loss, if not by calling the model.
        exchange: Given whether a micro-batch is the last, returns the context of its passes, which sums the gradients.
        global_norm: Computes the norm of the whole gradient, after the exchange.
        after_update: Called after each update, with the number of steps taken.
        loss: Given logits and targets, returns the loss summed over all targets; None stands for the loss of the model.
        local_state: What this process holds, if that is not just `bare` and its optimizer state.
        gather: Returns the state of the whole model, given the snapshot of `local_state`.
        watch: Returns a context in which the observed step is taken.
        replicas: Returns one footprint for each further device that this process drives.
        saves_here: Whether autograd saves activations on this thread, where they are counted.
        measures: Returns the quantities that only this strategy has.
    """

    bare: nn.Module
    hardware: Hardware
    context: StepContext
    model: Callable[[Inputs], torch.Tensor] | None = None
    predict: Callable[[Inputs], torch.Tensor] | None = None
    optimizer: torch.optim.Optimizer | None = None
    part: BatchPart | None = None
    sums_losses: bool = False
    averages_gradients: bool = False
    forward_backward: Callable[[Inputs, torch.Tensor], torch.Tensor] | None = None
    exchange: Callable[[bool], contextlib.AbstractContextManager[None]] = lambda last: contextlib.nullcontext()
    global_norm: Callable[[list[torch.Tensor]], torch.Tensor] = lambda own: full_tensor(nn.utils.get_total_norm(own))
    after_update: Callable[[int], None] = lambda step: None
    loss: Loss | None = None
    local_state: HeldState | None = None
    gather: Callable[[TrainState], TrainState] = lambda state: state
    watch: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    replicas: Callable[[], tuple[Footprint, ...]] = tuple
    saves_here: bool = True
    measures: Callable[[], Mapping[str, float]] = dict


class TrainingProgram:
    """A replica in training, or a rank's stages of one."""

    def __init__(self, run: Run, parts: Parts) -> None:
        self.run, self.parts, self.hardware = run, parts, parts.hardware
        self.part = parts.part or devices.own_part(run)
        self._device = next(parts.bare.parameters()).device
        self._model = parts.model or parts.bare
        self._optimizer = parts.optimizer or build_optimizer(
            run.optimizer, parts.bare.parameters(), matrices_of(run, parts.bare)
        )
        self._local_state = parts.local_state or build_local_state(run, self._optimizer, parts.bare)
        self.context = parts.context
        self._loss = with_balance(run, parts.loss or summed_loss(run.workload.model), self.context)
        self._target_share = target_share(run, self.context, self._device)
        self._accumulate = accumulation(run, self.context, self.part, self._device)
        self._scaler, self._division = scaler_of(run, self.context), Division(self._device)
        self._step = self._skipped = 0
        self._losses: list[torch.Tensor] = []
        self._gradients_bytes = self._gathered_bytes = self._activations_bytes = 0
        self._allocated_bytes: int | None = None
        self._sends: tuple[Send, ...] = ()

    def step(self, batch: Batch) -> None:
        """Runs every micro-batch forward and backward, exchanges gradients on the last, clips them and updates."""
        self._losses.append(self.gradients(batch))
        self.apply()

    def gradients(self, batch: Batch) -> torch.Tensor:
        """Accumulates the gradient of the global mean loss; returns this rank's part of the loss, on its device."""
        self._optimizer.zero_grad()
        return self._accumulate(batch, self._exchanged_pass)

    def _exchanged_pass(self, inputs: np.ndarray, targets: np.ndarray, last: bool) -> torch.Tensor:
        x, y = (as_inputs(array, self._device) for array in (inputs, targets))
        self.context.recorder.phase = "forward"
        with self.parts.exchange(last):
            return (self.parts.forward_backward or self._forward_backward)(x, y)

    def _forward_backward(self, x: Inputs, y: torch.Tensor) -> torch.Tensor:
        loss, share = self._loss(self._model(x), y), self._target_share()
        # The backward pass starts with the derivative of the mean by the sum, so the graph needs no division.
        first = share * self.part.count if self.parts.averages_gradients else share
        loss.backward(first * self.context.seed_gradient if self._scaler else first)
        return loss.detach() * share

    def apply(self) -> None:
        """Transforms the gradients as the techniques require, then updates every parameter."""
        self.context.recorder.phase = "update"
        self._step += 1
        if self._scaler and not self._scaler.unscale(self._gradients(), self._step - 1):
            self._skipped += 1
            return
        if self.run.techniques.need_norm:
            transform(self._gradients(), self.parts.global_norm, self.run.techniques)
        set_rate(self._optimizer, self.run.optimizer_at(self._step).learning_rate)
        self._optimizer.step()
        self.parts.after_update(self._step)

    def _gradients(self) -> list[torch.Tensor]:
        return [p.grad for p in self.parts.bare.parameters() if p.grad is not None]

    def losses(self) -> list[float]:
        """Returns the global losses since the last call, with one sum over all ranks."""
        taken, self._losses = self._losses, []
        if not taken:
            return []
        own, is_shared = torch.stack(taken), self.part.count > 1 or self.parts.sums_losses
        return self._sum(own) if is_shared else own.tolist()

    def agree(self, value: float) -> float:
        """Returns the mean over ranks."""
        if not dist.is_initialized():
            return value
        return self._sum(torch.tensor([value], dtype=torch.float64, device=self._device))[0] / dist.get_world_size()

    def _sum(self, own: torch.Tensor) -> list[float]:
        """Adds up the numbers of all ranks as a tree; an all-reduce would round a loss differently depending on its position."""
        of_ranks = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(of_ranks, own)
        return add_up(of_ranks, torch.add).tolist()

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """Returns logits; pure replicas without buffers each compute a share, since buffers may differ between ranks."""
        is_replica = dist.is_initialized() and 1 < self.part.examples.count == dist.get_world_size()
        of_all = is_replica and not initial_buffers(self.run.workload.model)
        own = inputs[self.part.examples.within(len(inputs))] if of_all else inputs
        self.parts.bare.eval()
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):  # otherwise it would be compiled again
            outputs = (self.parts.predict or self._model)(as_inputs(own, self._device))
            logits = main_outputs(outputs).contiguous()
        self.parts.bare.train()
        if of_all:
            held = [torch.empty_like(logits) for _ in range(dist.get_world_size())] if dist.get_rank() == 0 else None
            dist.gather(logits, held)
            logits = torch.cat(held) if held else logits
        return logits.cpu().numpy()

    def state(self) -> TrainState:
        """Returns parameters and optimizer state, gathered from all ranks."""
        state = dataclasses.replace(self.parts.gather(self._local_state.snapshot(self._step)), skipped=self._skipped)
        if self._scaler is None:
            return state
        kept, of_ranks = self._scaler.snapshot(), state.local or ({},) * self.run.num_devices
        return dataclasses.replace(state, local=tuple({**own, **kept} for own in of_ranks))

    def shards(self) -> list[StatePiece] | None:
        """Returns what this rank saves of the state; None if every rank has all of it, or an engine has its own layout."""
        is_whole = not dist.is_initialized() or self._division.is_needless
        pieces = None if is_whole else self._local_state.pieces()
        if pieces is None:
            return None
        pieces += [whole("step", np.asarray(self._step)), whole("skipped", np.asarray(self._skipped))]
        kept = self._scaler.snapshot() if self._scaler else {}
        mine = [whole(f"local/{dist.get_rank()}/{name}", array) for name, array in kept.items()]
        own = self._division.take(pieces)
        return None if own is None else own + mine

    def restore(self, state: TrainState) -> None:
        """Copies a state in place; see `LocalState.restore`."""
        self._step, self._skipped = state.step, state.skipped
        self._local_state.restore(state)
        if self._scaler:
            self._scaler.restore(state.local[0] if state.local else {})

    def observe(self, batch: Batch) -> None:
        """Takes the observed step; its collectives are recorded when they are dispatched."""
        self.context.recorder.start()
        observing = Observer(self.context.recorder, self.parts.bare)
        with observing as observer, self.parts.watch(), AllocatorPeak(self._device) as allocated:
            with follow_activations(self.parts.bare) as kept:
                self._losses.append(self.gradients(batch))
            self._gradients_bytes = weights.nbytes(p.grad for p in self.parts.bare.parameters())
            self.apply()
        self._gathered_bytes, self._activations_bytes = observer.gathered.peak_bytes, kept.peak_bytes
        self._allocated_bytes = allocated.bytes
        self._sends = self.context.recorder.stop()

    def sends(self) -> tuple[Send, ...]:
        """Returns the collectives of the observed step, and what the strategy recorded itself."""
        return self._sends

    def footprint(self) -> tuple[Footprint, ...]:
        """Returns the tensors of this process."""
        own = self._local_state.footprint(self._device, self._gradients_bytes, self._gathered_bytes)
        activations_bytes = self._activations_bytes if self.parts.saves_here else None
        own = dataclasses.replace(own, activations_bytes=activations_bytes, allocated_peak_bytes=self._allocated_bytes)
        return (own, *self.parts.replicas())

    def measures(self) -> Mapping[str, float]:
        """Returns the quantities that only this strategy has."""
        return self.parts.measures()

    def sync(self) -> None:
        """Waits until the device has finished its queued work."""
        devices.synchronize(self._device)

    def close(self) -> None:
        """Leaves the group of processes."""
        devices.leave_group()


def num_compilations() -> int:
    """Returns how many functions this process has compiled so far."""
    return num_graphs()
