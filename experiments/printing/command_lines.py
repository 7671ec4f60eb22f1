"""Commands as lines that can be copied."""

import re

from samestep.experiments.printing.text import screen_width

_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+""")


def wrap_command(line: str, width: int) -> str:
    """Breaks a command before its flags, in a way that a shell reads as one line.

    Args:
        line: The command, with quotes where a shell needs them.
        width: The width in characters; a longer word is not broken.
    """
    lines = [""]
    for word in re.findall(rf"--?[a-z][\w-]*(?: (?!-){_WORD.pattern})?|{_WORD.pattern}", line):
        if lines[-1] and len(lines[-1]) + len(word) + 3 > width:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def again(command: str) -> str:
    """Returns the paragraph with the command that repeats a result; "" without a command."""
    return wrap_command(f"Again: {command}", screen_width()) if command else ""
