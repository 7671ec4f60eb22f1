"""How tests ask for the models of `torch_zoo.py`."""

from pathlib import Path

ZOO = Path(__file__).with_name("torch_zoo.py")
DATA = {
    "DROPOUT": "points",
    "FUNCTIONAL_DROPOUT": "points",
    "GPT": "tokens",
    "SPLIT_GPT": "tokens",
    "LSTM": "tokens",
    "RESNET": "images",
    "REGRESSION": "points",
    "HUBER": "points",
    "ADAM": "points",
    "FACTORED": "points",
    "KERAS_OPTIMIZER": "points",
    "MASKED": "sentences",
    "WITHIN": "points",
}


def own(model: str) -> dict[str, str]:
    return {"model": f"{ZOO}:{model}", "data": f"{ZOO}:{DATA.get(model, 'tokens')}"}
