"""The validator of descriptions: a fork server makes it once for all workers, since that took a third of a short run."""

import pydantic

from samestep.common.workload.models.description import Description

DESCRIPTIONS = pydantic.TypeAdapter(Description)
