"""What an optimizer's hooks clip is seen by how torch's functions are called, and may be without what they add to a norm."""

import pytest

from samestep.common.porting.model_trace import CLIP_EPSILON, Amendments

pytestmark = pytest.mark.torch


def seen(clip: str, *amended: str) -> tuple[dict[str, dict[str, object]], list[float]]:
    """The settings of two parameters after a step that clips gradients of norm 5, and what it leaves of them."""
    import torch
    from torch import nn

    from samestep.torch_impl.describing.clipping import Clips
    from samestep.torch_impl.weights import named_weights

    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)).double()
    named, plain = named_weights(net), nn.utils.clip_grad_norm_
    with Clips(Amendments(optimizer={name: dict.fromkeys(amended, 0.0) for name in named})) as clips:
        p = list(net.parameters())
        for parameter, value in zip(p, (3.0, 4.0), strict=True):
            parameter.grad = torch.full((1, 1), value, dtype=torch.float64)
        eval(clip, {"clip": nn.utils, "p": p})
    assert nn.utils.clip_grad_norm_ is plain is nn.utils.clip_grad.clip_grad_norm_
    settings = clips.beside({name: {"kind": "SGD"} for name in named}, named)
    return settings, [float(parameter.grad) for parameter in p if parameter.grad is not None]


@pytest.mark.parametrize(
    ("clip", "settings", "left"),
    [
        ("clip.clip_grad_norm_(p, 0.5)", {"global_clipnorm": 0.5, CLIP_EPSILON: 1e-6}, 0.3 / (1 + 2e-7)),
        ("clip.clip_grad_norm_(iter(p), max_norm=0.5)", {"global_clipnorm": 0.5, CLIP_EPSILON: 1e-6}, 0.3 / (1 + 2e-7)),
        ("clip.clip_grad_norm_(p, 50)", {"global_clipnorm": 50.0, CLIP_EPSILON: 1e-6}, 3.0),
        (
            "[clip.clip_grad_norm_(each, 0.5) for each in p]",
            {"clipnorm": 0.5, CLIP_EPSILON: 1e-6},
            0.5 / (1 + 1e-6 / 3),
        ),
        (
            "clip.clip_grad_norm_(p, 0.5, norm_type=1)",
            {"global_clipnorm": 0.5, CLIP_EPSILON: 1e-6, "norm_type": 1.0},
            1.5 / (7 + 1e-6),
        ),
        ("clip.clip_grad_value_(p, 0.5)", {"clipvalue": 0.5}, 0.5),
        ("None", {}, 3.0),
    ],
)
def test_how_gradients_are_clipped(clip: str, settings: dict[str, float], left: float) -> None:
    found, gradients = seen(clip)
    assert [*found.values()] == [{"kind": "SGD", **settings}] * 2
    assert gradients[0] == pytest.approx(left, rel=1e-12)


@pytest.mark.parametrize(("bound", "left"), [(0.5, 0.3), (50.0, 3.0)])
def test_nothing_is_added_to_the_norm_where_that_is_accepted(bound: float, left: float) -> None:
    found, gradients = seen(f"clip.clip_grad_norm_(p, {bound})", CLIP_EPSILON)
    assert [*found.values()] == [{"kind": "SGD", "global_clipnorm": bound}] * 2
    assert gradients[0] == pytest.approx(left, rel=1e-14)
