"""Dataclasses whose fields are flags: how they are declared, read from text, checked, and spelled."""

import dataclasses
import functools
import math
import re
import typing
from collections.abc import Collection, Iterable, Mapping

from samestep.common.errors import ConfigError, unknown

Scalar = str | int | float | bool | None
FieldValues = dict[str, typing.Any]
"""Values of fields of a dataclass by name, each of its field's type."""
Owner = typing.TypeVar("Owner")
MAX_STEPS = 10**9
"""The most steps of a run, whose result lists the loss of every step and would then take 20 GB."""
MAX_FACTOR = 10**6
"""The largest factor of a gradient: a float32 still holds the product."""


def flag(
    default: Scalar,
    text: str,
    *,
    choices: Collection[Scalar] = (),
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    place: bool = False,
    compared: bool = True,
    in_cell: bool = False,
    changes_step: bool = True,
    elsewhere: Mapping[str, str] | None = None,
) -> typing.Any:  # what dataclasses.field returns has no nameable type
    """Declares a field that is a flag on the command line.

    Args:
        default: Its value unless given; None leaves the choice to the workload or the framework.
        text: The line that `--help` prints.
        choices: The valid values; any, if there are none.
        least: The smallest valid number.
        above: The number that a valid number must exceed.
        most: The largest valid number.
        place: Whether it says only where files go; the command that repeats a run leaves it out.
        compared: Whether a comparison passes it to all its runs.
        in_cell: Whether rows of a comparison may differ in it, so that a cell may set it.
        changes_step: Whether it changes the step itself, and not only how it is computed and rounded.
        elsewhere: Value that belongs to another flag -> the sentence that says so.
    """
    listed = f"one of {', '.join(map(str, choices))}" if choices else ""
    about = {
        "help": ": ".join(filter(None, (listed, text))),
        "choices": tuple(choices),
        "place": place,
        "elsewhere": elsewhere or {},
    }
    bounds = {"least": least, "above": above, "most": most}
    kinds = {"compared": compared, "in_cell": in_cell, "changes_step": changes_step}
    return dataclasses.field(default=default, metadata={**about, **bounds, **kinds})


def flags(owner: type | object) -> dict[str, "dataclasses.Field[Scalar]"]:
    """Returns the fields of a dataclass that are flags, by name."""
    return dict(_flags(owner if isinstance(owner, type) else type(owner)))


@functools.cache
def _flags(owner: type) -> Mapping[str, "dataclasses.Field[Scalar]"]:
    fields = dataclasses.fields(owner)  # pyrefly: ignore
    return {field.name: field for field in fields if "help" in field.metadata}


def spell_flag(name: str) -> str:
    """Returns a field's name as its flag: `batch_size` is `--batch-size`."""
    return "--" + name.replace("_", "-")


def check_fields(values: object) -> None:
    """Refuses values of the wrong type, outside their bounds, or not among their choices.

    Args:
        values: A dataclass instance whose fields were declared with `flag`.

    Raises:
        ConfigError: A value is refused; the message names its flag and what is valid.
    """
    for name in flags(values):
        _check_field(type(values), name, getattr(values, name))


def _check_field(owner: type, name: str, value: object, prefix: str = "--") -> None:
    about, kinds = _flags(owner)[name].metadata, _kinds(owner, name)
    spelled = prefix + spell_flag(name)[2:]
    if value is None and type(None) in kinds:
        return
    if isinstance(value, int) and not isinstance(value, bool) and float in kinds:
        value = float(value) if abs(value) < 2**63 else math.inf
    if type(value) not in kinds:
        raise ConfigError(f"{spelled} is {_quote(value)}; give {_WANTED[kinds[0]]}.")
    if about["choices"] and value not in about["choices"]:
        elsewhere = about["elsewhere"].get(value, "")
        raise unknown(name.replace("_", " "), str(value), map(str, about["choices"]), owner=elsewhere)
    if name in _PATHS and (value == "" or "\0" in str(value)):
        raise ConfigError(f"{spelled} is {'no path' if value else 'empty'}; name a path.")
    if isinstance(value, float) and 0 < abs(value) < LEAST_FLOAT:
        raise ConfigError(f"{spelled} is {value!r}, which is 0 in float32; give at least {LEAST_FLOAT:.3g}.")
    if isinstance(value, int | float) and not (
        about["least"] <= value <= about["most"] and about["above"] < value < math.inf
    ):
        limits = [text.format(about[n]) for n, text in _LIMITS.items() if abs(about[n]) < math.inf]
        limits += [f", at most {about['most']}"] if about["most"] < value < math.inf else []
        raise ConfigError(f"{spelled} is {_quote(value)}; give {_WANTED[kinds[0]]}{''.join(limits)}.")


def _quote(value: object) -> str:
    is_long = isinstance(value, int) and value.bit_length() > _MOST_BITS
    return f"a number of {value.bit_length()} bits" if is_long else repr(value)


LEAST_FLOAT = 2.0**-126
"""The smallest number that float32 holds with all its digits; on many processors a smaller one is 0."""
_LIMITS = {"least": " from {} up", "above": " above {}"}
_MOST_BITS = 1000
"""The most bits of a whole number that a message spells out: Python refuses to spell one of 15,000 bits."""
_PATHS = ("calibrate", "data", "model", "out", "rows", "start_from")
_WANTED: Mapping[type, str] = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}


_hints = functools.cache(typing.get_type_hints)


def _kinds(owner: type, field: str) -> tuple[type, ...]:
    declared = _hints(owner)[field]
    return typing.get_args(declared) or (declared,)


def split_list(text: str, said: str, word: str, example: str, between: str = ",") -> list[str]:
    """Splits a list at its commas, ignoring blanks around them.

    Args:
        text: What the user wrote.
        said: What messages call the list.
        word: What they call a word of it.
        example: A list that is right.
        between: What separates two words, as a regular expression.

    Raises:
        ConfigError: A word is empty.
    """
    if all(words := [each.strip() for each in re.split(between, text)]):
        return words
    raise ConfigError(f"{said} has an empty {word}; write it as in {example}.")


def split_spelling(text: str) -> tuple[str, dict[str, str]]:
    """Splits `name+field=value+field=value` into its name and its fields.

    Raises:
        ConfigError: A part after a `+` is not `field=value`, or a field is given twice.
    """
    name, *parts = text.split("+")
    fields: dict[str, str] = {}
    for part in parts:
        field, equals, value = part.partition("=")
        field = field.replace("-", "_")  # as in the flag of that name
        if not (field and equals and value):
            raise ConfigError(f"'{part}' in '{text}' is not field=value; write it as in {name}+width=128.")
        if field in fields:
            raise ConfigError(f"'{text}' gives '{field}' twice; give each field once.")
        fields[field] = value
    return name, fields


def join_spelling(name: str, fields: Mapping[str, object]) -> str:
    """Inverts `split_spelling`.

    Args:
        name: The name.
        fields: The fields, in order.
    """
    return "+".join([name, *(f"{field}={value}" for field, value in fields.items())])


def read_value(owner: type, field: str, text: str, prefix: str = "--") -> Scalar:
    """Reads a value as the type that a dataclass declares for the field.

    Args:
        owner: A dataclass type; the field may be a str, int, float or bool, and may also allow None.
        field: The name of a field of it.
        text: What the user wrote.
        prefix: The characters before the field's name in the user's spelling, for messages.

    Raises:
        ConfigError: The text is not of that type.
    """
    kind = next(kind for kind in _kinds(owner, field) if kind is not type(None))
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        raise ConfigError(f"{prefix}{spell_flag(field)[2:]} is '{text}'; give {_WANTED[kind]}.") from None


def read_field(owner: type, field: str, text: str, prefix: str = "--") -> Scalar:
    """Reads and checks a value as `read_fields` does; the arguments are those of `read_value`.

    Raises:
        ConfigError: The value is not of its type, outside its bounds, or not among its choices.
    """
    value = read_value(owner, field, text, prefix)
    _check_field(owner, field, value, prefix)
    return value


def read_fields(owner: type[Owner], values: Mapping[str, Scalar]) -> Owner:
    """Makes a dataclass from values; text is read as the types that the dataclass declares.

    Args:
        owner: A dataclass type whose fields were declared with `flag`.
        values: The values by field; those that are missing keep their defaults, those of other dataclasses are ignored.

    Raises:
        ConfigError: A value is not of its type, outside its bounds, or not among its choices.
    """
    own = {name: value for name, value in values.items() if name in flags(owner)}
    read = {name: read_value(owner, name, v) if isinstance(v, str) else v for name, v in own.items()}
    for name, value in read.items():  # first, since an owner's own checks rely on their types
        _check_field(owner, name, value)
    return owner(**read)


def spell_flags(values: object, leave_out: Iterable[str] = ()) -> list[str]:
    """Returns the flags that set the fields of a dataclass, those at their defaults left out.

    Args:
        values: A dataclass instance whose fields were declared with `flag`.
        leave_out: The names of fields to leave out in any case.
    """
    given = []
    for name, field in flags(values).items():
        value = getattr(values, name)
        if name in leave_out or value is None or value == field.default:
            continue
        if isinstance(value, bool):
            given.append(spell_flag(name) if value else f"--no-{spell_flag(name)[2:]}")
        else:
            given += [spell_flag(name), str(value)]
    return given
