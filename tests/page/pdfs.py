"""Reads PDFs, independently of what wrote them."""

import io
import types
from typing import Any

import pytest


def reader() -> types.ModuleType:
    """The package that reads PDFs."""
    return pytest.importorskip("pypdf", reason="pypdf is not installed: pip install 'samestep[dev]'")


def text_of(content: bytes) -> str:
    return "\n".join(page.extract_text() for page in reader().PdfReader(io.BytesIO(content)).pages)


def operations(content: bytes) -> list[tuple[list[Any], bytes]]:
    pdf = reader()
    page = pdf.PdfReader(io.BytesIO(content)).pages[0]
    return pdf.generic.ContentStream(page.get_contents(), page.pdf).operations
