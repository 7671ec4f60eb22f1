"""Products of gradients and numbers that nobody trains, whose derivatives are products with the Hessian, and no gradients.

Hessian-free methods ask `torch.autograd.grad` for them many times in a step. What they optimize is the loss whose gradient it is.
"""

import weakref

import torch

from samestep.torch_impl.recording.step.losses import Roots

_IS_GRADIENT = "samestep.gradient"
_OF_SAME_NUMBERS = {"CatBackward0", "ReshapeAliasBackward0", "SliceBackward0", "SqueezeBackward0", "StackBackward0"}
_OF_SAME_NUMBERS |= {"UnsqueezeBackward0", "UnsafeViewBackward0", "ViewBackward0", "CloneBackward0", "TBackward0"}
_SUMS = {"AddBackward0", "SumBackward0", "SumBackward1"}
_TIMES = {"DotBackward0", "MulBackward0", "MvBackward0", "VdotBackward0"}
Pairs = list[tuple[torch.Tensor, torch.Tensor | None]]


class DifferentiatedLoss:
    """The last loss whose gradient can be differentiated again. Neither it nor its graph is kept alive."""

    def __init__(self) -> None:
        """Has seen no loss."""
        self._of: tuple[weakref.ref[torch.Tensor], torch.Tensor, Pairs] | None = None

    def see(self, roots: Roots, found: Pairs) -> None:
        """The gradient of a loss was computed.

        Args:
            roots: Where the pass began; nowhere if it is of no account.
            found: Each parameter with its gradient.
        """
        self._of = None
        if len(roots) == 1 and roots[0][1] is None and roots[0][0].numel() == 1:
            loss = roots[0][0]
            gradients = [(one, None if each is None else each.detach()) for one, each in found]
            self._of = weakref.ref(loss), loss.detach(), gradients
            for _, each in found:
                if each is not None and each.grad_fn is not None:
                    each.grad_fn.metadata[_IS_GRADIENT] = True  # pyrefly: ignore[unsupported-operation]  # a dict in torch 2.13

    def of(self, roots: Roots) -> tuple[Roots, Pairs] | tuple[()] | None:
        """Returns where the loss begins of whose gradient a pass differentiates a product, and that gradient.

        Args:
            roots: Where the pass begins.

        Returns:
            None if it begins with something else; nothing if the loss was returned before.
        """
        if not _is_of_gradient(roots):
            return None
        of, self._of = self._of, None
        if of is None:
            return ()
        loss, value, found = of
        alive = loss()
        return [(value if alive is None else alive, None)], found


def _is_of_gradient(roots: Roots) -> bool:
    """Returns whether a pass begins with sums of gradients, each of them times numbers that nobody trains.

    Args:
        roots: Where it begins.
    """
    waiting = [each.grad_fn for each, _ in roots]
    for node in waiting:  # which grows
        if node is None:
            return False
        if _IS_GRADIENT in node.metadata:  # pyrefly: ignore[not-iterable]
            continue
        found, name = [each for each, _ in node.next_functions if each is not None], node.name()
        if name not in _OF_SAME_NUMBERS | _SUMS | _TIMES or (name in _TIMES and len(found) > 1):
            return False
        waiting += found
    return bool(waiting)
