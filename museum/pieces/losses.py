"""Losses that are divided by another number."""

from museum.piece import Piece, Side

REST = ("regex==2024.11.6", "accelerate==1.12.0")

LOSSES = (
    Piece(
        "soft-bce-counts-ignored",
        "qubvel-org/segmentation_models.pytorch#852",
        "SoftBCEWithLogitsLoss leaves ignored pixels out of the sum and counts them in the mean.",
        "Nothing: the loss is too small by the share of pixels that have a label. Closed as stale.",
        "smp_loss",
        Side((), ("plain",)),
        Side((), ("soft-bce",)),
        "loss_times",
        "step 0, loss",
        ("segmentation_models_pytorch==0.5.0",),
    ),
    Piece(
        "trainer-label-smoothing",
        "huggingface/transformers#46731",
        "The label smoother of the Trainer takes a mean over the micro-batch, which nobody divides by their number.",
        "A loss that grew with the number of micro-batches, and only with label smoothing.",
        "hf_trainer",
        Side((), ("--even", "--smooth", "0.1", "--accumulate", "1")),
        Side((), ("--even", "--smooth", "0.1", "--accumulate", "4")),
        "times_microbatches",
        "step 0, loss",
        ("transformers==4.57.6", "huggingface_hub==0.36.0", "tokenizers==0.22.1", "safetensors==0.5.3", *REST),
    ),
)
