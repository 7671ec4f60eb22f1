"""The keyword arguments of `samestep.run`, `compare` and `predict`: the flags of the commands, named as fields.

Type checkers and editors cannot read them off the dataclasses, so `python -m documenting.settings` writes them.
"""

from typing import TypedDict


class CompareSettings(TypedDict, total=False):
    """What all rows of a comparison share; `samestep compare --help` explains each."""

    workload: str
    devices: int | None
    steps: int | None
    batch_size: int | None
    optimizer: str | None
    learning_rate: float | None
    dtype: str
    seed: int
    threads: int
    dropout: bool | None
    batch_norm: str
    out: str | None
    model: str | None
    data: str | None
    timeout_seconds: float
    bandwidth: str | None
    parity: bool | None
    keep_state: bool
    evaluate: bool | None
    trace: bool
    profile: bool
    accumulation_steps: int
    clip_norm: float | None
    learning_rate_schedule: str
    warmup_steps: int
    decay_steps: int | None
    decayed: str
    vector_rate: float
    precision: str | None
    keep_dtypes: bool
    recompute: bool
    compile: bool
    overlap: bool | None
    compress: str | None
    compress_rank: int
    compress_warmup_steps: int
    fixed_order: int | None
    local_steps: int | None
    outer_rate: float
    outer_momentum: float


class OptionSettings(TypedDict, total=False):
    """The options of single strategies; `samestep strategies CELL` explains each."""

    ring: bool
    bucket_bytes: int | None
    attention_exchange: str
    zero_stage: int
    schedule: str
    microbatches: int
    sequence_parallel: bool
    consistency: str
    shard_optimizer: bool
    reduce: str
    clients: int
    parameter_servers: int
    tpu: str | None
    tpu_topology: str | None


class RunSettings(CompareSettings, OptionSettings, total=False):
    """What one run takes, with its mesh, where it starts and the options of its strategy; `samestep run --help` explains each."""

    mesh: str | None
    start_from: str | None
    save_every: str | None
    keep: int
    restarts: int
    elastic: str | None


class PredictSettings(OptionSettings, total=False):
    """What a prediction takes; `samestep predict --help` explains each."""

    workload: str
    mesh: str | None
    batch_size: int | None
    optimizer: str | None
    dtype: str
    batch_norm: str
    model: str | None
    data: str | None
    devices: int | None
    backend: str | None
    device_memory: str | None
    weights: str | None
    accumulation_steps: int
    clip_norm: float | None
    learning_rate_schedule: str
    warmup_steps: int
    decay_steps: int | None
    decayed: str
    vector_rate: float
    precision: str | None
    keep_dtypes: bool
    recompute: bool
    compile: bool
    overlap: bool | None
    compress: str | None
    compress_rank: int
    compress_warmup_steps: int
    fixed_order: int | None
    local_steps: int | None
    outer_rate: float
    outer_momentum: float
