"""The public scripts of PyTorch that are tried, and how each is started."""

from benchmarks.public.of_torch_examples import EXAMPLES
from benchmarks.public.sources import PublicScript

_GAN, _RL = "eriklindernoren/PyTorch-GAN", "vwxyzjn/cleanrl"
_BASICS, _TUTORIAL, _NLP = "jcjohnson/pytorch-examples", "yunjey/pytorch-tutorial", "graykode/nlp-tutorial"
_ACCELERATE, _LIGHTNING, _GRAPHS = (
    "huggingface/accelerate",
    "Lightning-AI/pytorch-lightning",
    "pyg-team/pytorch_geometric",
)
_MORVAN, _CONTENTS = "MorvanZhou/PyTorch-Tutorial", "tutorial-contents"
_NANO = (
    "config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=2 --eval_interval=8 --block_size=32 "
    "--n_layer=2 --n_head=2 --n_embd=64 --max_iters=8 --lr_decay_iters=8 --dropout=0.0"
)
_SHAKESPEARE = {
    "data": ("words data/shakespeare_char/input.txt",),
    "before": ("python data/shakespeare_char/prepare.py",),
}
_ALPACA = (
    "--model_name_or_path tiny --data_path alpaca.json --output_dir out --max_steps 4 --save_strategy no --use_cpu "
    "--report_to none"
)
_BACKBONE = "--trainer.accelerator=cpu --trainer.max_epochs=1 --trainer.limit_train_batches=4"
_MOCKED = {"TESTING_MOCKED_DATALOADERS": "1"}

TORCH = (
    *EXAMPLES,
    PublicScript(_BASICS, "autograd", "two_layer_net_autograd.py"),
    PublicScript(_BASICS, "autograd", "two_layer_net_custom_function.py"),
    PublicScript(_BASICS, "nn", "two_layer_net_nn.py"),
    PublicScript(_BASICS, "nn", "two_layer_net_optim.py"),
    PublicScript(_BASICS, "nn", "dynamic_net.py"),
    PublicScript(_TUTORIAL, "tutorials/01-basics/linear_regression", "main.py"),
    PublicScript(_TUTORIAL, "tutorials/01-basics/logistic_regression", "main.py", data=("mnist ../../data",)),
    PublicScript(
        _TUTORIAL,
        "tutorials/02-intermediate/deep_residual_network",
        "main.py",
        data=("cifar ../../data",),
        stop_after=3,
    ),
    PublicScript(
        _TUTORIAL,
        "tutorials/02-intermediate/bidirectional_recurrent_neural_network",
        "main.py",
        data=("mnist ../../data",),
    ),
    PublicScript(
        _TUTORIAL, "tutorials/02-intermediate/language_model", "main.py", data=("words data/train.txt",), stop_after=2
    ),
    PublicScript(
        _TUTORIAL, "tutorials/03-advanced/generative_adversarial_network", "main.py", data=("mnist ../../data",)
    ),
    PublicScript(_TUTORIAL, "tutorials/03-advanced/variational_autoencoder", "main.py", data=("mnist ../../data",)),
    *(
        PublicScript(_NLP, folder, f"{folder[4:]}.py")
        for folder in ("1-1.NNLM", "2-1.TextCNN", "3-1.TextRNN", "4-1.Seq2Seq")
    ),
    PublicScript(_NLP, "1-2.Word2Vec", "Word2Vec-Skipgram(Softmax).py"),
    PublicScript(_NLP, "5-1.Transformer", "Transformer.py", stop_after=3),
    PublicScript(_NLP, "5-2.BERT", "BERT.py", stop_after=2),
    PublicScript(
        "karpathy/nanoGPT",
        ".",
        "train.py",
        f"{_NANO} --batch_size=8 --gradient_accumulation_steps=1 --dtype=float32",
        **_SHAKESPEARE,
    ),
    PublicScript(
        "karpathy/nanoGPT",
        ".",
        "train.py",
        f"{_NANO} --batch_size=4 --gradient_accumulation_steps=4 --dtype=bfloat16",
        **_SHAKESPEARE,
    ),
    PublicScript(
        "karpathy/makemore",
        ".",
        "makemore.py",
        "-i names.txt --max-steps 8 --n-layer 2 --n-embd 32 --n-embd2 32 -n 0",
        data=("names names.txt",),
    ),
    PublicScript("karpathy/minGPT", ".", "projects/adder/adder.py", "--trainer.device=cpu --trainer.num_workers=0"),
    PublicScript(
        "karpathy/minGPT",
        ".",
        "projects/chargpt/chargpt.py",
        "--trainer.device=cpu --trainer.num_workers=0 --trainer.batch_size=8 --model.model_type=gpt-nano",
        data=("words input.txt",),
        before=("python -c \"open('input.txt', 'a').write('O God, O God!')\"",),
        stop_after=3,
    ),
    PublicScript("karpathy/ng-video-lecture", ".", "bigram.py"),
    *(
        PublicScript(_MORVAN, _CONTENTS, file)
        for file in (
            "301_regression.py",
            "302_classification.py",
            "304_save_reload.py",
            "306_optimizer.py",
            "403_RNN_regressor.py",
            "406_GAN.py",
            "501_why_torch_dynamic_graph.py",
            "503_dropout.py",
            "504_batch_normalization.py",
        )
    ),
    PublicScript(
        "tatsu-lab/stanford_alpaca",
        ".",
        "train.py",
        f"{_ALPACA} --per_device_train_batch_size 8",
        f"{_ALPACA} --per_device_train_batch_size 4",
        data=("gpt2 tiny", "alpaca alpaca.json"),
    ),
    *(
        PublicScript(
            _ACCELERATE,
            ".",
            f"examples/{file}",
            f"--cpu {one}",
            two,
            data=("bert bert-base-cased", "mrpc tests/test_samples/MRPC"),
            environment=_MOCKED,
        )
        for file, one, two in (
            ("by_feature/gradient_accumulation.py", "--gradient_accumulation_steps 2", "--cpu"),
            ("by_feature/automatic_gradient_accumulation.py", "", ""),
            ("by_feature/local_sgd.py", "", ""),
            ("by_feature/memory.py", "", ""),
            ("by_feature/multi_process_metrics.py", "", ""),
            ("by_feature/profiler.py", "", ""),
            ("by_feature/ddp_comm_hook.py", "", ""),
        )
    ),
    *(
        PublicScript(
            _ACCELERATE,
            ".",
            f"examples/{file}",
            "--cpu",
            data=("bert bert-base-cased", "pairs nyu-mll/glue"),
        )
        for file in ("nlp_example.py", "by_feature/checkpointing.py", "by_feature/early_stopping.py")
    ),
    PublicScript(
        _LIGHTNING,
        "examples",
        "fabric/image_classifier/train_fabric.py",
        "--epochs 1 --batch-size 32",
        "LT_CLI_USED=1 LT_ACCELERATOR=cpu LT_STRATEGY=ddp LT_DEVICES=2 --epochs 1 --batch-size 16",
        data=("mnist ../Datasets",),
    ),
    PublicScript(_LIGHTNING, "examples", "pytorch/bug_report/bug_report_model.py", stop_after=0),
    PublicScript(
        _LIGHTNING,
        "examples",
        "pytorch/basics/backbone_image_classifier.py",
        f"{_BACKBONE} --trainer.devices=1 --data.batch_size=8",
        f"{_BACKBONE} --trainer.devices=2 --trainer.strategy=ddp --data.batch_size=4",
        data=("complete Datasets",),
        environment={"PL_USE_MOCKED_MNIST": "1"},
    ),
    PublicScript(
        _LIGHTNING, "examples", "fabric/kfold_cv/train_fabric.py", "--epochs 1 --folds 2", data=("mnist ../Datasets",)
    ),
    PublicScript(
        _LIGHTNING, "examples", "pytorch/basics/transformer.py", data=("story data/wikitext-2.txt",), stop_after=3
    ),
    PublicScript(
        _LIGHTNING, "examples", "fabric/language_model/train.py", data=("story data/wikitext-2.txt",), stop_after=3
    ),
    PublicScript(
        "gpleiss/efficient_densenet_pytorch",
        ".",
        "demo.py",
        "--efficient False --data data --save out --depth 10 --growth_rate 4 --n_epochs 2 --batch_size 8 --valid_size 608",
        data=("cifar data",),
    ),
    *(
        PublicScript(
            _GAN,
            f"implementations/{name}",
            f"{name}.py",
            "--n_epochs 1 --batch_size 16",
            data=("mnist ../../data/mnist",),
        )
        for name in (
            "gan",
            "wgan",
            "wgan_gp",
            "wgan_div",
            "infogan",
            "aae",
            "sgan",
            "lsgan",
            "cgan",
            "acgan",
            "relativistic_gan",
        )
    ),
    PublicScript(_RL, ".", "cleanrl/ppo.py", "--no-cuda --total-timesteps 1024"),
    PublicScript(_RL, ".", "cleanrl/dqn.py", "--no-cuda --total-timesteps 200 --learning-starts 100 --buffer-size 500"),
    PublicScript(
        _RL,
        ".",
        "cleanrl/sac_continuous_action.py",
        "--no-cuda --env-id Pendulum-v1 --total-timesteps 200 --learning-starts 100 --buffer-size 500",
    ),
    PublicScript(
        _RL,
        ".",
        "cleanrl/td3_continuous_action.py",
        "--no-cuda --env-id Pendulum-v1 --total-timesteps 200 --learning-starts 100 --buffer-size 500",
    ),
    PublicScript(
        "lucidrains/x-transformers",
        ".",
        "train_enwik8.py",
        "--num_batches 2 --batch_size 1 --seq_len 64 --cpu",
        data=("enwik8 data/enwik8.gz",),
        stop_after=1,
    ),
    PublicScript(_GRAPHS, "examples", "gcn.py", "--epochs 4", data=("planetoid ../data/Planetoid",)),
    PublicScript(
        _GRAPHS, "examples", "autoencoder.py", "--variational --epochs 4", data=("planetoid ../data/Planetoid",)
    ),
    PublicScript(_GRAPHS, "examples", "gat.py", "--epochs 4", data=("planetoid ../data/Planetoid",)),
)
