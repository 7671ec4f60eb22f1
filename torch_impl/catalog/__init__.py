"""The strategies of PyTorch; each row is `ROW` in the file named after its strategy. Imports no framework."""

import os

from samestep.common.catalog import FrameworkInfo
from samestep.common.costs.saved_activations import kept_torch
from samestep.torch_impl.rows import needs

FRAMEWORK = FrameworkInfo(
    module="torch",
    title="PyTorch",
    saved=kept_torch.saved,
    available=needs.require_compiler,
    extra="torch",
    # In a private network, torch warns of every connection without a host name (2.13). Our ranks have no torchrun agent.
    environment={
        "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    },
    preload=("samestep.torch_impl.program", "torch._dynamo"),  # every optimizer imports it, which takes a second (2.13)
    preload_for_models=("samestep.torch_impl.describe",),
    strategies=(
        "single",
        "c10d",
        "dp",
        "ddp",
        "zero1",
        "zero2",
        "fsdp",
        "deepspeed",
        "mp",
        "pp",
        "tp",
        "cp",
        "ep",
        "rpc",
        "rpc_parameter_server",
        "hybrid",
    ),
)
