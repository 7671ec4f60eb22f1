"""The rules that people repeat, held against measurements or the model: `python -m experiments.documenting.rules`.

A rule is followed at a cost: by how much the best layout that follows it is slower than the best of all. It holds in a case if
that is at most `TOLERATED`. It is confirmed if it holds in `NEARLY_ALL` cases, confirmed with a condition if it does so in those
that meet the condition, and else refuted.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from samestep.experiments.cli.arguments import run_command
from samestep.experiments.documenting import rule_cases
from samestep.experiments.documenting.rule_cases import Case
from samestep.experiments.printing.text import github

TOLERATED = 0.03
"""About what a choice by the model costs on average."""
NEARLY_ALL = 0.9


@dataclasses.dataclass(frozen=True)
class Rule:
    """A rule and how it is judged.

    Attributes:
        text: As people say it.
        source: Who says it.
        by: "measured" (vTrain's rows) or "model".
        cases: Makes the cases.
        condition: Says in words from which value of the condition on it holds; None if there is none to look for.
    """

    text: str
    source: str
    by: str
    cases: Callable[[], Iterator[Case]]
    condition: Callable[[float], str] | None = None


def main(arguments: Sequence[str]) -> int:
    """Prints the table of rules."""
    print(table())
    return 0


def table() -> str:
    """Every rule with its verdict and figures."""
    rows = [[rule.text, *judge(rule), rule.by, rule.source] for rule in RULES]
    return github(["rule", "verdict", "figures", "held against", "who says so"], rows)


def judge(rule: Rule) -> tuple[str, str]:
    """The verdict on a rule, and the figures behind it."""
    cases = list(rule.cases())
    assert cases, f"nothing was measured or predicted for: {rule.text}"
    if _hold(cases):
        return "confirmed", _figures(cases)
    for least in sorted({case.condition for case in cases})[1:] if rule.condition else ():
        meeting = [case for case in cases if case.condition >= least]
        if rule.condition and _hold(meeting):
            rest = [case for case in cases if case.condition < least]
            return f"confirmed {rule.condition(least)}", f"there: {_figures(meeting)}; else: {_figures(rest)}"
    return "refuted", _figures(cases)


def _holds(case: Case) -> bool:
    return case.following <= TOLERATED


def _hold(cases: Sequence[Case]) -> bool:
    return sum(map(_holds, cases)) >= NEARLY_ALL * len(cases)


def _figures(cases: Sequence[Case]) -> str:
    costs = [case.following for case in cases]
    told = f"holds in {sum(map(_holds, cases))} of {len(cases)}, costs {_percent(sum(costs) / len(costs))} on average"
    told += f", {_percent(max(costs))} at most" if max(costs) > TOLERATED else ""
    breaking = sum(case.breaking for case in cases) / len(cases)
    return f"{told}; not following it costs {_percent(breaking)}" if breaking else told


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 or not share else "less than 1 %"


def _examples(least: float) -> str:
    return f"from {least:g} examples a device on"


_MEGATRON = "Narayanan et al., arXiv 2104.04473, takeaway 1"
RULES = (
    Rule(
        "Start with DDP: where the model fits a device, replicate it.",
        "Hugging Face, [Parallelism methods](https://huggingface.co/docs/transformers/main/perf_train_gpu_many)",
        "measured",
        rule_cases.start_with_ddp,
        _examples,
    ),
    Rule(
        "Split the model over as few devices as it takes, and use data parallelism for the rest.",
        "Narayanan et al., arXiv 2104.04473, takeaway 2",
        "measured",
        rule_cases.smallest_model_parallel_size,
        _examples,
    ),
    Rule(
        "Tensor parallelism stays in a node.",
        _MEGATRON,
        "measured",
        rule_cases.tensor_in_a_node,
    ),
    Rule(
        "In a node, prefer tensor parallelism to a pipeline.",
        _MEGATRON,
        "measured",
        rule_cases.tensor_before_pipeline,
        _examples,
    ),
    Rule(
        "Take the largest micro-batch that has room.",
        "NVIDIA, [NeMo: batching](https://docs.nvidia.com/nemo-framework/user-guide/latest/nemotoolkit/nlp/nemo_megatron/"
        "batching.html)",
        "measured",
        rule_cases.largest_microbatch,
        lambda least: f"with at most {-least:g} stages",
    ),
    Rule(
        "With four micro-batches a stage, the bubble of a pipeline is negligible.",
        "Huang et al., arXiv 1811.06965, section 2.3",
        "measured",
        rule_cases.four_microbatches_a_stage,
        lambda least: f"from {least:g} micro-batches a stage on",
    ),
    Rule(
        "Pipelines are for more than 100 billion parameters.",
        "Tanimawo, [Distributed training](https://novaaiops.com/blog/distributed-training-parallelism)",
        "model",
        rule_cases.pipeline_for_giants,
    ),
    Rule(
        "Where the state has room, take ZeRO 1 or 2: FSDP sends half as much again.",
        "Rajbhandari et al., arXiv 1910.02054, section 7.2.2",
        "model",
        rule_cases.zero_before_fsdp,
        lambda least: f"with {least * rule_cases.network_gigabits():g} Gbit/s a node or more",
    ),
    Rule(
        "On several nodes, shard inside the node and replicate across nodes.",
        "Zhao et al., arXiv 2304.11277, section 3.2.2",
        "model",
        rule_cases.shard_in_the_node,
    ),
    Rule(
        "Recompute activations only where nothing else has room.",
        "Korthikanti et al., arXiv 2205.05198, section 1",
        "model",
        rule_cases.recompute_last,
    ),
)


if __name__ == "__main__":
    run_command(main)
