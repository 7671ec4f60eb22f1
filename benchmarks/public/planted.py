"""Changes of public scripts: common mistakes with the expected verdict of `samestep diff`, and harmless changes."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Planted:
    """A change of a public script.

    Attributes:
        script: The name of the script in `benchmarks.public.scripts`.
        name: A description of the change.
        old: The text in the source.
        new: The text that replaces it.
        expected: The mistake that `samestep diff` should name; "" if it only locates it.
        is_wrong: Whether the changed script takes different steps.
        file: The file to change, if it is not the script.
    """

    script: str
    name: str
    old: str
    new: str
    expected: str = ""
    is_wrong: bool = True
    file: str = ""


_LANGUAGE = "examples/word_language_model/main.py Transformer"
_LSTM = "examples/word_language_model/main.py"
_FORWARD = "examples/mnist_forward_forward/main.py"
_SEQUENCE = "examples/time_sequence_prediction/train.py"
_GAT, _GCN = "examples/gat/main.py", "examples/gcn/main.py"
_VIT = "examples/vision_transformer/main.py"
_DENSE = "efficient_densenet_pytorch/demo.py"
_WEATHER = "keras/examples/keras_io/timeseries/timeseries_weather_forecasting.py"
_REVIEWS = "keras/examples/keras_io/tensorflow/nlp/text_classification_from_scratch.py"
_TARGET = "target = source[i+1:i+1+seq_len].view(-1)"
_LOSS = "loss = criterion(output, targets)\n        loss.b"
_WHOLE = "criterion(output[mask_train], target[mask_train])"
_FLIPPED = "criterion(output[mask_train.flip(0)], target[mask_train.flip(0)])"

PLANTED = (
    Planted(_LANGUAGE, "targets are not shifted", _TARGET, "target = source[i:i+seq_len].view(-1)", "targets_differ"),
    Planted(_LANGUAGE, "evaluation mode", "    model.train()\n", "    model.eval()\n", "evaluation_mode"),
    Planted(
        _LANGUAGE,
        "zero_grad is forgotten",
        "            model.zero_grad()\n",
        "            pass\n",
        "gradients_not_cleared",
    ),
    Planted(
        _LANGUAGE,
        "the loss as a sum, divided",
        _LOSS,
        "loss = torch.nn.functional.nll_loss(output, targets, reduction='sum') / len(targets)\n        loss.b",
        is_wrong=False,
    ),
    Planted(
        _LSTM,
        "the state is not carried over",
        "hidden = repackage_hidden(hidden)\n            output, h",
        "hidden = model.init_hidden(args.batch_size)\n            output, h",
        "other_loss",
    ),
    Planted(_LSTM, "the rate is divided by the targets", "alpha=-lr)", "alpha=-lr / len(targets))", "update_times"),
    Planted(_LSTM, "updates by sub_", "p.data.add_(p.grad, alpha=-lr)", "p.data.sub_(lr * p.grad)", is_wrong=False),
    Planted(_FORWARD, "zero_grad is forgotten", "            self.opt.zero_grad()\n", "", "gradients_not_cleared"),
    Planted(
        _FORWARD,
        "negative labels are the true ones",
        "overlay_y_on_x(x, y_neg)",
        "overlay_y_on_x(x, y)",
        "targets_differ",
    ),
    Planted(_FORWARD, "foreach", "lr=args.lr)", "lr=args.lr, foreach=True)", is_wrong=False),
    Planted(_SEQUENCE, "targets are not shifted", "(data[3:, 1:])", "(data[3:, :-1])", "targets_differ"),
    Planted(_SEQUENCE, "zero_grad is forgotten", "            optimizer.zero_grad()\n", "", "kept_between_calls"),
    Planted(_SEQUENCE, "the loss by hand", "criterion(out, target)", "((out - target) ** 2).mean()", is_wrong=False),
    Planted(_GAT, "model.train() is forgotten", "    model.train()\n", "", "evaluation_mode"),
    Planted(_GAT, "zero_grad is forgotten", "    optimizer.zero_grad()\n", "", "gradients_not_cleared"),
    Planted(_GAT, "trained on all nodes", _WHOLE, "criterion(output, target)", "other_loss"),
    Planted(_GAT, "nodes in another order", _WHOLE, _FLIPPED, is_wrong=False),
    Planted(_GCN, "model.train() is forgotten", "    model.train()\n", "", "evaluation_mode"),
    Planted(_GCN, "decay apart", "optimizer = Adam(", "optimizer = torch.optim.AdamW(", "other_hyperparameter"),
    Planted(_GCN, "trained on all nodes", _WHOLE, "criterion(output, target)", "other_loss"),
    Planted(_GCN, "nodes in another order", _WHOLE, _FLIPPED, is_wrong=False),
    Planted(
        _VIT,
        "labels of the neighbour",
        "(logits, labels)\n            loss.b",
        "(logits, labels.roll(1))\n            loss.b",
        "targets_differ",
    ),
    Planted(
        _VIT,
        "a step is taken twice",
        "            self.optimizer.step()\n",
        "            self.optimizer.step()\n" * 2,
        "updated_again",
    ),
    Planted(
        _VIT, "fused", "weight_decay=args.weight_decay)", "weight_decay=args.weight_decay, fused=True)", is_wrong=False
    ),
    Planted(_DENSE, "no Nesterov momentum", "nesterov=True", "nesterov=False", "other_hyperparameter"),
    Planted(
        _DENSE, "model.train() is forgotten", "    # Model on train mode\n    model.train()\n", "", "evaluation_mode"
    ),
    Planted(
        _DENSE,
        "checkpointing, which moves statistics twice",
        "        efficient=efficient,\n",
        "        efficient=True,\n",
        "other_statistics",
    ),
    Planted(_DENSE, "foreach", "nesterov=True", "nesterov=True, foreach=True", is_wrong=False),
    Planted(
        _WEATHER, "targets of a step earlier", "iloc[start:end][[1]]", "iloc[start - 1:end - 1][[1]]", "other_loss"
    ),
    Planted(_WEATHER, "mean absolute error", 'loss="mse"', 'loss="mae"', "other_loss"),
    Planted(_WEATHER, "run eagerly", 'loss="mse"', 'loss="mse", run_eagerly=True', is_wrong=False),
    Planted(_REVIEWS, "trained on the validation set", "model.fit(train_ds, ", "model.fit(val_ds, "),
    Planted(_REVIEWS, "run eagerly", "model.compile(", "model.compile(run_eagerly=True, ", is_wrong=False),
)
