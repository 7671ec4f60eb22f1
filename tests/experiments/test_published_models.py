"""Published models and published figures: what the papers print comes out."""

import re

import pytest

import samestep
from documenting.published_models import STAGES, errors, predicted
from samestep.common.costs.saved_activations import kept_torch
from samestep.common.workload.models.decoder import DecoderSpec
from samestep.common.workload.models.spec import num_active, num_params
from samestep.common.workload.models.transformer import TransformerSpec
from samestep.common.workload.published import PUBLISHED

GB = 10**9
COUNTS = {
    "zero-7.5b": (7.5, 0.05),
    "megatron-7.5b": (7.5, 0.05),
    "llama-65b": (65.2, 0.1),  # cut off, not rounded
    "llama3-8b": (8, 0.5),
    "llama3-70b": (70, 1),
    "llama3-405b": (405, 1),
    "gpt3-175b": (175, 0.5),
    "mt-nlg-530b": (530, 0.5),
    "megatron-1t": (1008, 0.05),
    "mixtral-8x7b": (46.7, 0.05),
    "deepseek-v3": (671, 0.5),
    "qwen3-30b-a3b": (30.5, 0.05),
    "qwen3-235b-a22b": (235, 0.5),
}
"""Billions of parameters as their papers print them, and one unit or half a unit of the last digit."""
ACTIVE = {"mixtral-8x7b": 12.9, "deepseek-v3": 37, "qwen3-30b-a3b": 3.3, "qwen3-235b-a22b": 22}
"""Billions of parameters that a token meets, as their papers print them."""
TABLE_1 = {
    1: (120, 120, 120),
    4: (52.5, 41.3, 30),
    16: (35.6, 21.6, 7.5),
    64: (31.4, 16.6, 1.88),
    256: (30.4, 15.4, 0.47),
    1024: (30.1, 15.1, 0.12),
}
"""Ranks -> GB on a device for 7.5 billion parameters under ZeRO's stages 1, 2 and 3: Rajbhandari et al., table 1."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_as_many_parameters_as_its_paper_says(name: str) -> None:
    billions, unit = COUNTS[name]
    assert abs(num_params(PUBLISHED[name].model) / 10**9 - billions) <= unit
    assert re.search(r"arXiv \d{4}\.\d{5}", PUBLISHED[name].source)


@pytest.mark.parametrize(
    "name", [name for name, workload in PUBLISHED.items() if isinstance(workload.model, DecoderSpec)]
)
def test_a_token_meets_as_many_parameters_as_the_paper_says(name: str) -> None:
    """DeepSeek-V3's 37.6 billion count the table of tokens, of which a token meets one row: 36.6 without."""
    model = PUBLISHED[name].model
    assert num_active(model) / 10**9 == pytest.approx(ACTIVE.get(name, num_params(model) / 10**9), rel=0.02)


@pytest.mark.parametrize("name", ACTIVE)
def test_the_flops_of_a_mixture_are_those_of_what_a_token_meets(name: str) -> None:
    """Two for each of its numbers but those of the table of tokens, and those of the scores, which no parameter has."""
    model = PUBLISHED[name].model
    assert isinstance(model, DecoderSpec)
    scores = model.layers * 2 * model.context**2 * model.heads * (2 * model.of_head + model.rotary_width)
    flops = sum(segment.flops for segment in model.segments()[1:])
    met = num_active(model) - model.vocabulary * model.width
    assert (flops - scores) / (2 * model.context) == pytest.approx(met, rel=1e-3)


@pytest.mark.parametrize("ranks", TABLE_1)
def test_the_figures_of_zero_come_out(ranks: int) -> None:
    for (cell, axis), published in zip(list(STAGES.items())[1:], TABLE_1[ranks], strict=True):
        found = predicted("zero-7.5b", f"{cell}+mesh={axis}={ranks}", batch_size=1024)
        formula = (found.textbook("state") or 0) / GB
        half_a_unit = 0.5 * 10.0 ** -len(str(published).partition(".")[2])
        assert abs(formula - published) <= half_a_unit + 2e-4 * published  # of 7.4993 billion


def test_what_is_predicted_for_the_stages_of_zero() -> None:
    """Plain data parallelism and stage 3 as in the paper; stage 1 on average, since whole parameters go to ranks."""
    held = {}
    for cell, axis in STAGES.items():
        ledger = predicted("zero-7.5b", f"{cell}+mesh={axis}=64", batch_size=512).ledger
        held[cell] = [row.state_bytes / GB for row in ledger.devices()]
    assert max(held["torch:ddp"]) == pytest.approx(120, rel=2e-3)
    assert max(held["torch:fsdp"]) == pytest.approx(1.88, rel=5e-3)
    assert sum(held["torch:zero1"]) / 64 == pytest.approx(31.4, rel=2e-3)
    assert 31.4 < max(held["torch:zero1"]) < 34
    sharded = predicted("zero-7.5b", "torch:zero2+mesh=shard=64", batch_size=512).fullest
    assert (sharded.params_peak_bytes + sharded.gradients_bytes + sharded.optimizer_bytes) / GB == pytest.approx(
        16.6, rel=0.1
    )


def test_on_four_ranks_the_gains_are_small() -> None:
    gains = []
    for cell, axis in STAGES.items():
        found = predicted("zero-7.5b", f"{cell}+mesh={axis}=4", batch_size=512)
        gains.append(16 * num_params(found.run.workload.model) / (found.textbook("state") or 1))
    assert [round(gain, 1) for gain in gains] == [1.0, 2.3, 2.9, 4.0]


def test_seventy_billion_on_64_devices() -> None:
    given = {"workload": "llama3-70b", "devices": 64, "batch_size": 64, "weights": "bf16", "backend": "nccl"}
    found = samestep.predict(**given, device_memory="80GiB")
    fits = {row.cell: row.fits(found.memory or 0) for row in found.rows}
    assert fits["torch:ddp"] == fits["torch:zero1"] == fits["torch:zero2"] == "no"
    assert fits["torch:fsdp"] == fits["torch:pp"] == "without activations"
    sharded = next(row for row in found.rows if row.cell == "torch:fsdp")
    assert sharded.fullest.state_bytes == pytest.approx(16 * 70.55e9 / 64, rel=1e-3)
    short = samestep.predict("torch:fsdp", **given | {"workload": "llama3-70b+context=2048"}).rows[0]
    assert short.fits(80 * 2**30) == "yes"


@pytest.mark.parametrize(
    ("name", "mesh", "microbatches"),
    [("gpt3-175b", "data=64,pipe=8,tensor=8", 24), ("mt-nlg-530b", "data=16,pipe=35,tensor=8", 120)],
)
def test_a_giant_on_the_mesh_of_its_paper(name: str, mesh: str, microbatches: int) -> None:
    cell = f"torch:hybrid+schedule=1f1b+microbatches={microbatches}+mesh={mesh}"
    found = predicted(name, cell)
    model, item = found.run.workload.model, 2
    # Every stage has as many blocks; the first has the embedding as well, so it holds most.
    assert [row.count for row in found.ledger.footprints] == [found.run.num_devices // found.run.mesh.pipe] * (
        found.run.mesh.pipe
    )
    assert 1 <= found.fullest.state_bytes / (found.textbook("state") or 1) < 1.12
    assert found.ledger.sent_bytes_per_step == pytest.approx(found.textbook("sent"), rel=0.01)
    # Narayanan et al., section 3.2: each microbatch and block, an all-reduce twice forward and twice backward.
    rows = found.run.batch_size // found.run.mesh.data
    blocks = model.layers // found.run.mesh.pipe
    summed = {
        send.phase: send for send in found.ledger.sends if (send.operation, send.group) == ("all_reduce", "tensor")
    }
    backward = [
        s for s in found.ledger.sends if (s.phase, s.operation, s.group) == ("backward", "all_reduce", "tensor")
    ]
    assert sum(send.bytes for send in backward) == 2 * blocks * rows * model.context * model.width * item
    assert summed["forward"].ranks == 8
    # They were trained on devices of 80 GB.
    assert found.fits(80 * 2**30) == "yes"


def test_the_gpt_style_keeps_what_our_transformer_keeps() -> None:
    ours = kept_torch.transformer(TransformerSpec(layers=2, heads=4, width=32, context=16, vocabulary=64), 4)
    published = kept_torch.decoder(DecoderSpec("gpt", 2, 4, 4, 32, 128, 16, 64), 4)
    assert published == ours


def test_the_styles_differ_in_their_parameters() -> None:
    gpt, llama = (set(DecoderSpec(style, layers=1).params()) for style in ("gpt", "llama"))
    assert gpt - llama == {
        "embedding/positions/table",
        "head/norm/bias",
        *(f"blocks/0/{name}_norm/bias" for name in ("attention", "mlp")),
        *(f"blocks/0/attention/{name}/bias" for name in ("query", "key", "value", "output")),
        *(f"blocks/0/mlp/{name}/bias" for name in ("up", "down")),
    }
    assert llama - gpt == {"blocks/0/mlp/gate/kernel", "head/logits/kernel"}


def test_the_errors_are_those_of_the_table_of_results() -> None:
    page = "\n".join(
        [
            "<!-- results -->",
            "| strategy  | state KiB | activations KiB | sent KiB      |",
            "|-----------|-----------|-----------------|---------------|",
            "| torch:a   | 1.5 (1.5) | 2 (2)           | 1,010 (1,000) |",
            "| tf:b      | 3 (2)     | 7               | 0 (0)         |",
            "<!-- /results -->",
        ]
    )
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in errors(page).splitlines()]
    assert rows[0] == ["strategy", "state", "activations", "sent"]
    assert rows[2:] == [
        ["torch:a", "none", "none", "+1.0 %"],
        ["tf:b", "+50.0 %", "not predicted", "nothing to send"],
    ]
