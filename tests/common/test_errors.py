from samestep.common.errors import ERRORS, ConfigError, Diverged, ParityFailed, Unavailable, WorkerFailed, unknown

STRATEGIES = ("single", "ddp", "mirrored")


def test_every_error_has_the_exit_code_that_scripts_rely_on():
    codes = {error: error.exit_code for error in ERRORS.values()}
    assert codes == {ConfigError: 2, Unavailable: 3, ParityFailed: 4, WorkerFailed: 1, Diverged: 1}


def test_an_error_is_found_again_by_its_class_name():
    assert all(name == error.__name__ for name, error in ERRORS.items())


def test_only_a_wrong_request_is_a_value_error():
    assert {error for error in ERRORS.values() if issubclass(error, ValueError)} == {ConfigError}
    assert {error for error in ERRORS.values() if issubclass(error, RuntimeError)} == set(ERRORS.values()) - {
        ConfigError
    }


def test_an_unknown_name_is_answered_with_the_nearest_and_the_whole_list():
    error = unknown("strategy", "mirorred", STRATEGIES)
    assert isinstance(error, ConfigError)
    assert str(error) == "unknown strategy 'mirorred'. Did you mean 'mirrored'? Choose from: single, ddp, mirrored."


def test_no_nearest_name_is_invented_where_nothing_is_near():
    assert str(unknown("strategy", "zzz", STRATEGIES)) == "unknown strategy 'zzz'. Choose from: single, ddp, mirrored."


def test_a_hint_stands_before_the_choices():
    message = str(unknown("tf strategy", "ddp", ("single",), "It is a strategy of torch."))
    assert message == "unknown tf strategy 'ddp'. It is a strategy of torch. Choose from: single."


def test_choices_may_come_from_a_generator():
    assert str(unknown("axis", "dta", (name for name in ("data", "pipe")))).endswith(
        "Did you mean 'data'? Choose from: data, pipe."
    )
