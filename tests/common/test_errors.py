import pytest

from samestep.common.catalog import catalogue
from samestep.common.errors import (
    ERRORS,
    MOST_CHARACTERS,
    ConfigError,
    Diverged,
    ParityFailed,
    Refused,
    Unavailable,
    WorkerFailed,
    unknown,
)

STRATEGIES = ("single", "ddp", "mirrored")


def test_every_error_has_the_exit_code_that_scripts_rely_on():
    codes = {error: error.exit_code for error in ERRORS.values()}
    assert codes == {ConfigError: 2, Refused: 2, Unavailable: 3, ParityFailed: 4, WorkerFailed: 1, Diverged: 1}


def test_an_error_is_found_again_by_its_class_name():
    assert all(name == error.__name__ for name, error in ERRORS.items())


def test_only_a_wrong_request_is_a_value_error():
    assert {error for error in ERRORS.values() if issubclass(error, ValueError)} == {
        ConfigError,
        Refused,
    }
    assert {error for error in ERRORS.values() if issubclass(error, RuntimeError)} == set(ERRORS.values()) - {
        ConfigError,
        Refused,
    }


def test_an_unknown_name_is_answered_with_the_nearest_and_the_whole_list():
    error = unknown("strategy", "mirorred", STRATEGIES)
    assert isinstance(error, ConfigError)
    assert str(error) == "unknown strategy 'mirorred'. Did you mean 'mirrored'? Choose from: single, ddp, mirrored."


TORCH = [info.name for framework, info in catalogue() if framework == "torch"]
TF = [info.name for framework, info in catalogue() if framework == "tf"]
FLAGS = [
    "--strategies",
    "--devices",
    "--batch-size",
    "--steps",
    "--warmup-steps",
    "--seed",
    "--repeats",
    "--learning-rate",
]


@pytest.mark.parametrize(
    ("choices", "misspelled"),
    [
        (TORCH, {"dpp": "dp", "dddp": "ddp", "ddpp": "ddp", "ppp": "pp", "tpp": "tp", "eep": "ep", "cpp": "cp"}),
        (TORCH, {"fdsp": "fsdp", "fsddp": "fsdp", "sfdp": "fsdp", "zero": "zero1", "zer2": "zero2", "c10": "c10d"}),
        (
            TORCH,
            {
                "hybrd": "hybrid",
                "deepsped": "deepspeed",
                "sngle": "single",
                "rpc_paramter_server": "rpc_parameter_server",
            },
        ),
        (
            TF,
            {
                "mirrord": "mirrored",
                "mirorred": "mirrored",
                "contxt": "context",
                "expertt": "expert",
                "dtesnor": "dtensor",
            },
        ),
        (FLAGS, {"--devics": "--devices", "--stepps": "--steps", "--sedd": "--seed", "--batchsize": "--batch-size"}),
        (FLAGS, {"--strategy": "--strategies", "--repeat": "--repeats", "--learing-rate": "--learning-rate"}),
    ],
)
def test_a_slip_of_the_hand_is_answered_with_the_word_that_was_meant(
    choices: list[str], misspelled: dict[str, str]
) -> None:
    """A letter that is doubled, missing, one too many, or swapped with its neighbour."""
    errors = {word: str(unknown("word", word, choices)) for word in misspelled}
    assert {word: error.split("Did you mean '")[1].split("'?")[0] for word, error in errors.items()} == misspelled


def test_a_word_of_a_name_means_that_name_and_no_other_one_that_looks_like_it():
    said = str(unknown("option", "--rate", ["--trace", "--learning-rate", "--batch-size", "--vector-rate"]))
    assert "Did you mean '--learning-rate' or '--vector-rate'?" in said


def test_no_nearest_name_is_invented_where_nothing_is_near():
    assert str(unknown("strategy", "zzz", STRATEGIES)) == "unknown strategy 'zzz'. Choose from: single, ddp, mirrored."


@pytest.mark.parametrize(
    ("word", "choices"),
    [
        ("nope", ("demo", "run", "compare", "diff")),
        ("--verbose", ("--zero-stage", "--workload")),
        ("--frobnicate", ("--microbatches", "--threads")),
        ("--gpu", ("--tpu", "--seed")),
        ("resnet", ("prose-gpt", "digits-mlp")),
        ("price", ("devices", "nodes")),
        ("tokens", ("top_k", "heads")),
    ],
)
def test_a_name_that_is_far_away_is_not_guessed(word: str, choices: tuple[str, ...]) -> None:
    assert "Did you mean" not in str(unknown("word", word, choices))


def test_the_beginning_of_a_name_is_near() -> None:
    assert "Did you mean 'checkpoints'?" in str(unknown("command", "check", ("compare", "checkpoints")))
    assert "Did you mean 'port'?" in str(unknown("command", "porting", ("report", "port")))


def test_a_hint_stands_before_the_choices():
    message = str(unknown("tf strategy", "ddp", ("single",), "It is a strategy of torch."))
    assert message == "unknown tf strategy 'ddp'. It is a strategy of torch. Choose from: single."


def test_a_name_that_somebody_else_has_is_no_misspelling():
    assert str(unknown("strategy", "mirrord", STRATEGIES, owner="It is one of tf.")) == (
        "unknown strategy 'mirrord'. It is one of tf. Choose from: single, ddp, mirrored."
    )


def test_choices_may_come_from_a_generator():
    assert str(unknown("axis", "dta", (name for name in ("data", "pipe")))).endswith(
        "Did you mean 'data'? Choose from: data, pipe."
    )


@pytest.mark.parametrize("kind", [ConfigError, Unavailable])
def test_a_refusal_is_one_short_line_whatever_it_quotes(kind):
    for value in ("x" * 100_000, "x " * 50_000, "\n\r\x1b[31m\u2028\udcff" * 1000):
        line = str(kind(f"--out {value} is too long; name another."))
        assert line.startswith("--out ") and line.endswith("; name another.")
        assert len(line) <= MOST_CHARACTERS
        assert line.isprintable()


def test_a_refusal_that_is_short_is_left_as_it_is():
    line = f"--out {'x' * 290} länge is kept; name another."
    assert str(ConfigError(line)) == line


def test_a_long_word_keeps_its_ends():
    assert str(ConfigError(f"--out {'a' * 400}z is long.")) == f"--out {'a' * 60}...{'a' * 19}z is long."
    assert str(ConfigError(str(ConfigError("y" * 9999)))) == str(ConfigError("y" * 9999))
