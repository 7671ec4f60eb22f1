"""Writes small stand-ins for data sets where public scripts look for them; numbers and words are random but reproducible."""

import functools
import gzip
import json
import pickle
import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.public.downloads import write_cora, write_downloads

_LINE = "the of a to in that it was for with as his on be at by from this had not but what all were when we there can"
_WORDS = _LINE.split()


def text(num_words: int = 6000, seed: int = 0) -> str:
    """Returns lines of meaningless words."""
    chosen = random.Random(seed)
    lines = [" ".join(chosen.choice(_WORDS) for _ in range(12)) for _ in range(num_words // 12)]
    return "\n".join(lines) + "\n"


def _mnist(root: Path, train: int = 640, test: int = 128) -> None:
    """Writes the files of MNIST in the layout of torchvision."""
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(0)
    for name, count in (("train", train), ("t10k", test)):
        images = drawn.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = drawn.integers(0, 10, count, dtype=np.uint8)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 2051, count, 28, 28) + images.tobytes())
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def _complete_mnist(root: Path) -> None:
    """Writes MNIST in the layout of Lightning with PL_USE_MOCKED_MNIST."""
    import torch

    folder = root / "MNIST" / "complete"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = torch.Generator().manual_seed(0)
    for name, count in (("training", 60000), ("test", 128)):
        images = torch.randint(256, (count, 28, 28), generator=drawn, dtype=torch.uint8)
        torch.save((images, torch.randint(10, (count,), generator=drawn)), folder / f"{name}.pt")


def _texts(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(("train", "valid", "test")):
        (folder / f"{name}.txt").write_text(text(6000 if name == "train" else 1200, seed))


def _words(path: Path, count: int = 20000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(count))


def _sines(path: Path) -> None:
    import torch

    shifts = np.random.default_rng(0).integers(-80, 80, (12, 1))
    torch.save(np.sin((np.arange(120) + shifts) / 20.0), path)


def _names(path: Path) -> None:
    chosen = random.Random(0)
    names = {"".join(chosen.choice("aeioulmnrst") for _ in range(chosen.randint(3, 8))) for _ in range(1500)}
    path.write_text("\n".join(sorted(names)) + "\n")


def _cifar(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(0)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        labels = drawn.integers(0, 10, 128).tolist()
        images = drawn.integers(0, 256, (128, 3072), dtype=np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": images, "labels": labels, "fine_labels": labels}))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [str(n) for n in range(10)]}))


def _photographs(root: Path) -> None:
    """Writes the folders of BSD300."""
    from PIL import Image

    drawn = np.random.default_rng(0)
    for part in ("train", "test"):
        folder = root / "BSDS300" / "images" / part
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(8):
            Image.fromarray(drawn.integers(0, 256, (321, 481, 3), dtype=np.uint8)).save(folder / f"{number}.jpg")


def _planetoid(root: Path) -> None:
    """Writes a graph of 900 nodes in the files of Cora, which are pickles."""
    from scipy.sparse import csr_matrix

    folder = root / "Cora" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(0)
    features = (drawn.random((900, 30)) < 0.2).astype(np.float32)
    labels = np.eye(7, dtype=np.int32)[drawn.integers(0, 7, 900)]
    parts = {"x": features[:70], "allx": features[:700], "tx": features[700:]}
    parts = {name: csr_matrix(values) for name, values in parts.items()}
    parts |= {"y": labels[:70], "ally": labels[:700], "ty": labels[700:]}
    parts |= {"graph": {node: drawn.integers(0, 900, 4).tolist() for node in range(900)}}
    for name, values in parts.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(values))
    (folder / "ind.cora.test.index").write_text("\n".join(map(str, range(700, 900))) + "\n")


def _enwik8(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    content = (text(12, 1) * 20000).encode()
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write((content * (100_000_000 // len(content) + 1))[:96_000_000])


def _alpaca(path: Path) -> None:
    words = text(1200).split("\n")[:64]
    rows = [{"instruction": line, "input": "", "output": line[: 8 + 3 * (n % 9)]} for n, line in enumerate(words)]
    path.write_text(json.dumps(rows))


def _pairs_of_sentences(folder: Path) -> None:
    """Writes MRPC in the layout of accelerate's samples."""
    lines = text(3000).split("\n")
    for name in ("train", "dev"):
        kinds = (f"{'not_' * (n % 3 == 0)}equivalent,{lines[2 * n]},{lines[2 * n + 1]}" for n in range(96))
        (folder / f"{name}.csv").write_text("\n".join(["label,sentence1,sentence2", *kinds]) + "\n")


def _glue(folder: Path) -> None:
    """Writes MRPC as a folder that the library `datasets` reads instead of downloading it."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = text(3000).split("\n")
    parts = ("train", "validation", "test")
    listed = "".join(f"  - split: {name}\n    path: {name}.csv\n" for name in parts)
    (folder / "README.md").write_text(f"---\nconfigs:\n- config_name: mrpc\n  data_files:\n{listed}---\n")
    for name in parts:
        rows = (f"{lines[2 * n]},{lines[2 * n + 1]},{n % 3 % 2},{n}" for n in range(96))
        (folder / f"{name}.csv").write_text("\n".join(["sentence1,sentence2,label,idx", *rows]) + "\n")


def _keras(folder: Path) -> None:
    """Writes images, reviews and houses in the layout of keras.datasets."""
    folder.mkdir(parents=True, exist_ok=True)
    write_downloads(folder, text(12 * 400))
    drawn = np.random.default_rng(0)
    sizes = {"train": 60000, "test": 10000}  # guides rely on these numbers
    images = {f"x_{name}": drawn.integers(0, 256, (count, 28, 28), dtype=np.uint8) for name, count in sizes.items()}
    labels = {f"y_{name}": drawn.integers(0, 10, count, dtype=np.uint8) for name, count in sizes.items()}
    np.savez(folder / "mnist.npz", **images, **labels)
    sizes = {"train": 640, "test": 128}
    reviews = {f"x_{name}": _reviews(drawn, count) for name, count in sizes.items()}
    labels = {f"y_{name}": drawn.integers(0, 2, count) for name, count in sizes.items()}
    np.savez(folder / "imdb.npz", **reviews, **labels)
    houses = {"x": drawn.random((506, 13)), "y": drawn.random(506) * 50}
    np.savez(folder / "boston_housing.npz", **houses)
    (folder / "fashion-mnist").mkdir(exist_ok=True)
    images = {name: each[: sizes[name.removeprefix("x_")]] for name, each in images.items()}
    for name, split in (("train", "train"), ("t10k", "test")):
        head = struct.pack(">IIII", 2051, sizes[split], 28, 28)
        with gzip.open(folder / "fashion-mnist" / f"{name}-images-idx3-ubyte.gz", "wb") as file:
            file.write(head + images[f"x_{split}"].tobytes())
        with gzip.open(folder / "fashion-mnist" / f"{name}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(head[:8] + drawn.integers(0, 10, sizes[split], dtype=np.uint8).tobytes())


def _reviews(drawn: np.random.Generator, count: int) -> np.ndarray:
    reviews = np.empty(count, dtype=object)
    for number in range(count):
        reviews[number] = drawn.integers(1, 2000, drawn.integers(20, 80)).tolist()
    return reviews


def _bert(home: Path) -> None:
    """Writes a tiny BERT under the name that scripts request from the hub, and the metric of GLUE."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    home.mkdir(exist_ok=True)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_WORDS]
    BertTokenizerFast(vocab={name: n for n, name in enumerate(names)}, model_max_length=32).save_pretrained(home)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    BertForSequenceClassification(BertConfig(vocab_size=64, **sizes, **dropout)).save_pretrained(home)
    metric = home.parent / "glue"
    metric.mkdir(exist_ok=True)
    (metric / "glue.py").write_text(_METRIC)


def _gpt2(home: Path) -> None:
    """Writes a tiny GPT-2 and its tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    names = ["<unk>", "<pad>", "</s>", "<s>", *_WORDS]
    tokenizer = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>", "bos_token": "<s>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(home)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(names),
        n_positions=128,
        n_embd=32,
        n_layer=2,
        n_head=2,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    GPT2LMHeadModel(config).save_pretrained(home)


_METRIC = """import datasets
import evaluate


class Glue(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(p == r for p, r in zip(predictions, references)) / len(references)}
"""


MAKERS: dict[str, Callable[[Path], None]] = {
    "mnist": _mnist,
    "complete": _complete_mnist,
    "cifar": _cifar,
    "cora": write_cora,
    "photographs": _photographs,
    "planetoid": _planetoid,
    "texts": _texts,
    "words": _words,
    "story": functools.partial(_words, count=200_000),
    "names": _names,
    "sines": _sines,
    "enwik8": _enwik8,
    "alpaca": _alpaca,
    "mrpc": _pairs_of_sentences,
    "pairs": _glue,
    "bert": _bert,
    "gpt2": _gpt2,
    "keras": _keras,
}
"""Name -> the function that writes the files, given their folder."""
