"""The public scripts of Keras that are tried, and how each is started."""

from benchmarks.public.sources import PublicScript

_KERAS, _IO = "keras-team/keras", "examples/keras_io"

KERAS = (
    *(
        PublicScript(_KERAS, "examples", file, environment={"KERAS_BACKEND": backend})
        for file, backend in (
            ("demo_mnist_convnet.py", "tensorflow"),
            ("demo_mnist_convnet.py", "torch"),
            ("demo_functional.py", "tensorflow"),
            ("demo_subclass.py", "tensorflow"),
            ("demo_subclass.py", "torch"),
            ("demo_custom_torch_workflow.py", "torch"),
            ("demo_custom_layer_backend_agnostic.py", "tensorflow"),
        )
    ),
    *(
        PublicScript(_KERAS, "guides", file, environment={"KERAS_BACKEND": backend})
        for file, backend in (
            ("custom_train_step_in_tensorflow.py", "tensorflow"),
            ("custom_train_step_in_torch.py", "torch"),
            ("writing_a_custom_training_loop_in_tensorflow.py", "tensorflow"),
            ("writing_a_custom_training_loop_in_torch.py", "torch"),
            ("distributed_training_with_tensorflow.py", "tensorflow"),
            ("making_new_layers_and_models_via_subclassing.py", "tensorflow"),
            ("training_with_built_in_methods.py", "tensorflow"),
            ("writing_your_own_callbacks.py", "tensorflow"),
            ("writing_your_own_callbacks.py", "torch"),
        )
    ),
    *(
        PublicScript(_KERAS, "integration_tests", file, environment={"KERAS_BACKEND": backend})
        for file, backend in (
            ("tf_custom_fit_test.py", "tensorflow"),
            ("torch_custom_fit_test.py", "torch"),
            ("tf_distribute_training_test.py", "tensorflow"),
        )
    ),
    *(
        PublicScript(_KERAS, f"{_IO}/{folder}", file)
        for folder, file in (
            ("tensorflow/generative", "vae.py"),
            ("tensorflow/generative", "wgan_gp.py"),
            ("tensorflow/keras_recipes", "trainer_pattern.py"),
            ("tensorflow/keras_recipes", "endpoint_layer_pattern.py"),
            ("tensorflow/keras_recipes", "antirectifier.py"),
            ("tensorflow/keras_recipes", "tensorflow_numpy_models.py"),
            ("vision", "mnist_convnet.py"),
            ("vision", "autoencoder.py"),
            ("vision", "knowledge_distillation.py"),
            ("vision", "siamese_contrastive.py"),
            ("vision", "attention_mil_classification.py"),
            ("nlp", "bidirectional_lstm_imdb.py"),
            ("nlp", "addition_rnn.py"),
            ("timeseries", "timeseries_weather_forecasting.py"),
            ("tensorflow/nlp", "text_classification_from_scratch.py"),
        )
    ),
)
