"""Mistakes of steps that ranks take alone, made in the real programs; `silent_worker.py` makes them."""


def torch_gradients_averaged_too() -> None:
    import contextlib

    from samestep.torch_impl.techniques.local_steps import RankSteps

    RankSteps.exchange = lambda self, last: contextlib.nullcontext()


def torch_own_weights_kept() -> None:
    from samestep.torch_impl.techniques.local_steps import RankSteps

    right = RankSteps._meet
    RankSteps._meet = lambda self, own: right(self, {name: value.clone() for name, value in own.items()})


def torch_outer_momentum_forgotten() -> None:
    from samestep.torch_impl.techniques.local_steps import RankSteps

    right = RankSteps._meet

    def meet(self: object, own: object) -> None:
        self.momentum.clear()
        right(self, own)

    RankSteps._meet = meet


def tf_outer_step_uphill() -> None:
    import dataclasses

    from samestep.tf_impl.techniques.local_steps import RankSteps

    right = RankSteps._outer_step

    def outer_step(self: object, name: str, mean: object) -> object:
        self._techniques = dataclasses.replace(self._techniques, outer_rate=-abs(self._techniques.outer_rate))
        return right(self, name, mean)

    RankSteps._outer_step = outer_step
