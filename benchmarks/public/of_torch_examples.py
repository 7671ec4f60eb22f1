"""The scripts of pytorch/examples that are tried, and how each is started."""

from benchmarks.public.sources import PublicScript

_EXAMPLES = "pytorch/examples"
_WORDS = "--epochs 1 --emsize 32 --nhid 32 --nlayers 1 --bptt 12"

EXAMPLES = (
    PublicScript(_EXAMPLES, "mnist", "main.py", "--epochs 1 --no-accel", data=("mnist ../data",)),
    PublicScript(_EXAMPLES, "vae", "main.py", "--epochs 1 --no-accel", data=("mnist ../data",)),
    PublicScript(
        _EXAMPLES,
        "dcgan",
        "main.py",
        "--dataset fake --niter 1 --manualSeed 3 --ngf 8 --ndf 8 --workers 0 --batchSize 8",
    ),
    PublicScript(_EXAMPLES, "mnist_rnn", "main.py", "--epochs 1", data=("mnist ../data",)),
    PublicScript(
        _EXAMPLES,
        "mnist_forward_forward",
        "main.py",
        "--epochs 3 --no_accel --train_size 128 --test_size 64",
        data=("mnist data",),
    ),
    PublicScript(_EXAMPLES, "regression", "main.py", stop_after=20),
    PublicScript(
        _EXAMPLES,
        "siamese_network",
        "main.py",
        "--epochs 1 --no-accel --batch-size 8",
        data=("mnist ../data",),
        stop_after=3,
    ),
    PublicScript(_EXAMPLES, "word_language_model", "main.py", _WORDS, data=("texts data/wikitext-2",)),
    PublicScript(
        _EXAMPLES,
        "word_language_model",
        "main.py",
        f"{_WORDS} --model Transformer --nhead 2",
        data=("texts data/wikitext-2",),
    ),
    PublicScript(
        _EXAMPLES,
        "word_language_model",
        "main.py",
        f"{_WORDS} --use-optimizer --lr 0.001",
        data=("texts data/wikitext-2",),
    ),
    PublicScript(
        _EXAMPLES,
        "time_sequence_prediction",
        "train.py",
        "--steps 2",
        data=("sines traindata.pt",),
        environment={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
        stop_after=0,
    ),
    *(
        PublicScript(
            _EXAMPLES,
            folder,
            "main.py",
            f"--epochs 6 --no-accel --val-every 1 --hidden-dim 8 {heads}",
            data=("cora .",),
        )
        for folder, heads in (("gat", "--num-heads 2"), ("gcn", ""))
    ),
    PublicScript(
        _EXAMPLES,
        "vision_transformer",
        "main.py",
        "--epochs 1 --no-cuda --latent-size 32 --num-heads 4 --num-encoders 2 --img-size 32 --patch-size 8 --batch-size 8",
        data=("cifar dataset",),
    ),
    PublicScript(_EXAMPLES, "reinforcement_learning", "reinforce.py"),
    PublicScript(_EXAMPLES, "reinforcement_learning", "actor_critic.py"),
    PublicScript(
        _EXAMPLES, "imagenet", "main.py", "--dummy -a resnet18 --epochs 1 -b 4 -j 0 -p 1 --no-accel", stop_after=2
    ),
    PublicScript(
        _EXAMPLES,
        "super_resolution",
        "main.py",
        "--upscale_factor 2 --nEpochs 1",
        data=("photographs dataset",),
        stop_after=3,
    ),
)
