"""What records the steps of any script that trains with Keras on TensorFlow: `samestep record` installs it."""

from collections.abc import Mapping


def install(options: Mapping[str, object]) -> None:
    """Records this process from now on. Keras and TensorFlow have been imported.

    Args:
        options: The fields of `Options`.
    """
    from samestep.tf_impl.recording.hooks import patch
    from samestep.tf_impl.recording.session import Options, Session

    patch(Session(Options(**options)))
