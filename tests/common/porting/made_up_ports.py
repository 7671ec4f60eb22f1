"""Two implementations of a model that nobody ran: a kernel, a normalization, an activation and dropout, made of arrays."""

import copy
import dataclasses

import numpy as np

from samestep.common.porting.case import PortCase
from samestep.common.porting.matching.matching import match
from samestep.common.porting.model_trace import LayerCall, ModelTrace
from samestep.common.workload.models.layer import LayerTensor, ParameterLayer, Stilled

BATCH, WIDTH, OUT = 8, 4, 3
ADAM = {"kind": "Adam", "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False}
KERAS_ADAM = {"kind": "Adam", "learning_rate": float(np.float32(1e-3)), "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8}


def layers(side: str) -> tuple[ParameterLayer, ...]:
    kinds = {"torch": ("Linear", "BatchNorm1d"), "tf": ("Dense", "BatchNormalization")}[side]

    def held(name: str, *shape: int) -> LayerTensor:
        return LayerTensor(name, f"{side}/{name}", shape, tuple(range(len(shape))))

    params = {"kernel": held("fc/kernel", WIDTH, OUT), "bias": held("fc/bias", OUT)}
    norm = {"scale": held("norm/scale", OUT), "bias": held("norm/bias", OUT)}
    moving = {role: held(f"norm/{role}", OUT) for role in ("running_mean", "running_var")}
    return (
        ParameterLayer(name="fc", kind=kinds[0], call="fc", params=params),
        ParameterLayer(name="norm", kind=kinds[1], call="norm", params=norm, buffers=moving),
    )


def weights() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    named = {"fc/kernel": (WIDTH, OUT), "fc/bias": (OUT,), "norm/scale": (OUT,), "norm/bias": (OUT,)}
    found = {name: draw.normal(size=shape) for name, shape in named.items()}
    return found | {"norm/running_mean": draw.normal(size=OUT), "norm/running_var": draw.uniform(1, 2, OUT)}


def trace(side: str) -> ModelTrace:
    """What one side computes; both compute the same."""
    draw, held = np.random.default_rng(1), weights()
    x = draw.normal(size=(BATCH, WIDTH))
    kernel = x @ held["fc/kernel"] + held["fc/bias"]
    normal = (kernel - kernel.mean(0)) / np.sqrt(kernel.var(0) + 1e-5) * held["norm/scale"] + held["norm/bias"]
    active = np.tanh(normal)
    kinds = {"torch": ("Linear", "BatchNorm1d", "Tanh", "Dropout")}.get(side) or (
        ("Dense", "BatchNormalization", "tanh", "Dropout")
    )
    arrays = [(x, kernel), (kernel, normal), (normal, active), (active, active)]
    calls = [
        LayerCall(
            name=name,
            kind=kind,
            settings={},
            inputs=(given,),
            output=made,
            evaluated=made,
            gradient=draw.normal(size=made.shape),
        )
        for name, kind, (given, made) in zip(("fc", "norm", "act", "drop"), kinds, arrays, strict=True)
    ]
    params = {name: value for name, value in held.items() if "running" not in name}
    gradients = {name: draw.normal(size=value.shape) for name, value in params.items()}
    buffers = {
        "norm/running_mean": 0.9 * held["norm/running_mean"] + 0.1 * kernel.mean(0),
        "norm/running_var": 0.9 * held["norm/running_var"] + 0.1 * kernel.var(0) * BATCH / (BATCH - 1),
    }
    settings = ADAM if side == "torch" else KERAS_ADAM
    return ModelTrace(
        calls=tuple(calls),
        outputs=active,
        evaluated=active,
        targets=np.arange(BATCH) % OUT,
        loss=1.5,
        gradients=gradients,
        buffers=buffers,
        stepped={name: value - 1e-3 * np.sign(gradients[name]) for name, value in params.items()},
        losses=(1.5, 1.25, 1.0),
        nudged=(1.5, 1.25, 1.0) if side == "torch" else (),
        stilled={"drop": Stilled("dropout", "elements", 0.2)},
        optimizer=dict.fromkeys(params, settings),
    )


def case(**changed: ModelTrace) -> PortCase:
    """Both sides aligned; keyword arguments replace the trace of a side."""
    sides = {side: changed.get(side) or trace(side) for side in ("torch", "tf")}
    matching = match(layers("torch"), layers("tf"))
    return PortCase(matching, sides["torch"], sides["tf"], (weights(), weights()))


def with_dropout(side: str, **dropouts: tuple[str, float]) -> ModelTrace:
    """A trace in which other layers drop."""
    return dataclasses.replace(
        trace(side), stilled={name: Stilled("dropout", *each) for name, each in dropouts.items()}
    )


def with_place(side: str, output: np.ndarray, before: str) -> ModelTrace:
    """A trace whose dropout stands before a layer, or last for "", and sees some array."""
    made = trace(side)
    rest, moved = (
        made.calls[:-1],
        dataclasses.replace(made.calls[-1], inputs=(output,), output=output, evaluated=output),
    )
    place = next((i for i, call in enumerate(rest) if call.name == before), len(rest))
    return dataclasses.replace(made, calls=(*rest[:place], moved, *rest[place:]))


def with_settings(side: str, on: str = "", **settings: object) -> ModelTrace:
    """A trace whose optimizer is set otherwise, for all parameters or for those whose names end so."""
    made = trace(side)
    held = {name: {**given, **(settings if name.endswith(on) else {})} for name, given in made.optimizer.items()}
    return dataclasses.replace(made, optimizer=held)


def with_measure(side: str, measure: str, value: float) -> ModelTrace:
    """A trace of which one measure is something else: a field, `calls/NUMBER/FIELD`, or `FIELD/NAME` of a table."""
    made = copy.deepcopy(trace(side))
    field, _, rest = measure.partition("/")
    if field == "calls":
        number, _, part = rest.partition("/")
        old = made.calls[int(number)]
        array = np.full_like(old.inputs[0] if part == "inputs" else getattr(old, part), value)
        call = dataclasses.replace(old, **{part: (array,) if part == "inputs" else array})
        return dataclasses.replace(made, calls=(*made.calls[: int(number)], call, *made.calls[int(number) + 1 :]))
    if rest:
        table = dict(getattr(made, field))
        table[rest] = np.full_like(table[rest], value)
        return dataclasses.replace(made, **{field: table})
    old_value = getattr(made, field)
    new = (*old_value[:-1], value) if isinstance(old_value, tuple) else np.full_like(old_value, value)
    return dataclasses.replace(made, **{field: float(new) if field == "loss" else new})


MEASURES = (
    *(f"calls/{number}/{part}" for number in range(4) for part in ("inputs", "output", "evaluated", "gradient")),
    *("outputs", "evaluated", "loss", "losses"),
    *(f"{table}/{name}" for table in ("gradients", "stepped") for name in ("fc/kernel", "fc/bias", "norm/scale")),
    *("buffers/norm/running_mean", "buffers/norm/running_var"),
)
