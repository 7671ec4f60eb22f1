"""The pictures of the page are of what it looks like now."""

import json
from pathlib import Path

from documenting.page_pictures import DIGESTS, FOLDER, SHOWN, digests, unpack

PNG = b"\x89PNG\r\n"


def test_the_pictures_show_what_the_page_is_now(tmp_path: Path) -> None:
    assert digests(unpack(tmp_path)) == json.loads(DIGESTS.read_text()), "run: python -m documenting.page_pictures"


def test_there_is_a_picture_of_each_section_that_has_one() -> None:
    for name in ("light", "dark", *SHOWN[2:]):
        assert (FOLDER / f"report-{name}.png").read_bytes().startswith(PNG)
