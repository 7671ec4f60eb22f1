"""Recognizes products of gradients with constants, whose derivatives are Hessian-vector products and not gradients.

Hessian-free methods ask `torch.autograd.grad` for them many times in a step. The loss that they optimize is the one whose
gradient is in the product.
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
    """The last loss whose gradient can be differentiated again. Neither the loss nor its graph is kept alive."""

    def __init__(self) -> None:
        """Starts with no loss."""
        self._of: tuple[weakref.ref[torch.Tensor], torch.Tensor, Pairs] | None = None

    def see(self, roots: Roots, found: Pairs) -> None:
        """Notes that the gradient of a loss was computed.

        Args:
            roots: The roots of the pass; empty if it does not count.
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
        """Returns the loss and the gradient, if a pass differentiates a product with the gradient of that loss.

        Args:
            roots: The roots of the pass.

        Returns:
            The loss as roots, and the gradient; an empty tuple if the loss was returned before; None for any other pass.
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
    """Returns whether a pass begins with sums of gradients, each multiplied by constants.

    Args:
        roots: The roots of the pass.
    """
    waiting = [each.grad_fn for each, _ in roots]
    for node in waiting:  # the list grows
        if node is None:
            return False
        if _IS_GRADIENT in node.metadata:  # pyrefly: ignore[not-iterable]
            continue
        found, name = [each for each, _ in node.next_functions if each is not None], node.name()
        if name not in _OF_SAME_NUMBERS | _SUMS | _TIMES or (name in _TIMES and len(found) > 1):
            return False
        waiting += found
    return bool(waiting)
