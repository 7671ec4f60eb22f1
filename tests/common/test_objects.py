"""The objects of this process are found, and none of them is kept."""

import gc
import weakref

import pytest

from samestep.common.objects import objects_of, uncollected


class First:
    """It is looked for."""


class Second(First):
    """And what is below it."""


def test_objects_of_a_class_are_found_and_let_go() -> None:
    gc.collect()
    gc.disable()
    try:
        first, second, other = First(), Second(), {"of another": [1]}
        first.other = other  # type: ignore[attr-defined]
        assert objects_of(First) == [first, second]
        ended = weakref.ref(second)
        del second
        assert ended() is None, "the list of all objects lives on"
    finally:
        gc.enable()


@pytest.mark.parametrize("was_enabled", [False, True])
def test_garbage_is_collected_afterwards_as_before(was_enabled: bool) -> None:
    @uncollected()
    def fail() -> None:
        assert not gc.isenabled()
        raise ValueError("within")

    (gc.enable if was_enabled else gc.disable)()
    try:
        with pytest.raises(ValueError, match="within"):
            fail()
        assert gc.isenabled() == was_enabled
    finally:
        gc.enable()
