"""What requests of compression are refused."""

from samestep.common.errors import ConfigError
from samestep.common.strategy import Run


def check_compression(run: Run) -> None:
    """Refuses to compress what nobody exchanges.

    Raises:
        ConfigError: There is one device.
    """
    method = run.techniques.compress
    if method is not None and run.num_devices == 1:
        raise ConfigError(f"--compress {method} is for what devices exchange, and there is one; add --devices 2.")
