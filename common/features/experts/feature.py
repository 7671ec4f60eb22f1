"""Experts as a feature of a model."""

from samestep.common.features.experts.balance import BALANCED, balance_of, check_balance, summed_tokens
from samestep.common.features.feature import Feature, LayerExchange

EXPERTS = Feature(
    field="experts",
    refuse=check_balance,
    exchange=LayerExchange(
        flag=BALANCED,
        in_words="the tokens that each expert takes of the whole batch",
        without="+balance=0",
        is_asked=lambda run: balance_of(run.workload.model) > 0,
        sends=lambda run, phase: {},
        framework_sends=summed_tokens,
    ),
)
