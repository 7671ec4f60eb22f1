"""Completion for shells: `samestep --completion bash` prints a script, made from the help of every command."""

import contextlib
import importlib
import io
import re

from samestep.common.catalog import catalogue
from samestep.common.errors import unknown
from samestep.experiments.cli.commands import COMMANDS

_TAKE_CELLS = ("run", "compare", "predict", "strategies", "advise", "explore")
"""The commands whose words may be rows."""
_BASH = """# In ~/.bashrc: eval "$(samestep --completion bash)"
_samestep() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"; else
        case ${{COMP_WORDS[1]}} in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    [[ ${{#COMPREPLY[@]}} -gt 0 || $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
}}
COMP_WORDBREAKS=${{COMP_WORDBREAKS//:}}
complete -o filenames -F _samestep samestep
"""
_ZSH = """# In ~/.zshrc: eval "$(samestep --completion zsh)"
autoload -Uz compinit bashcompinit && compinit && bashcompinit
"""
PLACEHOLDER = "--flag"
"""What the usage has in the place of all flags."""
SHELLS = ("bash", "zsh", "fish")


def script(shell: str) -> str:
    """Returns the script that a shell evaluates.

    Args:
        shell: One of `SHELLS`.

    Raises:
        ConfigError: It is another one.
    """
    if shell not in SHELLS:
        raise unknown("shell", shell, SHELLS)
    words = {command: [*_flags(command), *(_cells() if command in _TAKE_CELLS else ())] for command in COMMANDS}
    if shell == "fish":
        lines = [f"complete -c samestep -f -n __fish_use_subcommand -a {name} -d '{COMMANDS[name]}'" for name in words]
        lines += [
            f"complete -c samestep -n '__fish_seen_subcommand_from {name}' "
            + " ".join(_spell_fish(each) for each in all_)
            for name, all_ in words.items()
            if all_
        ]
        return "\n".join(["# In config.fish: samestep --completion fish | source", *lines])
    cases = "\n".join(f'            {name}) words="{" ".join(all_)}" ;;' for name, all_ in words.items())
    bash = _BASH.format(commands=" ".join(COMMANDS), cases=cases)
    return bash if shell == "bash" else _ZSH + bash.partition("\n")[2]


def _spell_fish(word: str) -> str:
    return f"-l {word[2:]}" if word.startswith("--") else f"-a {word}"


def _flags(command: str) -> list[str]:
    """Returns the flags of a command as its help lists them; a strategy's own come with the strategy."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        importlib.import_module(f"samestep.experiments.{command}").main(["--help"])
    return list(
        dict.fromkeys(
            word for word in re.findall(r"(?<=[\s\[,])--[a-z][a-z0-9-]+", told.getvalue()) if word != PLACEHOLDER
        )
    )


def _cells() -> list[str]:
    return [f"{framework}:{row.name}" for framework, row in catalogue()]
