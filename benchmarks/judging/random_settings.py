"""The settings that `random_script.py` draws, its lawful variants, and its mistakes with the correct names of each."""

import dataclasses
import random
from collections.abc import Callable, Sequence

STEPS = 10
LAYOUTS = {"ddp": 2, "ddp4": 4, "fsdp2": 2}
"""Layout -> its number of processes."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a script trains, and how.

    Attributes:
        kind: The kind of data: vectors with a class, images, texts, series, vectors with a number or with several labels.
        activation: The activation between layers.
        norm: The norm of the layers. That of texts is never over the batch, and series have none.
        depth: The number of layers.
        width: The width of the layers.
        optimizer: The name of the optimizer; with "two", SGD updates matrices and AdamW updates the other parameters.
        weight_decay: The weight decay of the optimizer.
        groups: Whether biases are not decayed, or the head learns three times as fast.
        schedule: The schedule of the learning rate.
        clip: How gradients are clipped.
        parts: The number of micro-batches into which a batch is split.
        dropout: The probability of dropout.
        is_averaged: Whether a copy of the model follows it as an average.
        penalty: The penalty that is added to the loss.
        smoothing: The smoothing of labels.
        is_tied: Whether the head for texts is their table; it also decides between GRU and LSTM, and on the pooling of images.
        is_frozen: Whether the first two parameters are frozen.
        evaluates: Whether the model is evaluated from time to time.
        batch_size: The number of examples in a step.
        seed: The seed of everything.
    """

    kind: str
    activation: str
    norm: str
    depth: int
    width: int
    optimizer: str
    weight_decay: float
    groups: str
    schedule: str
    clip: str
    parts: int
    dropout: float
    is_averaged: bool
    penalty: str
    smoothing: float
    is_tied: bool
    is_frozen: bool
    evaluates: bool
    batch_size: int
    seed: int

    @property
    def has_classes(self) -> bool:
        """Whether the loss is a cross-entropy."""
        return self.kind not in ("regression", "multilabel")

    @property
    def has_batch_norm(self) -> bool:
        """Whether the outputs of an example depend on the other examples of its batch."""
        return self.norm == "batch" and self.kind not in ("texts", "series")

    @property
    def drops(self) -> bool:
        """Whether the model has dropout."""
        return self.dropout > 0 and self.kind not in ("images", "series")

    @property
    def can_be_cut(self) -> bool:
        """Whether a batch can be split differently and still give the same step."""
        return not self.has_batch_norm and not self.drops


CHOICES: dict[str, Sequence[object]] = {
    "kind": ("features", "features", "images", "texts", "texts", "series", "regression", "multilabel"),
    "activation": ("relu", "gelu", "silu", "tanh", "elu", "leaky"),
    "norm": ("none", "layer", "batch", "group", "rms"),
    "depth": (1, 2, 3),
    "width": (8, 16, 24),
    "optimizer": (
        "sgd",
        "momentum",
        "nesterov",
        "adam",
        "adamw",
        "adamw",
        "rmsprop",
        "adagrad",
        "adadelta",
        "adamax",
        "nadam",
        "radam",
        "two",
    ),
    "weight_decay": (0.0, 0.0, 0.01, 0.1),
    "groups": ("one", "undecayed", "head"),
    "schedule": ("none", "none", "step", "cosine", "warmup", "onecycle", "plateau"),
    "clip": ("none", "none", "norm", "value"),
    "parts": (1, 1, 1, 2, 4),
    "dropout": (0.0, 0.0, 0.0, 0.1),
    "is_averaged": (False, False, True),
    "penalty": ("none", "none", "l2", "l1", "entropy"),
    "smoothing": (0.0, 0.1),
    "is_tied": (False, True),
    "is_frozen": (False, False, True),
    "evaluates": (False, True),
    "batch_size": (8, 12, 16),
    "seed": range(1000),
}


def draw(config: int) -> Settings:
    """Returns the settings of a configuration.

    Args:
        config: The number of the configuration.
    """
    own = random.Random(config)
    return Settings(**{name: own.choice(choices) for name, choices in CHOICES.items()})


_Condition = Callable[[Settings], object]
_ANY: _Condition = lambda s: True  # noqa: E731
_CUT: _Condition = lambda s: s.can_be_cut and s.schedule != "plateau"  # noqa: E731
_ADAM = ("adam", "adamw")
_MEAN = ("other_loss", "mean_of_means")
LAWFUL: dict[str, _Condition] = {
    "again": _ANY,
    "reversed": lambda s: not s.drops and not (s.has_batch_norm and s.parts > 1),
    "twice_the_parts": lambda s: s.can_be_cut,
    "one_part": lambda s: s.can_be_cut and s.parts > 1,
    "single_tensor": lambda s: s.optimizer != "two",
    "foreach": lambda s: s.optimizer != "two",
    "fused": lambda s: s.optimizer in ("sgd", "momentum", "nesterov", "adagrad", *_ADAM),
    "checkpoint": lambda s: not s.has_batch_norm,
    "functional": _ANY,
    "grad": _ANY,
    "channels_last": lambda s: s.kind == "images",
    "zeros": _ANY,
    "loss_by_hand": lambda s: s.kind not in ("texts", "regression"),
    "clip_by_hand": lambda s: s.clip == "norm",
    "attention_by_hand": lambda s: s.kind == "texts",
    "evaluates_more": _ANY,
    "loader": lambda s: not s.drops,  # it draws a seed
    "ddp": _CUT,
    "ddp4": lambda s: _CUT(s) and s.parts < 4,  # otherwise some ranks have no example
    "fsdp2": _CUT,
}
"""Variant that takes the same step -> the condition on settings under which it does."""
MISTAKES: dict[str, tuple[tuple[str, ...], _Condition]] = {
    "other_activation": (_MEAN, lambda s: s.kind != "series"),
    "norm_epsilon": (_MEAN, lambda s: s.norm != "none" and s.kind != "series"),
    "norm_momentum": (("other_statistics",), lambda s: s.has_batch_norm),
    "attention_scale": (_MEAN, lambda s: s.kind == "texts"),
    "no_mask": (_MEAN, lambda s: s.kind == "texts"),
    "detached": (("missing_gradients",), lambda s: s.kind != "series"),
    "first_state": (_MEAN, lambda s: s.kind == "series"),
    "shifted_targets": (("targets_differ", *_MEAN), _ANY),
    "initial_head": ((), _ANY),
    "initial_number": ((), _ANY),
    "unfrozen": (("missing_gradients",), lambda s: s.is_frozen),
    "frozen": (("missing_gradients", "weights_do_not_move"), lambda s: not s.is_frozen),
    "no_smoothing": (_MEAN, lambda s: s.smoothing and s.has_classes),
    "softmax_twice": (_MEAN, lambda s: s.has_classes),
    "padding_counts": (("targets_differ", *_MEAN), lambda s: s.kind == "texts"),
    "other_loss": (_MEAN, lambda s: not s.has_classes),
    "squeezed": (_MEAN, lambda s: s.kind == "regression"),
    "class_weights": (("class_weights", *_MEAN), lambda s: s.has_classes and s.kind != "texts"),
    "penalty_twice": (_MEAN, lambda s: s.penalty != "none" and s.has_classes),
    "no_penalty": (_MEAN, lambda s: s.penalty != "none" and s.has_classes),
    "no_exchange:ddp": (("forgotten_exchange",), _CUT),
    "rate_twice": (("other_hyperparameter", "rate_by_processes"), _ANY),
    "rate_off": (("other_hyperparameter",), _ANY),
    "no_decay": (("other_hyperparameter",), lambda s: s.weight_decay),
    "decay_twice": (("other_hyperparameter",), lambda s: s.weight_decay),
    "head_left_out": (("weights_do_not_move", "optimizer_not_applied"), _ANY),
    "all_decayed": (("other_decay", "update_factors"), lambda s: s.groups == "undecayed" and s.weight_decay),
    "no_head_rate": (("update_factors", "other_hyperparameter"), lambda s: s.groups == "head" and s.optimizer != "two"),
    "betas": (("other_hyperparameter",), lambda s: s.optimizer in (*_ADAM, "two")),
    "epsilon": (("other_hyperparameter",), lambda s: s.optimizer in (*_ADAM, "two")),
    "momentum": (("other_hyperparameter",), lambda s: s.optimizer in ("momentum", "nesterov", "rmsprop", "two")),
    "dampening": (("other_hyperparameter",), lambda s: s.optimizer == "momentum"),
    "no_nesterov": (("other_hyperparameter",), lambda s: s.optimizer == "nesterov"),
    "amsgrad": (("other_hyperparameter",), lambda s: s.optimizer in _ADAM),
    "adam_for_adamw": (("other_decay",), lambda s: s.optimizer in _ADAM and s.weight_decay),
    "one_of_two": (("weights_do_not_move", "optimizer_not_applied"), lambda s: s.optimizer == "two"),
    "schedule_twice_as_long": (
        ("other_hyperparameter", "schedule_runs_n_times"),
        lambda s: s.schedule in ("cosine", "onecycle"),
    ),
    "no_schedule": (("other_hyperparameter", "schedule_restarted"), lambda s: s.schedule not in ("none", "plateau")),
    "schedule_twice": (
        ("schedule_runs_n_times", "schedule_shifted"),
        lambda s: s.schedule not in ("none", "plateau"),
    ),
    "warmup_off": (("schedule_shifted", "late_rate", "other_hyperparameter"), lambda s: s.schedule == "warmup"),
    "same_order": (("same_order_each_epoch",), _ANY),
    "last_dropped": (("last_batch_dropped", "position_lost"), lambda s: s.batch_size > 8),
    "skipped_batch": (("position_lost", "last_batch_dropped", "other_order"), _ANY),
    "example_twice": (("padded_sample_twice",), _ANY),
    "one_target": (("targets_differ", *_MEAN), _ANY),
    "rolled_targets": (("targets_differ", *_MEAN), _ANY),
    "evaluation_mode": (("evaluation_mode", "statistics_stand_still"), lambda s: not s.can_be_cut),
    "left_in_evaluation": (("evaluation_mode",), lambda s: not s.can_be_cut and s.evaluates),
    "no_dropout": (_MEAN, lambda s: s.drops),
    "skipped_step": (("position_lost", "last_batch_dropped"), _ANY),
    "no_zero": (("gradients_not_cleared",), _ANY),
    "late_zero": (("gradients_not_cleared",), _ANY),
    "undivided": (("times_microbatches", *_MEAN), lambda s: s.parts > 1),
    "mean_of_means": (_MEAN, lambda s: s.parts > 1),
    "mean_of_ranks:ddp": (_MEAN, lambda s: _CUT(s) and s.kind == "texts" and s.parts == 1),
    "mean_of_ranks:fsdp2": (_MEAN, lambda s: _CUT(s) and s.kind == "texts" and s.parts == 1),
    "loss_twice": (("loss_times", "times_microbatches", "loss_scaled_before_clipping", *_MEAN), _ANY),
    "clip_each_part": (("clip_each_microbatch",), lambda s: s.clip == "norm" and s.parts > 1),
    "step_each_part": ((), lambda s: s.parts > 1),
    "gradients_off": ((), _ANY),
    "gradients_in_bf16": (("gradients_rounded_to_bf16",), _ANY),
    "gradient_of_head": ((), _ANY),
    "no_clip": (("clip_forgotten", "clip_by_value"), lambda s: s.clip != "none"),
    "clip_twice": (("other_hyperparameter",), lambda s: s.clip == "norm"),
    "clip_each_tensor": (("clip_each_tensor", "clip_each_alone"), lambda s: s.clip == "norm"),
    "clip_by_value": (("clip_by_value",), lambda s: s.clip == "norm"),
    "clip_head": (("clip_part", "clip_by_other_norm", "clip_forgotten", "clip_each_alone"), lambda s: s.clip == "norm"),
    "updated_twice": (("updated_again", "update_times"), _ANY),
    "clamped": (("weights_written",), _ANY),
    "no_average": (("follows_otherwise",), lambda s: s.is_averaged),
    "average_decay": (("follows_otherwise",), lambda s: s.is_averaged),
    "untied": (("untied_head",), lambda s: s.kind == "texts" and s.is_tied),
}
"""Mistake -> its correct names, and the condition under which it has an effect; `NAME:LAYOUT` is made in that layout."""
