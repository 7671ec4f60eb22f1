"""Examples that come twice, or in the same order again."""

from museum.piece import Piece, Side

HUB = ("huggingface_hub==0.36.0", "safetensors==0.5.3")

DATA = (
    Piece(
        "no-set-epoch",
        "pytorch/pytorch#31771",
        "Without set_epoch, DistributedSampler shuffles every epoch alike.",
        "Nothing; found again and again by reading the code, in more than eight repositories.",
        "ddp_epochs",
        Side((), ("--set-epoch",)),
        Side(),
        "same_order_each_epoch",
        "step 4, data",
        (),
        2,
    ),
    Piece(
        "sampler-pads",
        "mosaicml/composer#2218",
        "DistributedSampler fills the last batch up with examples that were there already.",
        "Metrics of the evaluation that depended on the number of GPUs.",
        "ddp_epochs",
        Side((), ("--no-padding", "--examples", "15")),
        Side((), ("--unshuffled", "--examples", "15")),
        "padded_sample_twice",
        "step 1, data, rank 1",
        (),
        2,
    ),
    Piece(
        "accelerate-pads",
        "huggingface/accelerate#2316",
        "accelerate fills the last batches up with the first examples of the data.",
        "A sentence of the tutorial, which made somebody ask: meant so, and switched off by even_batches=False.",
        "accelerate_epochs",
        Side((), ("--examples", "30", "--split", "uneven")),
        Side((), ("--examples", "30", "--split", "even")),
        "padded_sample_twice",
        "step 3, data, rank 1",
        ("accelerate==1.12.0", *HUB),
        2,
    ),
    Piece(
        "accelerate-same-order",
        "huggingface/accelerate#2117",
        "With more than one process, the sampler of accelerate 0.24 never learns that an epoch has ended.",
        "Nothing; fixed in passing, within a pull request about defaults.",
        "accelerate_epochs",
        Side(("accelerate==0.25.0",)),
        Side(("accelerate==0.24.0",)),
        "same_order_each_epoch",
        "step 4, data",
        HUB,
        2,
    ),
)
