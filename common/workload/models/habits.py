"""What the forward pass of a user's model does that makes it another function on a shard of a batch."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Habits:
    """On what a forward pass in training depends beside an example and the weights, as experiments of a worker show.

    Attributes:
        randoms: The layers that draw random numbers.
        are_stilled: Whether nothing random is left with the draws held still.
        running: The buffers, beside those of batch normalisations, that it moves and that its outputs depend on, and that
            stay as they are where their layers are in evaluation.
        restless: Such buffers that evaluation moves as well.
        mixing: The layers whose outputs of an example depend on the other examples, all of that held still.
        is_steady: Whether it gives the same outputs when it is called again, with the same seed, weights and buffers.
    """

    randoms: tuple[str, ...] = ()
    are_stilled: bool = True
    running: tuple[str, ...] = ()
    restless: tuple[str, ...] = ()
    mixing: tuple[str, ...] = ()
    is_steady: bool = True
