"""The features of a model as its layers meet them: they are put in here, and models name none."""

from samestep.common.reference.features.dropout import dropout as behind

__all__ = ["behind"]
