"""The strategies of TensorFlow; each row is `ROW` in the file named after its strategy. Imports no framework."""

from samestep.common.catalog import FrameworkInfo
from samestep.common.costs.saved_activations import kept_tf

FRAMEWORK = FrameworkInfo(
    module="tensorflow",
    title="TensorFlow",
    saved=kept_tf.saved,
    extra="tf",
    environment={"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "1"},
    preload=("samestep.tf_impl.lean", "samestep.tf_impl.program"),
    preload_for_models=("keras", "samestep.tf_impl.describe"),
    strategies=(
        "single",
        "mirrored",
        "multi_worker_mirrored",
        "central_storage",
        "context",
        "expert",
        "dtensor",
        "parameter_server",
        "tpu",
    ),
)
