"""What requests of compression are refused."""

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run
from samestep.common.techniques import Techniques


def check_compression(run: Run) -> None:
    """Refuses to compress what nobody exchanges, and a rank of what has none.

    Raises:
        ConfigError: There is one device, or the method is not PowerSGD.
    """
    method, rank = run.techniques.compress, run.techniques.compress_rank
    if method != "powersgd" and rank != Techniques().compress_rank:
        raise ConfigError(f"--compress-rank {rank} is that of powersgd; add --compress powersgd, or leave it out.")
    if method is not None and run.num_devices == 1:
        raise ConfigError(f"--compress {method} is for what devices exchange, and there is one; add --devices 2.")
