"""What is called before a function of a library, and after it."""

import inspect

from samestep.common.steps.wrapping import followed, preceded


def divide(number: float, by: float = 1.0) -> float:
    """Divides."""
    return number / by


def test_what_precedes_gets_the_arguments_and_what_follows_the_result_as_well() -> None:
    seen: list[object] = []
    wrapped = followed(
        preceded(divide, lambda *args, **kwargs: seen.append((args, kwargs))),
        lambda *args, **kwargs: seen.append((args, kwargs)),
    )
    assert wrapped(6, by=3) == 2
    assert seen == [((6,), {"by": 3}), ((2, 6), {"by": 3})]
    assert wrapped.__doc__ == "Divides." and inspect.signature(wrapped) == inspect.signature(divide)
