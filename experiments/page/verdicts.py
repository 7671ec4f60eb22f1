"""What was found, in plain words: the first thing that a reader sees."""

import re
from collections import Counter
from collections.abc import Iterable
from xml.etree.ElementTree import Element

from samestep.experiments.comparing.comparison import Comparison
from samestep.experiments.comparing.gate import headline
from samestep.experiments.comparing.lint import explain_confounds, find_stops
from samestep.experiments.comparing.ranking import ranking
from samestep.experiments.comparing.row import FAILED, MISSED, NOT_JUDGED, SAME, Row, explain_rows
from samestep.experiments.comparing.speeds import unseparated
from samestep.experiments.page.loaded import Group, Loaded
from samestep.experiments.page.markup import Child, element, more, prose
from samestep.experiments.printing import tables
from samestep.experiments.printing.against_report import write_report
from samestep.experiments.printing.columns import explain_emulations
from samestep.experiments.printing.compiled import compiled
from samestep.experiments.printing.misses import explain_misses
from samestep.experiments.printing.text import count

SYMBOLS = {SAME: "✓", MISSED: "✗", FAILED: "✗", NOT_JUDGED: "–"}
"""Of a status, so that colour is never the only sign of it."""
_SHOWN = 3
"""Of the comparisons that a headline names."""


def write(loaded: Loaded) -> Element:
    """Makes the section."""
    parts: list[Child] = [element("p", _headline(loaded), class_="headline"), _tally(loaded)]
    parts += [_problems(loaded)] if loaded.problems else []
    parts += [element("p", loaded.kept_apart, class_="note")] if loaded.kept_apart else []
    parts += [_group(group) for group in loaded.groups]
    return element("div", *parts)


def status(row: Row) -> Element:
    """The status of a row, as a symbol and words."""
    kind = {SAME: "good", MISSED: "bad", FAILED: "bad"}.get(row.status, "plain")
    return element("span", f"{SYMBOLS.get(row.status, '·')} {row.status}", class_=f"status {kind}")


def _headline(loaded: Loaded) -> str:
    """The one sentence to take along: what is not green, or how far all that was judged is."""
    titled = [(f"{group.title}: " if loaded.groups[1:] else "", headline(group.comparison)) for group in loaded.groups]
    found = [f"{title}{said}" for title, said in titled if said]
    more = f" {len(found) - _SHOWN} more are not green." if found[_SHOWN:] else ""
    unread = f" {count(len(loaded.problems), 'directory')} could not be read." if loaded.problems else ""
    if found:
        return " ".join(found[:_SHOWN]) + more + unread
    judged, rows = sum(entry.row.is_judged for entry in loaded.entries), count(len(loaded.entries), "row")
    if not judged:
        return f"No row was judged, so nothing is said of their steps.{unread}"
    whole = "Every judged row took the same step" if judged > 1 else "The judged row took the same step"
    return f"{whole} as its reference ({judged} of {rows} judged).{unread}"


def _tally(loaded: Loaded) -> Element:
    """How many rows have each status."""
    found = Counter(entry.row.status for entry in loaded.entries)
    examples = {entry.row.status: entry.row for entry in loaded.entries}
    items = [element("li", element("b", str(number)), status(examples[name])) for name, number in found.items()]
    return element("ul", *items, class_="tally", aria_label="Rows by status")


def _problems(loaded: Loaded) -> Element:
    lines = [element("li", element("code", str(each.place)), f" {each.message}") for each in loaded.problems]
    title = f"{count(len(lines), 'directory')} could not be read:"
    return element("div", element("p", title), element("ul", *lines), class_="callout", role="note")


def _group(group: Group) -> Element:
    """What a comparison says of itself."""
    found, results = group.comparison, group.comparison.results
    names = [entry.row.cell for entry in group.entries if entry.result]
    parts: list[Child] = [element("h3", group.title)]
    if found.exit_code:  # the reason is the headline, and what is at fault stands above what is well
        parts.append(element("p", f"As a gate it ends with exit code {found.exit_code}.", class_="callout"))
    explained = _list(explain_rows(found.rows))
    parts += explained if found.exit_code else []
    if results:
        parts.append(element("p", *prose(_joined(tables.caption(results, names=names)))))
        parts.append(element("p", tables.verdict(results), class_="verdict"))
    parts += [] if found.exit_code else explained
    called = {id(entry.result): entry.row.cell for entry in group.entries}
    parts += _list([*explain_emulations(results), *explain_misses(results, lambda result: called[id(result)])])
    parts += [element("p", said)] if (said := _speeds(found)) else []
    if unclear := _lines(unseparated(found.speeds, found.reference)):
        parts.append(more("How many rounds would separate rows", *_list(unclear)))
    if why := _lines(explain_confounds(found.rounds, found.reference, found.allowed)):
        parts.append(more("Which rows are not ranked by speed, and why", *_list(why)))
    if book := _lines(ranking(list(found.rounds.values()), find_stops(found.allowed))):
        parts.append(more("What the textbooks say, and what was measured", *_list(book)))
    if found.against:
        parts.append(more(f"Against {found.against.directory}", element("pre", write_report(found.against))))
    parts += [element("pre", compiled(results))] if compiled(results) else []
    return element("div", *parts, class_="group")


def _speeds(found: Comparison) -> str:
    """How many rows were separated from the reference row, in a sentence."""
    if not found.results or max(map(len, found.rounds.values())) == 1:
        return "Each row was measured once, so no speed is ranked." if found.results else ""
    verdicts = Counter(
        "not ranked" if speed.confounds else speed.against.verdict or "not judged"
        for speed in found.speeds.values()
        if speed.confounds or speed.against
    )
    if not verdicts:
        return ""
    told = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.most_common())
    return f"Speed against {found.reference}: {told}."


def _list(lines: Iterable[str]) -> list[Child]:
    """Lines as a list; one that ends with a colon stands above it."""
    lines = list(lines)
    heads = [element("p", *prose(line)) for line in lines[:1] if line.endswith(":")]
    items = [element("li", *prose(line.removeprefix("* "))) for line in lines[len(heads) :]]
    return [*heads, element("ul", *items, class_="notes")] if items else []


def _lines(text: str) -> list[str]:
    """The lines of what commands print, each of them whole: there they are wrapped and indented."""
    return [line for line in re.sub(r"\n  (?=\S)", " ", text).splitlines() if line]


def _joined(text: str) -> str:
    return " ".join(text.split())
