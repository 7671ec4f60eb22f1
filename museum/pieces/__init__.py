"""The pieces of the museum."""

from museum.piece import Piece
from museum.pieces.accumulation import ACCUMULATION
from museum.pieces.checkpoints import CHECKPOINTS
from museum.pieces.data import DATA
from museum.pieces.losses import LOSSES
from museum.pieces.optimizers import OPTIMIZERS
from museum.pieces.replicas import REPLICAS
from museum.pieces.schedules import SCHEDULES

PIECES: tuple[Piece, ...] = (*ACCUMULATION, *LOSSES, *DATA, *REPLICAS, *SCHEDULES, *CHECKPOINTS, *OPTIMIZERS)
