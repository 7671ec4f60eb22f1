"""Which parameter of torch is which of TensorFlow, without either framework."""

import dataclasses
import re

import numpy as np
import pytest

from samestep.common.errors import ConfigError
from samestep.common.porting.matching.matching import Matching, match
from samestep.common.porting.matching.pairing import fit
from samestep.common.workload.models.layer import LayerTensor, ParameterLayer

LINEAR = (1, 0)


def held(name: str, shape: tuple[int, ...], permutation: tuple[int, ...] | None = None) -> LayerTensor:
    return LayerTensor(name.replace(".", "/"), name, shape, permutation or tuple(range(len(shape))))


def linear(name: str, inputs: int, outputs: int, bias: bool = True) -> ParameterLayer:
    params = {"kernel": held(f"{name}.weight", (outputs, inputs), LINEAR)}
    params |= {"bias": held(f"{name}.bias", (outputs,))} if bias else {}
    return ParameterLayer(name=name, kind="Linear", call=name, params=params)


def dense(name: str, inputs: int, outputs: int, bias: bool = True) -> ParameterLayer:
    params = {"kernel": held(f"{name}/kernel", (inputs, outputs))}
    params |= {"bias": held(f"{name}/bias", (outputs,))} if bias else {}
    return ParameterLayer(name=name, kind="Dense", call=name, params=params)


def raw(name: str, shape: tuple[int, ...], framework: str) -> ParameterLayer:
    permutation = tuple(reversed(range(len(shape)))) if framework == "torch" else None
    return ParameterLayer(name=name, kind="Parameter", call=name, params={"value": held(name, shape, permutation)})


def recurrent(kind: str, framework: str) -> ParameterLayer:
    gates = {"LSTM": 4, "GRU": 3}[kind]
    if framework == "torch":
        params = {
            "kernel": held("rnn.weight_ih_l0", (gates * 5, 2), LINEAR),
            "recurrent": held("rnn.weight_hh_l0", (gates * 5, 5), LINEAR),
            "bias": held("rnn.bias_ih_l0", (gates * 5,)),
            "second_bias": held("rnn.bias_hh_l0", (gates * 5,)),
        }
        return ParameterLayer(name="rnn.l0", kind=kind, call="rnn", params=params)
    shapes = {"kernel": (2, gates * 5), "recurrent": (5, gates * 5)}
    shapes["bias"] = (2, gates * 5) if kind == "GRU" else (gates * 5,)
    params = {role: held(f"rnn/cell/{role}", shape) for role, shape in shapes.items()}
    return ParameterLayer(name="rnn/cell", kind=f"{kind}Cell", call="rnn", params=params)


def table(matching: Matching) -> list[tuple[str, str, str]]:
    return [
        (", ".join(one.native for one in pair.source), ", ".join(one.native for one in pair.target), pair.permutation)
        for pair in matching.pairs
    ]


def neutral(layers: list[ParameterLayer]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {h.neutral: rng.normal(size=h.neutral_shape) for layer in layers for h in layer.params.values()}


def test_layers_of_one_shape_are_matched_in_the_order_of_execution() -> None:
    found = match([linear("0", 4, 4), linear("2", 4, 4)], [dense("dense", 4, 4), dense("dense_1", 4, 4)])
    assert table(found) == [
        ("0.weight", "dense/kernel", "transposed"),
        ("0.bias", "dense/bias", ""),
        ("2.weight", "dense_1/kernel", "transposed"),
        ("2.bias", "dense_1/bias", ""),
    ]


def test_names_that_somebody_chose_come_before_the_order() -> None:
    ours = [linear("blocks.0.key", 4, 4, False), linear("blocks.0.query", 4, 4, False)]
    theirs = [dense("block_0/query", 4, 4, False), dense("block_0/key", 4, 4, False)]
    assert table(match(ours, theirs)) == [
        ("blocks.0.key.weight", "block_0/key/kernel", "transposed"),
        ("blocks.0.query.weight", "block_0/query/kernel", "transposed"),
    ]


def test_a_branch_that_runs_earlier_is_found_by_its_shape() -> None:
    ours = [linear("a", 4, 8), linear("b", 8, 8), linear("short", 4, 6)]
    theirs = [dense("dense", 4, 6), dense("dense_1", 4, 8), dense("dense_2", 8, 8)]
    assert [pair[:2] for pair in table(match(ours, theirs)) if "kernel" in pair[1]] == [
        ("a.weight", "dense_1/kernel"),
        ("b.weight", "dense_2/kernel"),
        ("short.weight", "dense/kernel"),
    ]


def test_packed_projections_are_split() -> None:
    ours = [linear("packed", 6, 18), linear("out", 6, 6)]
    theirs = [dense(name, 6, 6) for name in ("query", "key", "value", "proj")]
    found = match(ours, theirs)
    assert table(found)[:2] == [
        ("packed.weight", "query/kernel, key/kernel, value/kernel", "transposed, split in 3"),
        ("packed.bias", "query/bias, key/bias, value/bias", "split in 3"),
    ]
    values = neutral(ours)
    made = found.to_target(values)
    assert np.array_equal(made["key/kernel"], values["packed/weight"][:, 6:12])
    assert np.array_equal(made["proj/kernel"], values["out/weight"])
    back = match(
        [linear(name, 6, 6) for name in ("query", "key", "value", "proj")], [dense("d", 6, 18), dense("o", 6, 6)]
    )
    assert table(back)[0] == ("query.weight, key.weight, value.weight", "d/kernel", "transposed, packed")


def test_heads_are_reshaped() -> None:
    head = ParameterLayer(
        name="query", kind="EinsumDense", call="mha", params={"kernel": held("query/kernel", (6, 2, 3))}
    )
    ours = [linear("q", 6, 6, False)]
    found = match(ours, [head])
    assert table(found) == [("q.weight", "query/kernel", "transposed, reshaped")]
    assert found.to_target(neutral(ours))["query/kernel"].shape == (6, 2, 3)


def test_a_bias_that_is_packed_alone_is_split() -> None:
    """Torch's attention has three kernels where the keys have another width, and one bias."""
    whole = ParameterLayer(
        name="a", kind="MultiheadAttention", call="a", params={"bias": held("a.in_proj_bias", (18,))}
    )
    kernels = [
        ParameterLayer(name=f"a.{each}", kind="Parameter", call="a", params={"value": held(f"a.{each}", shape, LINEAR)})
        for each, shape in (("q_proj_weight", (6, 6)), ("k_proj_weight", (6, 4)), ("v_proj_weight", (6, 4)))
    ]
    theirs = [dense("query", 6, 6), dense("key", 4, 6), dense("value", 4, 6)]
    found = match([whole, *kernels], theirs)
    assert ("a.in_proj_bias", "query/bias, key/bias, value/bias", "split in 3") in table(found)
    assert len(found.pairs) == 4 and not found.only_target


def test_slopes_for_each_axis_are_reshaped() -> None:
    ours, theirs = (
        ParameterLayer(name="p", kind="PReLU", call="p", params={"scale": held("p", shape)})
        for shape in ((5,), (1, 1, 5))
    )
    assert table(match([ours], [theirs])) == [("p", "p", "reshaped")]


def test_depthwise_filters_are_reshaped() -> None:
    conv = ParameterLayer(
        name="c", kind="Conv2d", call="c", params={"kernel": held("c.weight", (6, 1, 3, 3), (2, 3, 1, 0))}
    )
    depthwise = ParameterLayer(
        name="d", kind="DepthwiseConv2D", call="d", params={"kernel": held("d/kernel", (3, 3, 3, 2))}
    )
    values = neutral([conv])
    made = match([conv], [depthwise]).to_target(values)["d/kernel"]
    assert np.array_equal(made[..., 1, 0], values["c/weight"][..., 0, 2])  # torch's outputs 2 and 3 are of channel 1


def test_the_two_biases_of_an_lstm_are_summed() -> None:
    ours = [recurrent("LSTM", "torch")]
    found = match(ours, [recurrent("LSTM", "tf")])
    assert [row[2] for row in table(found)] == ["transposed", "transposed", "summed"]
    values = neutral(ours)
    assert np.array_equal(found.to_target(values)["rnn/cell/bias"], values["rnn/bias_ih_l0"] + values["rnn/bias_hh_l0"])


def test_the_gates_of_a_gru_are_reordered() -> None:
    ours = [recurrent("GRU", "torch")]
    found = match(ours, [recurrent("GRU", "tf")])
    made, values = found.to_target(neutral(ours)), neutral(ours)
    assert np.array_equal(made["rnn/cell/kernel"][:, :5], values["rnn/weight_ih_l0"][:, 5:10])
    assert np.array_equal(made["rnn/cell/bias"][1, :5], values["rnn/bias_hh_l0"][5:10])


def test_a_square_kernel_of_nobody_knows_what_is_ambiguous() -> None:
    found = match([raw("mix", (4, 4), "torch")], [raw("layer/mix", (4, 4), "tf")])
    (pair,) = found.pairs
    assert pair.other_changes == ("flipped",) and pair.permutation == "as it is"
    values = {"mix": np.arange(16.0).reshape(4, 4)}  # in the neutral layout, torch's own is transposed
    assert np.array_equal(found.to_target(values)["layer/mix"], values["mix"].T)
    assert np.array_equal(found.changed(pair, "flipped").to_target(values)["layer/mix"], values["mix"])
    assert not match([raw("mix", (4, 3), "torch")], [raw("layer/mix", (3, 4), "tf")]).pairs[0].other_changes
    assert not match([linear("0", 4, 4)], [dense("dense", 4, 4)]).pairs[0].other_changes


def test_a_bias_of_several_axes_is_matched_as_a_weight() -> None:
    ours = ParameterLayer(name="block", kind="Block", call="block", params={"bias": held("block.bias", (4, 7), LINEAR)})
    theirs = ParameterLayer(name="block", kind="Block", call="block", params={"bias": held("block/bias", (4, 7))})
    (pair,) = match([ours], [theirs]).pairs
    values = np.arange(28.0).reshape(4, 7)
    assert (pair.to_target({"block/bias": values.T})["block/bias"] == values).all()


def test_a_bias_alone_is_no_weight_of_another_layer() -> None:
    block = ParameterLayer(name="block", kind="Block", call="block", params={"bias": held("block/bias", (3,))})
    assert fit(linear("0", 1, 3), block) is None
    scaled = ParameterLayer(name="norm", kind="RMSNorm", call="norm", params={"scale": held("norm.weight", (3,))})
    assert fit(scaled, block) is None and fit(block, scaled) is None


def test_a_missing_bias_is_noted() -> None:
    found = match([linear("0", 4, 3), linear("1", 3, 3)], [dense("dense", 4, 3), dense("dense_1", 3, 3, False)])
    assert [held.native for held, *_ in found.only_source] == ["1.bias"]
    assert found.only_target == ()


def test_both_sides_of_what_is_left_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"torch has 0.weight \[3, 4\], 0.bias \[3\]; tf has dense/kernel \[4, 2\]"):
        match([linear("0", 4, 3)], [dense("dense", 4, 2)])
    with pytest.raises(ConfigError, match="the likeliest partners are 0 with dense, whose shapes do not fit"):
        match([linear("0", 4, 3)], [dense("dense", 4, 2)])


def test_a_layer_that_only_one_side_has_is_told_with_its_place_and_its_likeliest_partner() -> None:
    ours = [linear("a", 4, 8), linear("skip", 4, 6), linear("b", 8, 6)]
    theirs = [dense("dense", 4, 8), dense("dense_1", 8, 6)]
    said = (
        "tf lacks a layer like `skip` (Linear) after `dense` before `dense_1`, its likeliest partner is `dense_1`, "
        "which is matched with `b`; add what is missing"
    )
    with pytest.raises(ConfigError, match=re.escape(said)):
        match(ours, theirs)
    with pytest.raises(
        ConfigError, match=re.escape("torch lacks a layer like `dense_1` (Dense) after `a`, its likeliest")
    ):
        match(ours[:1], theirs)


def test_names_decide() -> None:
    ours, theirs = [linear("a", 4, 4), linear("b", 4, 4)], [dense("c", 4, 4), dense("d", 4, 4)]
    assert table(match(ours, theirs, {"a": "d"}))[0][:2] == ("a.weight", "d/kernel")
    assert table(match(ours, theirs, {"a.weight": "d/kernel"}))[0][:2] == ("a.weight", "d/kernel")
    with pytest.raises(ConfigError, match="unknown parameter of tf 'e'"):
        match(ours, theirs, {"a": "e"})
    with pytest.raises(ConfigError, match=r"names has 'a': 'c/bias', but \[\[4, 4\], \[4\]\] does not become"):
        match(ours, theirs, {"a": "c/bias"})


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 4)])
def test_a_norm_over_channels_and_space_has_its_channels_last_in_keras(shape: tuple[int, ...]) -> None:
    ours, theirs = (
        ParameterLayer(
            name="norm", kind=kind, call="norm", params={role: held(f"norm/{role}", of) for role in ("scale", "bias")}
        )
        for kind, of in (("LayerNorm", shape), ("LayerNormalization", (*shape[1:], shape[0])))
    )
    found, values = match([ours], [theirs]), neutral([ours])
    assert table(found) == [("norm/scale",) * 2 + ("channels last",), ("norm/bias",) * 2 + ("channels last",)]
    made = found.to_target(values)
    assert all(np.array_equal(made[name], np.moveaxis(values[name], 0, -1)) for name in values)
    assert all(np.array_equal(back, values[name]) for name, back in found.to_source(made).items())


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4)])
def test_a_norm_whose_channels_may_be_first_or_last_is_turned_with_its_bias(shape: tuple[int, ...]) -> None:
    params = {role: held(f"norm/{role}", shape) for role in ("scale", "bias")}
    layers = [ParameterLayer(name="norm", kind=kind, call="norm", params=params) for kind in ("LayerNorm", "Layer")]
    found, values = match(layers[:1], layers[1:]), neutral(layers[:1])
    scale, bias = found.pairs
    assert scale.other_changes == ("channels",) and bias.other_changes == ()
    assert all(np.array_equal(made, values[name]) for name, made in found.to_target(values).items())
    turned = found.changed(scale, "channels").to_target(values)
    assert all(np.array_equal(turned[name], np.moveaxis(values[name], 0, -1)) for name in values)


@pytest.mark.parametrize(
    ("shape", "rule"),
    [((5, 6, 3), "oij->ijo"), ((6, 5, 3), "oij->jio"), ((3, 5, 6), "oij->oij"), ((30, 3), "oij->ijo")],
)
def test_a_bilinear_kernel_has_its_axes_in_any_order_or_its_products_in_one(shape: tuple[int, ...], rule: str) -> None:
    """Torch's is [outputs, first inputs, second inputs]; what went through `Dense` is [products, outputs]."""
    ours = dataclasses.replace(raw("both", (3, 5, 6), "torch"), kind="Bilinear")
    found = match([ours], [raw("kernel", shape, "tf")])
    kernel = np.random.default_rng(0).normal(size=(3, 5, 6))
    values = {"both": kernel.transpose(ours.params["value"].permutation)}
    made = found.to_target(values)
    assert np.array_equal(made["kernel"], np.einsum(rule, kernel).reshape(shape))
    assert np.array_equal(found.to_source(made)["both"], values["both"])
    assert found.pairs[0].other_changes == (("reshaped",) if len(shape) == 2 else ())


def test_a_bilinear_kernel_of_equal_sizes_is_tried_every_way() -> None:
    ours = dataclasses.replace(raw("both", (4, 4, 4), "torch"), kind="Bilinear")
    (pair,) = match([ours], [raw("kernel", (4, 4, 4), "tf")]).pairs
    assert (pair.change, *pair.other_changes) == ("exchanged", "flipped", "native")


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_the_bias_of_a_layer_of_ones_own_is_that_of_the_layer_that_its_kernel_is(framework: str) -> None:
    """Keras' guide names them `w` and `b`; nothing but their layer says that they belong together."""
    own = [
        dataclasses.replace(
            raw(f"{place}/{name}", shape[::-1] if framework == "torch" else shape, framework), call=place
        )
        for place, sizes in (("first", (5, 8)), ("second", (8, 3)))
        for name, shape in (("w", sizes), ("b", sizes[1:]))
    ]
    if framework == "torch":
        found = match(own, [dense("dense", 5, 8), dense("dense_1", 8, 3)])
    else:
        found = match([linear("0", 5, 8), linear("1", 8, 3)], own)
    assert [len(pair.target) for pair in found.pairs] == [1, 1, 1, 1]
    biases = {(pair.source[0].native, pair.target[0].native) for pair in found.pairs if len(pair.target[0].shape) == 1}
    theirs = ("dense/bias", "dense_1/bias") if framework == "torch" else ("0.bias", "1.bias")
    pairs = set(zip(("first/b", "second/b"), theirs, strict=True))
    assert biases == (pairs if framework == "torch" else {pair[::-1] for pair in pairs})
    assert not found.only_source and not found.only_target
