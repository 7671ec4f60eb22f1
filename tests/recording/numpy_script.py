"""A small training script in NumPy, and its record: on several ranks, with micro-batches, and wrong in one way if asked."""

import dataclasses
import functools
import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from samestep.common.files.writing import create
from samestep.common.steps.projections import PROJECTIONS, Piece, sum_of_bits
from samestep.common.steps.record import (
    SCHEMA,
    RecordedStep,
    RecordedTensor,
    RecordHeader,
    header_frame,
    rank_file,
    stats_dtype,
    step_frame,
)
from tests.recording.projecting import project

INPUTS, HIDDEN, CLASSES = 12, 16, 5
SHAPES = {
    "net.embed.weight": (INPUTS, HIDDEN),
    "net.embed.bias": (HIDDEN,),
    "net.norm.weight": (HIDDEN,),
    "net.norm.bias": (HIDDEN,),
    "net.head.weight": (HIDDEN, CLASSES),
    "net.head.bias": (CLASSES,),
    "net.shift.bias": (CLASSES,),  # its true gradient is zero: it moves all classes alike
    "net.unused.weight": (3, 3),  # no gradient
    "net.running_mean": (HIDDEN,),  # a buffer, frozen
}
ORDER = ["net.unused.weight", *(name for name in SHAPES if "unused" not in name)]
LAYERS = {"embed": "Linear", "norm": "LayerNorm", "head": "Linear", "shift": "Linear", "unused": "Linear"}
EXAMPLES, BATCH = 48, 16
LOST = 3
"""From which step on a resumed run has lost something."""


@dataclasses.dataclass(frozen=True)
class Script:
    """What is trained, how it is cut, and what is wrong."""

    world: int = 1
    passes: int = 1
    steps: int = 6
    seed: int = 0
    optimizer: str = "adam"
    rate: float = 1e-2
    decay: float = 0.1
    clip: float | None = None
    loss_scale: float = 1.0
    dtype: str = "float32"
    uneven: bool = False
    relu: bool = False
    shards: bool = False
    flipped: bool = False  # another order of summation
    chosen: bool = False  # half of the examples are computed from the weights
    perturbed: int | None = None
    mistake: str = ""
    moves_statistics: bool = False
    sees_targets: bool = False
    prefix: str = ""
    products: str = ""
    layouts: tuple[str, ...] = ()
    nesterov: bool = False
    is_cast: bool = False
    command: tuple[str, ...] = ()

    @property
    def rounded_as(self) -> int:
        """A number for how the weights are rounded."""
        return self.flipped + (0 if self.perturbed is None else 2 + self.perturbed)

    @property
    def is_float64(self) -> bool:
        return self.dtype == "float64"


def run(script: Script, directory: Path, **changes: object) -> Path:
    """Trains and records."""
    directory.mkdir(parents=True, exist_ok=True)
    for rank, frames in enumerate(_recorded(dataclasses.replace(script, **changes))):  # type: ignore[arg-type]
        with os.fdopen(create(directory / rank_file(rank)), "wb") as file:
            file.write(frames)
    return directory


@functools.cache
def _recorded(script: Script) -> list[bytes]:
    """What each rank records: many tests run the same script."""
    training = _Training(script)
    training.train()
    return [file.getvalue() for file in training.files]


class _Training:
    def __init__(self, script: Script) -> None:
        self.s, self.kind = script, np.dtype(script.dtype)
        draw = np.random.default_rng(script.seed)
        made = {name: draw.normal(0, 0.4, shape) for name, shape in SHAPES.items()}
        made["net.norm.weight"] += 1
        if script.mistake == "other_seed":
            made["net.head.weight"] *= 1.5
        if script.perturbed is not None:
            move = np.random.default_rng(1000 + script.perturbed)
            unit = 2.0 ** (-53 if script.is_float64 else -24)
            made = {name: value * (1 + unit * move.choice([-1, 1], value.shape)) for name, value in made.items()}
        self.weights = [{name: value.astype(self.kind) for name, value in made.items()} for _ in range(script.world)]
        self.slots = [
            {name: (np.zeros(shape, self.kind), np.zeros(shape, self.kind)) for name, shape in SHAPES.items()}
            for _ in range(script.world)
        ]
        self.x = draw.normal(size=(EXAMPLES, INPUTS)).astype(self.kind)
        self.y = draw.integers(0, CLASSES, EXAMPLES)
        self.counted = (draw.random(EXAMPLES) < 0.6) if script.uneven else np.ones(EXAMPLES, bool)
        self.counted[::4] = True
        self.kept: dict[str, np.ndarray] = {}
        self.files = [io.BytesIO() for _ in range(script.world)]

    # --- data ---------------------------------------------------------------------------------------------------------

    def batch(self, step: int) -> list[np.ndarray]:
        """The examples of each rank at a step."""
        s, per_epoch = self.s, EXAMPLES // BATCH
        if (s.mistake == "position_lost" and step >= 2) or (s.mistake == "position_lost_later" and step >= 5):
            step -= 2
        epoch = 0 if s.mistake == "same_order_each_epoch" else step // per_epoch
        seed = 7 * s.seed + epoch + (100 if s.mistake == "other_order" else 0)
        order = np.random.default_rng(seed).permutation(EXAMPLES)
        indices = order[step % per_epoch * BATCH :][:BATCH].copy()
        if s.mistake == "padded_sample_twice" and step == 1:
            indices[-1] = indices[0]
        if s.mistake == "filled_up" and step == 1:
            indices[-2:] = order[:2]
        if s.mistake == "support_for_query":
            indices[BATCH // 2 :] = indices[: BATCH // 2]
        if s.mistake == "two_short" and step == 1:
            indices = indices[:-2]
        if s.mistake == "dropped_shard":
            indices = indices[: BATCH // 2]
        parts = np.array_split(indices, s.world)
        if s.mistake == "same_data_on_every_worker":
            parts = [parts[0]] * s.world
        elif "tp" in s.layouts:  # groups of two ranks
            is_split = [s.mistake == "shares_given_other_data" and rank < 2 for rank in range(s.world)]
            parts = [parts[rank if alone else rank - rank % 2] for rank, alone in enumerate(is_split)]
        return parts

    # --- a step -------------------------------------------------------------------------------------------------------

    def loss(self, rank: int, indices: np.ndarray, divisor: float) -> tuple[float, dict[str, np.ndarray]]:
        """The loss of some examples over a divisor, and its gradients."""
        w = {name.removeprefix("net."): value for name, value in self.weights[rank].items()}
        indices = indices[::-1] if self.s.flipped else indices
        x, y, counted = self.x[indices], self.y[indices].copy(), self.counted[indices]
        if self.s.mistake in ("other_loss", "targets_differ", "evaluation_mode", "statistics_stand_still"):
            y[indices == indices.min()] = (y[indices == indices.min()] + 1) % CLASSES
        z = x @ w["embed.weight"] + w["embed.bias"]
        h = np.maximum(z, 0) if self.s.relu else np.tanh(z)
        n = h * w["norm.weight"] + w["norm.bias"]
        logits = n @ w["head.weight"] + w["head.bias"] + w["shift.bias"].mean(dtype=self.kind)
        logits = logits - logits.max(1, keepdims=True)
        p = np.exp(logits)
        total = p.sum(1, keepdims=True)
        losses = (np.log(total[:, 0]) - logits[np.arange(len(y)), y])[counted]
        p /= total
        d = p.copy()
        d[np.arange(len(y)), y] -= 1
        d = (d * counted[:, None] / self.kind.type(divisor)).astype(self.kind)
        dn = d @ w["head.weight"].T
        dz = dn * w["norm.weight"] * ((z > 0) if self.s.relu else 1 - h * h)
        gradients = {
            "embed.weight": x.T @ dz,
            "embed.bias": dz.sum(0),
            "norm.weight": (dn * h).sum(0),
            "norm.bias": dn.sum(0),
            "head.weight": n.T @ d,
            "head.bias": d.sum(0),
            "shift.bias": np.full(CLASSES, d.sum(dtype=self.kind) / CLASSES, self.kind),
        }
        return float(losses.sum(dtype=self.kind) / divisor), {f"net.{name}": g for name, g in gradients.items()}

    def gradients(self, step: int, parts: list[np.ndarray]) -> list[tuple[list[float], dict[str, np.ndarray]]]:
        """The losses and the gradient of each rank."""
        s, made = self.s, []
        every = np.concatenate(parts)
        for rank, own in enumerate(parts):
            micro = np.array_split(own, s.passes)
            if s.passes > 1 and step == s.steps - 1:
                micro = micro[:1]
            if s.mistake == "mean_of_means":
                divisors = [max(1.0, float(self.counted[m].sum())) * s.passes for m in micro]
            else:
                kept = len(micro) / s.passes
                divisors = [float(self.counted[every].sum()) / s.world * kept] * len(micro)
            factor = {"loss_divided_by_processes": 1 / s.world, "times_microbatches": s.passes, "times_targets": BATCH}
            factor |= {"loss_times": 0.8}
            divisors = [d / factor.get(s.mistake, 1) for d in divisors]
            if s.mistake == "last_window_divided_by_all" and len(micro) < s.passes:
                divisors = [d * s.passes / len(micro) for d in divisors]
            found = [self.loss(rank, m, d) for m, d in zip(micro, divisors, strict=True)]
            total = {name: sum(g[name] for _, g in found) for name in found[0][1]}
            if s.mistake == "clip_each_microbatch":
                total = functools.reduce(self._clipped_sum, (g for _, g in found))
            made.append(([loss for loss, _ in found], total))
        return made

    def _clipped_sum(self, one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {name: each + other[name] for name, each in self.clipped(0, one)[0].items()}

    def exchange(self, own: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        s, one = self.s, self.kind.type
        if s.mistake == "forgotten_exchange":
            return own
        if s.mistake == "gradients_rounded_to_bf16":
            own = [{name: _bf16(g) for name, g in each.items()} for each in own]
        if s.mistake == "gradients_rounded_to_fp16":
            own = [{name: g.astype(np.float16).astype(self.kind) for name, g in each.items()} for each in own]
        mean = {name: (sum(each[name] for each in own) / one(s.world)).astype(self.kind) for name in own[0]}
        if s.mistake == "partial_on_replicated":
            mean |= {name: own[0][name] / one(s.world) for name in mean if "norm" in name}
        scales = {
            "sum_for_mean": s.world,
            "divided_by_microbatches": 1 / s.passes,
            "mean_twice": 1 / s.world**2,
            "root_of_processes": math.sqrt(s.world),
            "loss_not_scaled": 1 / s.loss_scale,
            "off_by_a_little": 1.0001,
            "gradients_off_by_far": 1.8,
        }
        mean = {name: g * one(scales.get(s.mistake, 1.0)) for name, g in mean.items()}
        if s.mistake == "gradients_not_cleared":
            mean = self.kept = {name: g + self.kept.get(name, one(0)) for name, g in mean.items()}
        if s.mistake == "updated_again":
            mean = self.kept = self.kept if self.step == 1 else mean
        if s.mistake == "gradients_off_at_random" and self.step == 1:
            draw = np.random.default_rng(3)
            mean = {n: (g * (1 + 1e-2 * draw.normal(size=g.shape))).astype(self.kind) for n, g in mean.items()}
            mean |= {"net.head.bias": mean["net.head.bias"] * one(1.5)}
        if s.mistake == "one_gradient_rounded_more" and self.step == 1:
            gradient = mean["net.head.weight"]
            off = 1 + 4e-6 * np.random.default_rng(3).normal(size=gradient.shape)
            mean |= {"net.head.weight": (gradient * off).astype(self.kind)}
        if s.mistake == "tipped_unit" and self.step == 1:  # what a unit at ReLU's kink does, for one example
            for name in ("net.embed.weight", "net.embed.bias"):
                mean[name] = mean[name].copy()
                mean[name][..., 3] *= one(1.003)
            mean["net.embed.weight"][2] *= one(1.002)
        if s.mistake == "one_norm_off":
            mean["net.norm.weight"] = mean["net.norm.weight"] * one(1.001)
        if s.mistake == "missing_gradients":
            mean = {name: g for name, g in mean.items() if "norm" not in name}
        return [mean] * s.world

    def clipped(self, rank: int, gradients: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        s = self.s
        if s.clip is None or s.mistake == "clip_forgotten":
            return gradients, {}
        if s.mistake == "loss_scaled_before_clipping":
            gradients = {name: g * self.kind.type(2) for name, g in gradients.items()}
        norm = math.sqrt(sum(float((g.astype(float) ** 2).sum()) for g in gradients.values()))
        norm *= {"clip_before_unscaling": s.loss_scale, "clip_by_local_norm": math.sqrt(s.world)}.get(s.mistake, 1.0)
        factor = self.kind.type(min(1.0, s.clip / (norm + 1e-6)))
        kept = ("norm",) if s.mistake == "clip_on_one_rank" and rank else ()
        made = {name: g if any(k in name for k in kept) else g * factor for name, g in gradients.items()}
        calls = s.passes if s.mistake == "clip_each_microbatch" else 1
        return made, {"clip_norm": norm, "clip_max_norm": s.clip, "clip_calls": calls}

    def rate(self, step: int, rank: int) -> float:
        s, ahead = self.s, step * (self.s.world if self.s.mistake == "schedule_runs_n_times" else 1)
        ahead += s.mistake == "schedule_shifted" and step > 1
        ahead -= LOST if s.mistake == "schedule_restarted" and step >= LOST else 0
        rate = s.rate * 0.9**ahead * (s.world if s.mistake == "rate_by_processes" else 1)
        return rate * 2 if s.mistake == "scalars_differ_by_rank" and rank else rate

    def update(self, rank: int, step: int, gradients: dict[str, np.ndarray]) -> None:
        s, kind = self.s, self.kind.type
        rate, decay = self.rate(step, rank), s.decay
        for name, weight in self.weights[rank].items():
            gradient = gradients.get(name)
            if "unused" in name and s.mistake == "unused_parameters_drift":
                gradient = np.zeros_like(weight)
            if gradient is None or (s.mistake == "weights_do_not_move"):
                continue
            times = s.passes if s.mistake == "decay_each_microbatch" else 1
            times = 0 if s.mistake == "other_decay" and "norm" in name else times
            times = 0 if s.mistake == "decay_lost" and step >= LOST else times
            old = weight.copy()
            for _ in range(times):
                weight -= kind(rate * decay) * (1 if s.mistake == "decay_without_weight" else weight)
            if s.optimizer == "sgd":
                weight -= kind(rate) * gradient
            elif s.optimizer == "momentum":
                first, _ = self.slots[rank][name]
                first *= kind(0.0 if s.mistake == "optimizer_state_lost" and step == LOST else 0.9)
                first += gradient
                weight -= kind(rate) * (gradient + kind(0.9) * first if s.nesterov else first)
            else:
                first, second = self.slots[rank][name]
                if s.mistake in ("optimizer_state_lost", "moments_lost") and step == LOST:
                    first[...] = second[...] = 0
                share = 0.3 if s.mistake == "other_betas" and step >= LOST else 0.1
                first += kind(share) * (gradient - first)
                second += kind(0.05) * (gradient * gradient - second)
                count = (step + 1) * (s.passes if s.mistake == "steps_of_microbatches" else 1)
                count -= LOST if s.mistake in ("optimizer_state_lost", "step_count_lost") and step >= LOST else 0
                bias = 1 - 0.9**count, math.sqrt(1 - 0.95**count)
                wrong = {"no_bias_correction": (1.0, 1.0), "bias_correction": (0.9**count, 0.95 ** (count / 2))}
                bias = wrong.get(s.mistake, bias)
                root = second if s.mistake == "no_root" else np.sqrt(second)
                weight -= kind(rate * bias[1] / bias[0]) * first / (root + kind(1e-8))
            if s.mistake == "update_times":
                weight += weight - old
            if s.mistake == "replicas_drift" and rank:
                weight *= kind(1.01)
        if s.moves_statistics and s.mistake != "statistics_stand_still":
            self.weights[rank]["net.running_mean"] += kind(0.2 if s.mistake == "other_statistics" else 0.1)
        if s.mistake == "frozen_statistics_move":
            self.weights[rank]["net.running_mean"] *= kind(0.9)

    # --- the record ---------------------------------------------------------------------------------------------------

    def train(self) -> None:
        s = self.s
        for rank, file in enumerate(self.files):
            file.write(header_frame(self.header(rank)))
            file.write(step_frame(RecordedStep(-1, stats={"weight": self.stats(rank, self.weights[rank])})))
        for step in range(s.steps):
            self.step, parts = step, self.batch(step)
            found = self.gradients(step, parts)
            exchanged = self.exchange([gradient for _, gradient in found])
            for rank, file in enumerate(self.files):
                gradients, scalars = self.clipped(rank, exchanged[rank])
                strays = self.strays(step, gradients) if s.mistake == "stray_gradients" else {}
                self.update(rank, step, gradients)
                scalars |= {"lr": self.rate(step, rank), "weight_decay": s.decay}
                of_momentum = {"momentum": 0.9, "nesterov": float(s.nesterov)}
                scalars |= of_momentum if s.optimizer == "momentum" else {"betas.0": 0.9, "betas.1": 0.95}
                scalars |= {"loss_scale": s.loss_scale} if s.loss_scale != 1 else {}
                scalars |= {"eps": 1e-7 if s.mistake == "other_hyperparameter" else 1e-8}
                factor = 2 if s.mistake in ("loss_summed", "loss_scaled_before_clipping") else 1
                losses = [loss * factor for loss in found[rank][0]]
                rows = tuple(int(i) * 2654435761 % 2**64 + 1 for i in parts[rank])
                rows = (*rows[:8], *(row + self.s.rounded_as for row in rows[8:])) if self.s.chosen else rows
                is_again = s.mistake == "updated_again" and step == 1
                stats = {"stray": self.stats(rank, strays)} if strays else {}
                stats |= {"gradient": self.stats(rank, gradients), "weight": self.stats(rank, self.weights[rank])}
                targets = self.targets(parts[rank], rows) if s.sees_targets else None
                counts = {"evaluated_calls": 1} if s.mistake == "evaluation_mode" else {}
                given = ((), None) if is_again else (tuple(losses), rows)
                frame = RecordedStep(step, *given, scalars, False, counts, stats, targets)  # type: ignore[arg-type]
                file.write(step_frame(frame))

    def strays(self, step: int, gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Adds to gradients what the step before left, and returns what this one leaves."""
        left = {name: each / 2 for name, each in gradients.items()}
        for name, each in gradients.items() if step == 1 else ():
            each += self.kept[name]
        self.kept = left
        return left

    def targets(self, indices: np.ndarray, rows: tuple[int, ...]) -> tuple[int, ...]:
        wrong = indices.min() if self.s.mistake == "targets_differ" else -1
        return tuple(row + 7 * int((self.y[i] + (i == wrong)) % CLASSES) for i, row in zip(indices, rows, strict=True))

    def piece(self, name: str, rank: int) -> Piece:
        shape = SHAPES[name]
        if not self.s.shards or "running" in name:
            return Piece.whole(shape)
        borders = [round(shape[0] * edge / self.s.world) for edge in (rank, rank + 1)]
        zeros = (0,) * (len(shape) - 1)
        return Piece(shape, (borders[0], *zeros), (borders[1] - borders[0], *shape[1:]))

    def header(self, rank: int) -> RecordHeader:
        tensors = tuple(
            RecordedTensor(
                self.s.prefix + name,
                self.s.dtype,
                self.piece(name, rank),
                "buffer" if "running" in name else "parameter",
                LAYERS.get(name.split(".")[1], "Norm"),
                "running" not in name,
            )
            for name in ORDER
        )
        s = self.s
        command = s.command or ("python", "-c", json.dumps(dataclasses.asdict(s)))
        made = RecordHeader(SCHEMA, "torch", command, "/", {}, {}, rank, s.world, tensors, s.is_float64, s.perturbed)
        return dataclasses.replace(made, products=s.products, layouts=s.layouts, is_cast=s.is_cast)

    def stats(self, rank: int, values: Mapping[str, np.ndarray]) -> np.ndarray:
        rows = np.zeros(len(ORDER), stats_dtype(self.s.is_float64))
        for place, name in enumerate(ORDER):
            piece = self.piece(name, rank)
            if name not in values:
                rows[place] = (np.full(PROJECTIONS, np.nan), np.nan, 0)
                continue
            own = values[name][tuple(slice(a, a + n) for a, n in zip(piece.start, piece.size, strict=True))]
            square = float((own.astype(float) ** 2).sum())
            rows[place] = (project(own, piece), square, sum_of_bits(np.ascontiguousarray(own)))
        return rows


def _bf16(values: np.ndarray) -> np.ndarray:
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32).astype(values.dtype)
