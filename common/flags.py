"""Dataclasses whose fields are flags: how they are declared, read from text, checked, and spelled."""

import dataclasses
import functools
import math
import typing
from collections.abc import Collection, Iterable, Mapping

from samestep.common.errors import ConfigError, unknown

Scalar = str | int | float | bool | None
Owner = typing.TypeVar("Owner")


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
) -> typing.Any:  # what dataclasses.field returns has no nameable type
    """Declares a field that is a flag on the command line.

    Args:
        default: Its value unless given; None leaves the choice to the workload or the framework.
        text: The line that `--help` prints.
        choices: The valid values; any, if there are none.
        least: The smallest valid number.
        above: What a valid number exceeds.
        most: The largest valid number.
        place: Whether it says only where files go; the line that repeats a run leaves it out.
        compared: Whether a comparison takes it for all its runs.
    """
    listed = f"one of {', '.join(map(str, choices))}" if choices else ""
    about = {"help": ": ".join(filter(None, (listed, text))), "choices": tuple(choices), "place": place}
    bounds = {"least": least, "above": above, "most": most}
    return dataclasses.field(default=default, metadata={**about, **bounds, "compared": compared})


def flags(owner: type | object) -> dict[str, "dataclasses.Field[Scalar]"]:
    """The fields of a dataclass that are flags, by name."""
    fields = dataclasses.fields(owner)  # pyrefly: ignore
    return {field.name: field for field in fields if "help" in field.metadata}


def spell_flag(name: str) -> str:
    """A field's name as its flag: `batch_size` is `--batch-size`."""
    return "--" + name.replace("_", "-")


def check_fields(values: object) -> None:
    """Refuses values that no run can have: of another type, outside their bounds, not among their choices.

    Args:
        values: A dataclass instance whose fields were declared with `flag`.

    Raises:
        ConfigError: One is; the message names its flag and what is valid.
    """
    for name, field in flags(values).items():
        value = getattr(values, name)
        kinds = _kinds(type(values), name)
        if value is None and type(None) in kinds:
            continue
        if isinstance(value, int) and not isinstance(value, bool) and float in kinds:
            value = float(value) if abs(value) < 2**63 else math.inf
        if type(value) not in kinds:
            raise ConfigError(f"{spell_flag(name)} is {value!r}; give {_WANTED[kinds[0]]}.")
        if field.metadata["choices"] and value not in field.metadata["choices"]:
            raise unknown(name.replace("_", " "), str(value), map(str, field.metadata["choices"]))
        if value == "" and name in _PATHS:
            raise ConfigError(f"{spell_flag(name)} is empty; name a path.")
        if isinstance(value, int | float) and not _is_within(value, field.metadata):
            limits = [text.format(field.metadata[n]) for n, text in _LIMITS.items() if math.isfinite(field.metadata[n])]
            raise ConfigError(f"{spell_flag(name)} is {value}; give {_WANTED[kinds[0]]}{''.join(limits)}.")


def _is_within(value: float, bounds: Mapping[str, float]) -> bool:
    return math.isfinite(value) and bounds["least"] <= value <= bounds["most"] and value > bounds["above"]


_LIMITS = {"least": " from {:g} up", "above": " above {:g}", "most": ", at most {:g}"}
_PATHS = ("out", "data", "start_from")
_WANTED: Mapping[type, str] = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text"}


_hints = functools.cache(typing.get_type_hints)


def _kinds(owner: type, field: str) -> tuple[type, ...]:
    declared = _hints(owner)[field]
    return typing.get_args(declared) or (declared,)


def split_spelling(text: str) -> tuple[str, dict[str, str]]:
    """Splits `name+field=value+field=value` into its name and its fields.

    Raises:
        ConfigError: A part after a `+` is not `field=value`, or a field is given twice.
    """
    name, *parts = text.split("+")
    fields: dict[str, str] = {}
    for part in parts:
        field, equals, value = part.partition("=")
        if not (field and equals and value):
            raise ConfigError(f"'{part}' in '{text}' is not field=value; write it as in {name}+width=128.")
        if field in fields:
            raise ConfigError(f"'{text}' gives '{field}' twice; give each field once.")
        fields[field] = value
    return name, fields


def read_value(owner: type, field: str, text: str) -> Scalar:
    """Reads a value as the type that a dataclass declares for the field.

    Args:
        owner: A dataclass type; the field may be str, int, float or bool, or one of them or None.
        field: A field of it.
        text: What the user wrote.

    Raises:
        ConfigError: The text is not of that type.
    """
    kind = next(kind for kind in _kinds(owner, field) if kind is not type(None))
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text)
    except (ValueError, KeyError):
        raise ConfigError(f"{spell_flag(field)} is '{text}'; give {_WANTED[kind]}.") from None


def read_fields(owner: type[Owner], values: Mapping[str, Scalar]) -> Owner:
    """Makes a dataclass of values, text among them read as the types that the dataclass declares.

    Args:
        owner: A dataclass type whose fields were declared with `flag`.
        values: By field; those that are missing keep their defaults, those of other dataclasses are ignored.

    Raises:
        ConfigError: A value is not of its type, outside its bounds, or not among its choices.
    """
    own = {name: value for name, value in values.items() if name in flags(owner)}
    read = owner(**{name: read_value(owner, name, v) if isinstance(v, str) else v for name, v in own.items()})
    check_fields(read)
    return read


def spell_flags(values: object, leave_out: Iterable[str] = ()) -> list[str]:
    """The flags that set the fields of a dataclass, those at their defaults left out."""
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
