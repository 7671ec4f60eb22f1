"""Losses that are divided by another number."""

from museum.piece import Piece, Side

HUB = ("huggingface_hub==0.36.0", "safetensors==0.5.3")

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
        ("transformers==4.57.6", "tokenizers==0.22.1", "regex==2024.11.6", "accelerate==1.12.0", *HUB),
    ),
    Piece(
        "trainer-counts-first-tokens",
        "huggingface/transformers#46204",
        "The Trainer divides by the number of all labels, although no model predicts the first token of a sentence.",
        "Nothing: the loss is too small by the share of first tokens, and was so for a year and a half.",
        "hf_trainer",
        Side(("transformers==4.45.2",), ("--accumulate", "1")),
        Side(("transformers==4.46.3",), ("--accumulate", "1")),
        "loss_times",
        "step 0, loss",
        (*HUB, "tokenizers==0.20.3", "regex==2024.11.6", "accelerate==1.1.1"),
    ),
    Piece(
        "triplets-without-margin",
        "KevinMusgrave/pytorch-metric-learning#315",
        "The smooth triplet loss has no margin, whatever margin is given.",
        "Nothing; found by reading the code.",
        "metric_loss",
        Side(("pytorch-metric-learning==0.9.99",), ("TripletMarginLoss", "smooth_loss=true", "margin=0.5")),
        Side(("pytorch-metric-learning==0.9.98",), ("TripletMarginLoss", "smooth_loss=true", "margin=0.5")),
        "other_loss",
        "step 0, loss",
    ),
    Piece(
        "contrast-of-two-sums",
        "lightly-ai/lightly#1827",
        "The decoupled contrastive loss adds the logarithms of two sums over negatives, where that of their sum is meant.",
        "Nothing; found by a comparison with loops.",
        "self_supervised",
        Side(("lightly==1.5.21",), ("dcl",)),
        Side(("lightly==1.5.20",), ("dcl",)),
        "other_loss",
        "step 0, loss",
    ),
)
