"""Learning rates that are not those which were asked for."""

from museum.piece import Piece, Side

SCHEDULES = (
    Piece(
        "accelerate-schedule-by-processes",
        "huggingface/accelerate#2142",
        "A schedule that accelerate prepares takes as many steps at each step as there are processes.",
        "Warm-up was over too soon and the rate reached zero early; asked at least nine times, and meant so.",
        "accelerate_schedule",
        Side((), ("--keep-schedule",)),
        Side(),
        "schedule_runs_n_times",
        "step 1, hyper-parameters",
        ("accelerate==1.12.0", "huggingface_hub==0.36.0", "safetensors==0.5.3"),
        2,
    ),
    Piece(
        "warmup-scheduler-first-rate",
        "ildoonet/pytorch-gradual-warmup-lr#11",
        "After its warm-up, the schedule takes the full rate once more.",
        "A bump in the printed rates.",
        "warmup_schedule",
        Side((), ("--lambda-schedule",)),
        Side(),
        "late_rate",
        "step 6, hyper-parameters",
        ("warmup-scheduler==0.3",),
    ),
    Piece(
        "timm-warmup-within-the-cosine",
        "microsoft/Swin-Transformer#277",
        "By default, the cosine of timm has begun before the warm-up ends.",
        "A step down in the printed rates, after the warm-up.",
        "timm_schedule",
        Side((), ("--warmup-prefix",)),
        Side(),
        "schedule_shifted",
        "step 3, hyper-parameters",
        ("timm==1.0.20",),
    ),
)
