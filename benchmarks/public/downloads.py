"""Writes small stand-ins for what public scripts download; numbers and words are random but reproducible."""

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np

_REQUESTS = """import io
import tarfile


class get:
    def __init__(self, *places, **options):
        self.raw = io.BytesIO()
        with tarfile.open(fileobj=self.raw, mode="w:gz") as archive:
            archive.add("cora")
        self.raw.seek(0)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass
"""
"""The stand-in for the module `requests`, for a script that downloads Cora's archive."""
_WEATHER = (
    "Date Time,p (mbar),T (degC),Tpot (K),Tdew (degC),rh (%),VPmax (mbar),VPact (mbar),VPdef (mbar),sh (g/kg),"
    "H2OC (mmol/mol),rho (g/m**3),wv (m/s),max. wv (m/s),wd (deg)"
)


def write_cora(folder: Path, num_nodes: int = 1700, num_edges: int = 4000) -> None:
    """Writes a graph in the layout of Cora's authors, and a module that returns it as an archive.

    Args:
        folder: The folder to write to.
        num_nodes: The number of papers; scripts test on 1,500 of them.
        num_edges: The number of citations.
    """
    drawn = np.random.default_rng(0)
    names = drawn.permutation(50_000)[:num_nodes]
    words = (drawn.random((num_nodes, 30)) < 0.2).astype(int)
    lines = [
        "\t".join([str(name), *map(str, row), "abcdefg"[drawn.integers(7)]])
        for name, row in zip(names, words, strict=True)
    ]
    pairs = {tuple(drawn.choice(names, 2, replace=False).tolist()) for _ in range(num_edges)}
    (folder / "cora").mkdir(parents=True, exist_ok=True)
    (folder / "cora" / "cora.content").write_text("\n".join(lines) + "\n")
    (folder / "cora" / "cora.cites").write_text("\n".join(f"{a}\t{b}" for a, b in sorted(pairs)) + "\n")
    (folder / "requests.py").write_text(_REQUESTS)


def write_downloads(folder: Path, text: str) -> None:
    """Writes weather data and reviews where Keras keeps its downloads.

    Args:
        folder: The folder of Keras' data sets.
        text: Lines for the reviews.
    """
    numbers = np.cumsum(np.random.default_rng(0).normal(size=(4000, 14)), 0)
    rows = (
        f"{n // 144 + 1:02d}.01.2009 00:00:00," + ",".join(f"{each:.3f}" for each in row)
        for n, row in enumerate(numbers)
    )
    with zipfile.ZipFile(folder / "jena_climate_2009_2016.csv.zip", "w") as archive:
        archive.writestr("jena_climate_2009_2016.csv", "\n".join([_WEATHER, *rows]))
    lines = iter(text.split("\n"))
    with tarfile.open(folder / "aclImdb_v1.tar.gz", "w:gz") as archive:
        for part in ("train", "test"):
            for kind in ("pos", "neg", "unsup"):
                for number in (*range(60), 6248):  # the script prints this review
                    content = next(lines).encode()
                    about = tarfile.TarInfo(f"aclImdb/{part}/{kind}/{number}_7.txt")
                    about.size = len(content)
                    archive.addfile(about, io.BytesIO(content))
