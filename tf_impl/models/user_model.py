"""The user's own model, built from their file: a Keras model on TensorFlow, or a tf.Module that can be called."""

import itertools
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from samestep.common.errors import ConfigError
from samestep.common.features import Features
from samestep.common.techniques.used import refuse_variables
from samestep.common.workload.declaration import Model
from samestep.common.workload.declared import IDS, call_user, load_model
from samestep.common.workload.models.dtypes import check_numbers
from samestep.common.workload.models.layer import ParameterLayer
from samestep.common.workload.models.spec import ArraySpec, ModelSpec
from samestep.tf_impl.features.applied import freeze, switch_layers
from samestep.tf_impl.models import uncast
from samestep.tf_impl.models.added_losses import Added
from samestep.tf_impl.models.inputs import Inputs
from samestep.tf_impl.models.outputs import finish_outputs
from samestep.tf_impl.models.refused_layers import refuse_layers

EXAMPLES = 2
"""The number of examples with which a model is built, since some make their variables only when they are called."""

Variables = dict[str, tf.Variable]


def begin_in_float64(seed: int) -> None:
    """Resets Keras to the state of a new process, where names are numbered from the start, and seeds its random numbers."""
    import keras  # here: our own models do without it

    keras.utils.clear_session(free_memory=False)
    keras.utils.set_random_seed(seed % 2**32)  # NumPy's generators take no larger one
    keras.config.set_floatx("float64")


class UserModel:
    """A user's model under our contract: a call is a training pass, `predict` is an evaluation pass.

    Attributes:
        model: The model that the file builds.
        params: What is trained, or would be if it were not frozen, by neutral name.
        frozen: The names of the parameters that are frozen, in layers whose `trainable` is False.
        buffers: Its other variables, by neutral name.
        added: Its added losses.
    """

    def __init__(self, model: Model, source: str, example: Inputs) -> None:
        """Builds the model, its variables wherever the scope of a strategy puts them.

        Args:
            model: The declaration, which has a builder for TensorFlow.
            source: Where it is declared, for messages.
            example: Inputs of a few examples.

        Raises:
            ConfigError: The builder fails, returns no model, or returns one with numbers that are not real.
        """
        import keras  # here: our own models do without it

        assert model.tf is not None
        uncast.install()
        if isinstance(model.tf, tf.Module):
            raise ConfigError(f"--model {source}: tf= is a model; give the function that builds it.")
        self._source = source
        self._finish = finish_outputs(model)
        dtypes, graph = _default_dtypes(), tf.compat.v1.get_default_graph()
        self._widened: list[tf.Variable] = []
        with uncast.follow_dtype(self._widened):
            self.model: Any = call_user(model.tf, source, "the function given as tf=")
        if own := ", ".join(new for new, old in zip(_default_dtypes(), dtypes, strict=True) if new != old):
            raise ConfigError(
                f"--model {source}: the function given as tf= sets Keras' dtype policy to {own}, which --dtype and --precision "
                f"do; leave that line out, and give --precision bf16."
            )
        if tf.compat.v1.get_default_graph() is not graph:
            raise ConfigError(
                f"--model {source}: the function given as tf= calls keras.utils.clear_session(), which ends the scope of a "
                f"strategy; leave that line out: every model is built in a new process."
            )
        self._is_keras = isinstance(self.model, keras.Model)
        if not (self._is_keras or (isinstance(self.model, tf.Module) and callable(self.model))):
            kind = type(self.model).__name__
            raise ConfigError(
                f"--model {source}: the function given as tf= returned {kind}, not a Keras model or a tf.Module with __call__."
            )
        refuse_layers(source, self.layers())
        self._check_numbers()  # of those that are there already: complex ones make the forward pass fail
        with uncast.follow_dtype(self._widened):
            call_user(self.predict, source, f"the forward pass of {_told(example)}", example)
        refuse_layers(source, self.layers())  # some make their variables when they are called
        self.added = call_user(Added, source, "what it adds to its loss", self.model if self._is_keras else None)
        self.params, self.frozen, self.buffers = named_variables(self.model)
        self._check_numbers()
        if not self.trained:
            raise ConfigError(f"--model {source}: the model has no variables to train.")

    def _check_numbers(self) -> None:
        held, _, others = named_variables(self.model)
        params, buffers = ({name: v.dtype.name for name, v in each.items()} for each in (held, others))
        check_numbers(self._source, "tf", params, buffers)
        refuse_variables(self._source, {f"the variable {name}": dtype for name, dtype in {**params, **buffers}.items()})
        if held and len(set(_default_dtypes())) == 1:  # --precision gives layers another dtype than floatx
            refuse_variables(self._source, {f"what {each.name} computes": each.compute_dtype for each in self.layers()})

    def fixed_dtypes(self) -> dict[str, str]:
        """Returns the dtypes of real variables that do not follow Keras' default, such as those of a tf.Module given one."""
        import keras  # here: our own models do without it

        held, following = {**self.params, **self.buffers}, set(map(id, self._widened))
        dtypes = {name: v.dtype.name for name, v in held.items() if v.dtype.is_floating and id(v) not in following}
        default = keras.config.floatx() if self._is_keras else None
        return {name: dtype for name, dtype in dtypes.items() if dtype != default}

    def __call__(self, x: Inputs) -> tf.Tensor:
        """Computes the outputs as in training."""
        return self._outputs(self.model(x, training=True) if self._is_keras else self.model(x), x)

    def predict(self, x: Inputs) -> tf.Tensor:
        """Computes the outputs as in evaluation."""
        return self._outputs(self.model(x, training=False) if self._is_keras else self.model(x), x)

    def layers(self, *kinds: type) -> list[Any]:
        """Returns the layers of a Keras model, including nested ones: those of some kinds, or all."""
        flat = self.model._flatten_layers() if self._is_keras else ()
        return [layer for layer in flat if isinstance(layer, kinds or object)]

    @property
    def trained(self) -> dict[str, tf.Variable]:
        """The parameters that are not frozen."""
        return {name: variable for name, variable in self.params.items() if name not in self.frozen}

    def trainable(self) -> list[Any]:
        """Returns the variables of `trained`, as an optimizer of Keras takes them."""
        return list(self.model.trainable_variables)

    def recording(self) -> AbstractContextManager[Any]:
        """Records the calls of the model's layers, see `tracing.LayerRecorder`."""
        from samestep.tf_impl import tracing  # here: it imports Keras

        return tracing.recording(self.model)

    def describe_layers(self, x: Inputs) -> tuple[ParameterLayer, ...]:
        """Returns the layers that hold parameters, in the order in which some inputs reach them."""
        from samestep.tf_impl.describing import layers  # here: it imports Keras

        with self.recording() as recorder:
            self.predict(x)
        names = {id(variable): name for name, variable in {**self.params, **self.buffers}.items()}
        return layers.find_layers(self.model, recorder.started, names)

    def freeze(self, running: Collection[str]) -> Callable[[], None]:
        """Makes batch normalizations, and the layers that hold some variables, compute as in evaluation.

        Args:
            running: The variables, by neutral name.

        Returns:
            A function that undoes it.
        """
        return freeze(self.layers(), [self.buffers[name] for name in running])

    def switch_layers(self, features: Features, running: Collection[str]) -> None:
        """Switches off layers whose effect depends on how the batch is split.

        Args:
            features: What a run switches.
            running: Other variables that training moves, by neutral name.
        """
        switch_layers(self.layers(), features, [self.buffers[name] for name in running])

    def _outputs(self, outputs: object, x: Inputs) -> Any:
        try:
            return self._finish(outputs, tf.nest.flatten(x)[0].shape[0])
        except ConfigError as error:
            raise ConfigError(f"--model {self._source}: {error}") from error


def _default_dtypes() -> tuple[str, str]:
    import keras  # here: our own models do without it

    return keras.config.dtype_policy().name, keras.config.floatx()


def _told(inputs: Inputs) -> str:
    if isinstance(inputs, Mapping):
        return ", ".join(f"{name} {_told(one)}" for name, one in inputs.items())
    return f"{inputs.dtype.name} {inputs.shape}{'' if inputs.dtype.is_floating else IDS}"


def declared(spec: ModelSpec) -> Model:
    """Returns the declaration of a described model."""
    return load_model(spec.facts.source, "tf")


def build_user_model(spec: ModelSpec, dtype: str, narrow: tf.DType | None = None) -> UserModel:
    """Builds the model of a description; its weights are yet to be set.

    Args:
        spec: The description.
        dtype: The dtype of its variables.
        narrow: The dtype in which its layers compute, if it differs from that.
    """
    import keras

    keras.config.set_floatx(dtype)
    if narrow is not None:
        keras.config.set_dtype_policy(f"mixed_{narrow.name}")
    return UserModel(declared(spec), spec.facts.source, _zeros(spec.inputs(), dtype))


def _zeros(array: ArraySpec, dtype: str) -> Inputs:
    if array.several:
        return {name: _zeros(one, dtype) for name, one in array.several}
    return tf.zeros((EXAMPLES, *array.shape), dtype if array.ids is None else "int64")


def named_variables(model: Any) -> tuple[Variables, frozenset[str], Variables]:
    """Names the variables of a model by their path in it, in the order in which they were made; equal names are numbered.

    Args:
        model: A Keras model, or a tf.Module.

    Returns:
        The parameters, the names of those that are frozen, and the buffers.
    """
    import keras  # here: our own models do without it

    named: Variables = {}
    is_keras = isinstance(model, keras.Model)
    for each in model.variables:
        name = each.path.removeprefix(f"{model.name}/") if is_keras else each.name.partition(":")[0]
        names = itertools.chain([name], (f"{name}_{count}" for count in itertools.count(1)))
        named[next(free for free in names if free not in named)] = each  # several may be called `w`
    if not is_keras:
        trained = {name: v for name, v in named.items() if v.trainable}
        return trained, frozenset(), {name: v for name, v in named.items() if not v.trainable}
    made_to_train = {id(v) for layer in model._flatten_layers() for v in layer._trainable_variables}
    params = {name: v for name, v in named.items() if v.trainable or id(v) in made_to_train}
    frozen = frozenset(name for name, v in params.items() if not v.trainable)
    return (
        {name: v.value for name, v in params.items()},
        frozen,
        {name: v.value for name, v in named.items() if name not in params},
    )
