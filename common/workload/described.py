"""What checks a description that is read: a fork server makes it once for all workers, which took a third of a short run."""

import pydantic

from samestep.common.workload.models.description import Description

DESCRIPTIONS = pydantic.TypeAdapter(Description)
