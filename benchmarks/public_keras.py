"""The public scripts of Keras that are tried, and what each is started with."""

from benchmarks.public_list import PublicScript

_KERAS, _IO = "keras-team/keras", "examples/keras_io"
_HOME = {"KERAS_HOME": "{work}/.keras", "MPLBACKEND": "agg"}
_DATA = ("keras .",)

KERAS = (
    *(
        PublicScript(_KERAS, "examples", file, data=_DATA, environment=_HOME | {"KERAS_BACKEND": backend})
        for file, backend in (
            ("demo_mnist_convnet.py", "tensorflow"),
            ("demo_mnist_convnet.py", "torch"),
            ("demo_functional.py", "tensorflow"),
            ("demo_subclass.py", "tensorflow"),
            ("demo_subclass.py", "torch"),
            ("demo_custom_tf_workflow.py", "tensorflow"),
            ("demo_custom_torch_workflow.py", "torch"),
            ("demo_custom_layer_backend_agnostic.py", "tensorflow"),
        )
    ),
    *(
        PublicScript(_KERAS, f"{_IO}/{folder}", file, data=_DATA, environment=_HOME)
        for folder, file in (
            ("tensorflow/generative", "vae.py"),
            ("tensorflow/generative", "wgan_gp.py"),
            ("tensorflow/keras_recipes", "trainer_pattern.py"),
            ("tensorflow/keras_recipes", "endpoint_layer_pattern.py"),
            ("tensorflow/keras_recipes", "antirectifier.py"),
            ("tensorflow/keras_recipes", "subclassing_conv_layers.py"),
            ("tensorflow/keras_recipes", "tensorflow_numpy_models.py"),
            ("tensorflow/rl", "actor_critic_cartpole.py"),
            ("vision", "mnist_convnet.py"),
            ("vision", "autoencoder.py"),
            ("vision", "knowledge_distillation.py"),
            ("vision", "siamese_contrastive.py"),
            ("nlp", "bidirectional_lstm_imdb.py"),
            ("nlp", "addition_rnn.py"),
            ("generative", "pixelcnn.py"),
        )
    ),
)
