"""What several drawings of a page have in common is written once, and each of them refers to it."""

import collections
import copy
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

_REFERENCE, _ID = 20, 10
"""About as many characters as a reference has, and an id."""


def share_parts(drawings: Sequence[Element]) -> tuple[list[Element], Element]:
    """Takes out of drawings what is the same in several of them, wherever that makes them shorter.

    Args:
        drawings: The drawings, which stay as they are.

    Returns:
        The drawings with references, and a drawing that shows nothing and holds what they refer to.
    """
    shared = [copy.deepcopy(drawing) for drawing in drawings]
    held = Element("svg", {"class": "drawing common", "aria-hidden": "true"})
    parts, ids = SubElement(held, "defs"), dict[str, str]()
    level = list(shared)
    while level:  # whole groups first, then what is inside of those that differ, and of those that are shared
        spelled = [[_spell(part) for part in parent] for parent in level]
        fresh: list[Element] = []
        times = collections.Counter(text for texts in spelled for text in texts)
        for parent, texts in zip(level, spelled, strict=True):
            for place, (part, text) in enumerate(zip(list(parent), texts, strict=True)):
                if text not in ids and _is_worth_it(part, len(text), times[text]):
                    ids[text] = f"p{len(ids)}"
                    parts.append(copy.deepcopy(part))
                    parts[-1].set("id", ids[text])
                    fresh += [parts[-1]] if part.tag == "g" else []
                if text in ids:
                    parent[place] = Element("use", {"href": f"#{ids[text]}"})
        level = [*(part for parent in level for part in parent if part.tag == "g"), *fresh]
    return shared, held


def _is_worth_it(part: Element, length: int, times: int) -> bool:
    """Returns whether references to a part are shorter than it; what a drawing says of itself stays where it is."""
    return part.tag not in ("title", "desc", "use") and times * (length - _REFERENCE) > length + _ID


def _spell(part: Element) -> str:
    return tostring(part, encoding="unicode").replace(" />", "/>")
