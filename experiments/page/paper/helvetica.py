"""The width of text in Helvetica, which every PDF viewer has.

Reference: Adobe's font metrics of the fourteen fonts that PDF 1.7 (ISO 32000-1, 9.6.2.2) requires of every viewer.
"""

_SCALE = 1000
_REGULAR = """278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278
584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 667 667 611
278 278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500
334 260 334 584"""
_BOLD = """278 333 474 556 556 889 722 238 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 333 333 584
584 584 611 975 722 722 722 722 667 611 778 722 278 556 722 611 833 722 778 667 778 722 667 611 722 667 944 667 667 611 333 278
333 584 556 333 556 611 556 611 556 333 611 611 278 278 556 278 889 611 611 611 611 389 556 333 611 556 778 556 556 500 389 280
389 584"""
_WIDTHS = [[int(width) for width in text.split()] for text in (_REGULAR, _BOLD)]
_OTHER = 584
"""The width of a character that is not ASCII, such as a multiplication sign."""


def text_width(words: str, size: float, is_bold: bool = False) -> float:
    """Returns the width of a line of text, in the unit of its size.

    Args:
        words: The text.
        size: The size of the font.
        is_bold: Whether it is set in the bold font.
    """
    widths = _WIDTHS[is_bold]
    return size * sum(widths[ord(c) - 32] if 32 <= ord(c) < 127 else _OTHER for c in words) / _SCALE
