import dataclasses

import pytest

from samestep.common.errors import ConfigError
from samestep.common.judging.metrics import METRICS
from samestep.common.request import OPTIMIZERS, RunConfig
from samestep.common.run import parse
from samestep.common.workload.data.flights import FlightsSpec
from samestep.common.workload.data.prose import ProseSpec
from samestep.common.workload.data.synthetic import SyntheticSpec
from samestep.common.workload.models.mlp import MlpSpec
from samestep.common.workload.models.spec import num_params
from samestep.common.workload.models.transformer import TransformerSpec
from samestep.common.workload.published import PUBLISHED
from samestep.common.workload.table import WORKLOADS, resolve, size_names


def chosen(**fields):
    return parse(RunConfig(framework="numpy", strategy="oracle", dtype="float64", **fields))


def refusal(spelling):
    with pytest.raises(ConfigError) as caught:
        resolve(spelling)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_every_model_is_there_on_real_and_on_drawn_data_and_digits_mlp_is_the_default():
    kinds = ("digits-mlp", "mnist-cnn", "prose-gpt", "flights-ranker")
    drawn = (f"synthetic-{kind.split('-')[1]}" for kind in kinds)
    assert tuple(WORKLOADS) == (*kinds, *drawn, "synthetic-regression")
    assert chosen().workload.name == "digits-mlp"


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_complete(name):
    workload = resolve(name)
    assert workload.name == name
    assert workload.metric in METRICS
    assert all(workload.learning_rate(optimizer) > 0 for optimizer in OPTIMIZERS)
    optimizer = chosen(workload=name).optimizer
    assert (optimizer.name, optimizer.learning_rate) == next(iter(workload.learning_rates.items()))
    assert num_params(workload.model) > 0
    assert workload.steps > 0
    assert workload.batch_size % 8 == 0


def test_a_run_s_optimizer_and_rate_take_the_place_of_the_workload_s():
    adamw = chosen(optimizer="adamw").optimizer
    assert (adamw.name, adamw.learning_rate) == ("adamw", resolve("digits-mlp").learning_rates["adamw"])
    assert chosen(learning_rate=0.5).optimizer.learning_rate == 0.5
    assert adamw.slots == ("first_moment", "second_moment")
    assert chosen(optimizer="sgd").optimizer.slots == ("momentum",)


def test_an_unknown_workload_is_answered_with_the_nearest_and_the_list():
    message = refusal("prose-gtp")
    assert message.startswith("unknown workload 'prose-gtp'. Did you mean 'prose-gpt'? Choose from: digits-mlp, ")
    assert all(name in message for name in WORKLOADS)


def test_an_unknown_field_is_answered_with_the_nearest_and_the_list():
    message = refusal("digits-mlp+widht=64")
    assert message.startswith("unknown field of digits-mlp 'widht'. Did you mean 'width'? Choose from: ")
    assert message.endswith("features, layers, norm, outputs, width.")


EVERY = sorted({field for name in WORKLOADS for field in size_names(name)})


@pytest.mark.parametrize("name", [*WORKLOADS, *PUBLISHED])
def test_a_field_that_another_model_has_is_refused_with_whose_it_is_and_the_valid_ones(name: str) -> None:
    own = size_names(name)
    for field in (field for field in EVERY if field not in own):
        message = refusal(f"{name}+{field}=2")
        assert message.startswith(f"unknown field of {name} '{field}'. It is one of ")
        assert message.endswith(f". Choose from: {', '.join(own)}.")
    if name == "flights-ranker":
        assert "It is one of digits-mlp, mnist-cnn, synthetic-mlp, synthetic-cnn" in refusal(f"{name}+norm=batch")


def test_only_sizes_and_features_are_offered():
    assert refusal("mnist-cnn+image=8").endswith("Choose from: activation, filters, hidden, norm, outputs, pooling.")
    assert refusal("synthetic-mlp+inputs=8").endswith(
        "activation, dropout, examples, features, layers, norm, outputs, width."
    )
    assert refusal("flights-ranker+cardinalities=8").endswith("activation, embedding, hash_buckets, hidden.")


def test_a_feature_is_read_as_its_type_and_a_wrong_one_refused():
    assert resolve("prose-gpt+tied=true").model.tied is True
    assert resolve("mnist-cnn+activation=relu+pooling=max").model.pooling == "max"
    assert refusal("prose-gpt+tied=yes") == "+tied is 'yes'; give true or false."
    assert refusal("mnist-cnn+pooling=mean").startswith("unknown pooling 'mean'")


def test_targets_are_ignored_only_where_the_data_say_which():
    assert "all targets of synthetic-gpt count on these data" in refusal("synthetic-gpt+ignored=0.3")
    targets = resolve("prose-gpt+context=16+ignored=0.3").data.load().train_targets
    counts = (targets >= 0).sum(axis=1)
    assert 0.25 < (targets < 0).mean() < 0.35
    assert len(set(counts.tolist())) > 5


def test_a_feature_that_is_off_leaves_the_digest_of_older_results():
    assert resolve("prose-gpt+tied=false").digest == resolve("prose-gpt").digest
    assert resolve("prose-gpt+tied=true").digest != resolve("prose-gpt").digest


@pytest.mark.parametrize("value", ["0", "-1", "-128", "1.5", "nan", "inf", "wide"])
def test_a_size_that_is_no_positive_whole_number_is_named(value):
    message = refusal(f"synthetic-mlp+width={value}")
    assert "width" in message
    assert value in message
    assert "whole number" in message


@pytest.mark.parametrize(
    "spelling",
    [
        "synthetic-mlp+layers=0",
        "synthetic-mlp+examples=0",
        "synthetic-mlp+outputs=-3",
        "synthetic-ranker+hash_buckets=-1",
    ],
)
def test_no_size_may_be_zero_or_negative(spelling):
    assert f"'{spelling.split('+')[1]}' is not a size" in refusal(spelling)


def test_a_field_reaches_every_spec_that_has_it():
    workload = resolve("prose-gpt+context=16+layers=2+width=32")
    assert workload.model == TransformerSpec(layers=2, heads=4, width=32, context=16, vocabulary=256)
    assert workload.data == ProseSpec(context=16)


def test_hash_buckets_grow_the_last_table_and_the_ids_that_fill_it():
    workload = resolve("flights-ranker+hash_buckets=131072")
    assert workload.data == FlightsSpec(hash_buckets=131072)
    assert workload.model.rows() == (16, 3, 104, 4037, 5706, 19, 12, 7, 131072)
    assert workload.model.inputs().ids == workload.model.rows()


def test_a_drawn_ranker_may_leave_its_hashed_table_out():
    workload = resolve("synthetic-ranker+hash_buckets=0")
    assert len(workload.model.rows()) == 4
    assert workload.data.inputs.shape == (4,)


def test_drawn_data_follow_the_model():
    workload = resolve("synthetic-mlp+features=3+outputs=7+examples=64+layers=2")
    assert workload.model == MlpSpec(features=3, layers=2, outputs=7)
    assert dataclasses.replace(
        workload.data, inputs=SyntheticSpec().inputs, targets=SyntheticSpec().targets
    ) == SyntheticSpec(64)
    assert (workload.data.inputs, workload.data.targets) == (workload.model.inputs(), workload.model.targets())


def test_the_table_itself_is_not_changed_by_a_size():
    before = dict(WORKLOADS)
    resolve("prose-gpt+layers=1")
    assert before == WORKLOADS


def test_the_digest_changes_with_every_number():
    spellings = (
        "synthetic-mlp",
        "synthetic-mlp+width=32",
        "synthetic-mlp+layers=32",
        "synthetic-mlp+examples=32",
        "synthetic-gpt",
        "synthetic-cnn",
        "digits-mlp",
        "mnist-cnn",
        "prose-gpt",
        "prose-gpt+context=32",
        "flights-ranker",
        "flights-ranker+hash_buckets=8192",
    )
    assert len({resolve(spelling).digest for spelling in spellings}) == len(spellings)


def test_the_digest_changes_with_the_metric():
    workload = resolve("digits-mlp")
    assert dataclasses.replace(workload, metric="auc").digest != workload.digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("prose-gpt+layers=2+width=32", "prose-gpt+width=32+layers=2"),
        ("digits-mlp", "digits-mlp+width=128"),
        ("digits-mlp+width=32", "digits-mlp+width=032"),
    ],
)
def test_the_digest_does_not_change_with_the_spelling(one, other):
    assert resolve(one).digest == resolve(other).digest


def test_the_digest_is_64_hexadecimal_digits_and_does_not_depend_on_the_run():
    digest = resolve("digits-mlp").digest
    assert len(bytes.fromhex(digest)) == 32
    assert chosen(seed=3, batch_size=7, steps=1, optimizer="adamw").workload.digest == digest


def test_heads_that_do_not_divide_the_width_are_refused():
    assert refusal("prose-gpt+heads=5") == "width 96 does not divide into 5 heads; give a multiple of 5."


@pytest.mark.parametrize(
    "spelling",
    [
        "flights-ranker+hash_buckets=0",
        "synthetic-ranker+hidden=1",
        "digits-mlp+features=32",
        "digits-mlp+outputs=5",
        "prose-gpt+vocabulary=100",
    ],
)
def test_a_size_that_the_workload_cannot_have_is_refused(spelling):
    refusal(spelling)


def test_the_line_for_a_size_that_cannot_be_read_spells_the_field_as_the_user_did():
    assert "width=wide" in refusal("digits-mlp+width=wide")
