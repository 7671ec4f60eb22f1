"""What was found, in plain words: the first thing that a reader sees."""

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from samestep.experiments import tables
from samestep.experiments.compiled import compiled
from samestep.experiments.lint import explain_confounds, find_stops
from samestep.experiments.page.loaded import Group, Loaded
from samestep.experiments.page.markup import Child, element, more, prose
from samestep.experiments.ranking import ranking
from samestep.experiments.row import FAILED, MISSED, NOT_JUDGED, SAME, Row, explain_rows
from samestep.experiments.speeds import unseparated
from samestep.experiments.text import count, explain_emulation

SYMBOLS = {SAME: "✓", MISSED: "✗", FAILED: "✗", NOT_JUDGED: "–"}
"""Of a status, so that colour is never the only sign of it."""
_SHOWN = 20
"""Of the rows that a headline names."""


def write(loaded: Loaded) -> Element:
    """Makes the section."""
    parts: list[Child] = [element("p", _headline(loaded), class_="headline"), _tally(loaded)]
    parts += [_problems(loaded)] if loaded.problems else []
    parts += [_group(group) for group in loaded.groups]
    return element("div", *parts)


def status(row: Row) -> Element:
    """The status of a row, as a symbol and words."""
    kind = {SAME: "good", MISSED: "bad", FAILED: "bad"}.get(row.status, "plain")
    return element("span", f"{SYMBOLS.get(row.status, '·')} {row.status}", class_=f"status {kind}")


def _headline(loaded: Loaded) -> str:
    """The one sentence to take along."""
    rows = [entry.row for entry in loaded.entries]
    missed, failed = ([row.cell for row in rows if row.status == each] for each in (MISSED, FAILED))
    judged = sum(row.is_judged for row in rows)
    if missed:
        return f"{len(missed)} of {count(judged, 'judged row')} did not take the same step: {_names(missed)}."
    also = f" {count(len(failed), 'row')} failed: {_names(failed)}." if failed else ""
    if not judged:
        return f"No row was judged, so nothing is said of their steps.{also}"
    whole = "Every judged row took the same step" if judged > 1 else "The judged row took the same step"
    return f"{whole} as its reference ({judged} of {count(len(rows), 'row')} judged).{also}"


def _names(cells: Sequence[str]) -> str:
    left = len(cells) - _SHOWN
    return ", ".join(cells[:_SHOWN]) + (f" and {left} more" if left > 0 else "")


def _tally(loaded: Loaded) -> Element:
    """How many rows have each status."""
    found = Counter(entry.row.status for entry in loaded.entries)
    examples = {entry.row.status: entry.row for entry in loaded.entries}
    items = [element("li", element("b", str(number)), status(examples[name])) for name, number in found.items()]
    return element("ul", *items, class_="tally", aria_label="Rows by status")


def _problems(loaded: Loaded) -> Element:
    lines = [element("li", element("code", str(each.place)), f" {each.message}") for each in loaded.problems]
    title = f"{count(len(lines), 'directory').replace('directorys', 'directories')} could not be read:"
    return element("div", element("p", title), element("ul", *lines), class_="callout", role="note")


def _group(group: Group) -> Element:
    """What a comparison says of itself."""
    found, results = group.comparison, group.comparison.results
    names = [entry.row.cell for entry in group.entries if entry.result]
    parts: list[Child] = [element("h3", group.title)]
    if results:
        parts.append(element("p", *prose(_joined(tables.caption(results, names=names)))))
        parts.append(element("p", tables.verdict(results), class_="verdict"))
    if found.exit_reason:
        parts.append(
            element("p", f"As a gate it ends with exit code {found.exit_code}: {found.exit_reason}", class_="callout")
        )
    emulated = dict.fromkeys((f"{r.framework}:{r.strategy}", r.emulation) for r in results if r.emulation)
    parts += _list(explain_emulation(*each) for each in emulated)
    if results and found.repeats == 1 and max(len(rounds) for rounds in found.rounds.values()) == 1:
        parts.append(element("p", "Each row was measured once, so no speed is ranked.", class_="note"))
    parts += _list(_lines(unseparated(found.speeds, found.reference)))
    parts += _list(_lines(explain_confounds(found.rounds, found.reference, found.allowed)))
    parts += _list(explain_rows(found.rows))
    if book := _lines(ranking(list(found.rounds.values()), find_stops(found.allowed))):
        parts.append(more("What the textbooks say, and what was measured", *_list(book)))
    parts += [element("pre", compiled(results))] if compiled(results) else []
    return element("div", *parts, class_="group")


def _list(lines: Sequence[str]) -> list[Child]:
    items = [element("li", *prose(line.removeprefix("* "))) for line in lines]
    return [element("ul", *items, class_="notes")] if items else []


def _lines(text: str) -> list[str]:
    """The lines of what commands print, each of them whole: there they are wrapped and indented."""
    return [line for line in re.sub(r"\n  (?=\S)", " ", text).splitlines() if line]


def _joined(text: str) -> str:
    return " ".join(text.split())
