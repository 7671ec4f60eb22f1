"""The descriptions of the user's models, each made once for all the runs of a command."""

import contextlib
import dataclasses
from pathlib import Path

from samestep.common.errors import ConfigError, Unavailable
from samestep.common.request import RunConfig
from samestep.common.runtime.parent.models.description_request import Servers, describe
from samestep.common.runtime.parent.models.preloading import Preloading
from samestep.common.runtime.parent.models.weight_transfer import transfer_weights
from samestep.common.workload.models.description import read_description


class Descriptions:
    """Has workers describe models, and keeps what they found or why they could not.

    Attributes:
        imports: What the models import.
    """

    def __init__(self, scratch: Path, server: Servers) -> None:
        """Describes nothing yet.

        Args:
            scratch: Where the descriptions go.
            server: Finds the fork servers.
        """
        self._scratch, self._server = scratch, server
        self.imports = Preloading()
        self._found: dict[tuple[str, str, str | None, int], str | ConfigError] = {}

    def describe(self, config: RunConfig) -> RunConfig:
        """Describes the model that a request names, as `Launcher.describe` does.

        Args:
            config: Names a model that nobody described yet.
        """
        assert config.model is not None
        key = (config.framework, config.model, config.data, config.seed)
        if key not in self._found:
            try:
                self._found[key] = self._describe(config)
            except ConfigError as error:
                self._found[key] = error  # for every row of its framework
        if isinstance(found := self._found[key], ConfigError):
            raise found
        return dataclasses.replace(config, described=found)

    def _describe(self, config: RunConfig) -> str:
        """Describes a model; where the file has one in a framework that comes first, it gets that one's weights, if it can."""
        found = describe(config, self._scratch, self._server)
        self.imports.learn(config.framework, read_description(found).source, Path(found))
        source = read_description(found).frameworks[0]
        if source != config.framework:
            with contextlib.suppress(Unavailable):
                first = self.describe(dataclasses.replace(config, framework=source))
                transfer_weights(Path(str(first.described)), Path(found), config, self._server)
        return found
