"""Reading grey images from a compressed table: one row an image, its pixels, then its class."""

import gzip
import io

import numpy as np

from samestep.common.workload.data.dataset import Split, held_out


def decode_images(source: bytes, side: int, levels: int) -> Split:
    """Images [side, side, 1] of values from 0 to 1, every fifth held out.

    Args:
        source: A gzipped table of whole numbers, separated by commas.
        side: Height and width in pixels.
        levels: What the pixels are divided by; a power of two, so that they are exact in both dtypes.
    """
    table = np.loadtxt(io.BytesIO(gzip.decompress(source)), delimiter=",", dtype=np.int64)
    images = table[:, :-1].reshape(-1, side, side, 1) / levels
    return held_out(images, table[:, -1], np.arange(len(table)) % 5 == 4)
