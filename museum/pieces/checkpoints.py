"""Checkpoints that are not what was saved."""

from museum.piece import Piece, Side

CHECKPOINTS = (
    Piece(
        "checkpoint-of-two-steps",
        "pytorch/pytorch#125877",
        "By default, torch.distributed.checkpoint writes over a checkpoint in place; if a rank is killed in between, what is "
        "loaded is of two steps.",
        "Nothing that we know of: the save warns that it overwrites, and the load says nothing; found by killing a rank. Still "
        "the default, in torch 2.13.",
        "dcp_resume",
        Side((), ("--new-id",)),
        Side(),
        "",
        "before the first step, initial weights, layer weight",
    ),
)
