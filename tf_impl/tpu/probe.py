"""Checks whether a TPU can be reached, before TensorFlow is imported, which would wait for the TPU for minutes."""

import importlib.metadata
import socket
import threading
from pathlib import Path

from samestep.common.errors import ConfigError, Unavailable

PROBE_SECONDS = 2.0
_METADATA_SERVER = ("metadata.google.internal", 80)
_INSTEAD = "or leave out --tpu, and XLA on the CPU emulates it"
_DEVICES = ("accel*", "vfio/[0-9]*")


def probe(tpu: str) -> None:
    """Makes sure that a TPU is there, as far as package metadata, device files and a socket show it.

    Args:
        tpu: "local", grpc://HOST:PORT or the name of a Cloud TPU.

    Raises:
        Unavailable: A package is missing, or nothing answers; the message says what to do.
    """
    if tpu == "local":
        _probe_local()
    elif tpu.startswith("grpc://"):
        message = f"--tpu {tpu}: nobody answers there ({{}}); start the TPU, correct the address, {_INSTEAD}."
        _connect(grpc_address(tpu), message)
    else:
        _probe_name(tpu)


def grpc_address(tpu: str) -> tuple[str, int]:
    """Splits grpc://HOST:PORT into host and port.

    Raises:
        ConfigError: The address is not spelled that way.
    """
    host, _, port = tpu.removeprefix("grpc://").rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 65536):
        raise ConfigError(f"--tpu is '{tpu}'; give a host and a port, as in grpc://10.0.0.2:8470.")
    return host.strip("[]"), int(port)


def _probe_local() -> None:
    # tensorflow-tpu 2.20 is built for the libtpu of its time: libtpu 0.0.51 aborts the process.
    if not (_installed("tensorflow-tpu") and _installed("libtpu")):
        raise Unavailable(
            "--tpu local needs the TensorFlow wheel that has TPU kernels, and libtpu. On the TPU's own machine: "
            f"pip uninstall tensorflow && pip install tensorflow-tpu==2.20.0 libtpu==0.0.17; {_INSTEAD}."
        )
    if not any(path for pattern in _DEVICES for path in Path("/dev").glob(pattern)):
        raise Unavailable(
            f"--tpu local: this machine has no TPU (no {' nor '.join(f'/dev/{name}' for name in _DEVICES)}); "
            f"start the run on the TPU's own machine, {_INSTEAD}."
        )


def _probe_name(tpu: str) -> None:
    missing = [name for name in ("google-api-python-client", "oauth2client") if not _installed(name)]
    if missing:
        raise Unavailable(
            f"--tpu {tpu}: TensorFlow looks a name up with {' and '.join(missing)}: pip install {' '.join(missing)}; "
            f"give grpc://HOST:PORT instead, {_INSTEAD}."
        )
    _connect(
        _METADATA_SERVER,
        f"--tpu {tpu}: names are known inside Google Cloud only, and {_METADATA_SERVER[0]} does not answer ({{}}); "
        f"start the run there, give grpc://HOST:PORT instead, {_INSTEAD}.",
    )


def _installed(name: str) -> bool:
    return any(importlib.metadata.distributions(name=name))


def _connect(address: tuple[str, int], message: str) -> None:
    """Tries to connect, in a second thread, because a socket's timeout does not bound a name server's silence."""
    answers: list[OSError | None] = []

    def connect() -> None:
        try:
            socket.create_connection(address, PROBE_SECONDS).close()
            answers.append(None)
        except OSError as error:
            answers.append(error)

    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(2 * PROBE_SECONDS)
    error = answers[0] if answers else TimeoutError("the name server is silent")
    if error is not None:
        raise Unavailable(message.format(error.strerror or error))
