"""The validator of descriptions. A fork server makes it once for all workers, as making it took a third of a short run."""

import pydantic

from samestep.common.workload.models.description import Description

DESCRIPTIONS = pydantic.TypeAdapter(Description)
