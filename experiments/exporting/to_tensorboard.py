"""Writes runs as event files of TensorBoard, with its own classes and without TensorFlow."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from samestep.common.errors import Unavailable
from samestep.experiments.exporting.replay import Replay

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

FILE = "events.out.tfevents.samestep"
"""The name of a run's event file; TensorBoard looks for the middle part. A second export replaces the first."""


def write(replay: Replay, target: str) -> str:
    """Writes a run into its own folder; returns the file.

    Args:
        replay: The run.
        target: The folder with which TensorBoard is started.

    Raises:
        Unavailable: TensorBoard is not installed.
    """
    try:
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError:
        raise Unavailable("tensorboard is not installed: pip install 'samestep[tensorboard]'") from None
    folder = Path(target) / replay.name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("wb") as file:
        records = RecordWriter(file)
        for event in _events(replay):
            records.write(event.SerializeToString())
    return str(folder / FILE)


def _events(replay: Replay) -> Iterator["Event"]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    yield Event(wall_time=replay.started, file_version="brain.Event:2")
    settings = HParamsPluginData()
    settings.session_start_info.start_time_secs = replay.started
    for name, value in replay.settings.items():
        held = settings.session_start_info.hparams[name]
        if isinstance(value, bool):
            held.bool_value = value
        elif isinstance(value, int | float):
            held.number_value = value
        else:
            held.string_value = str(value)
    about = SummaryMetadata()
    about.plugin_data.plugin_name, about.plugin_data.content = "hparams", settings.SerializeToString()
    start = Summary.Value(tag="_hparams_/session_start_info", metadata=about)
    yield Event(wall_time=replay.started, summary=Summary(value=[start]))
    for point in replay.curve:
        value = Summary.Value(tag=point.name, simple_value=point.value)
        yield Event(wall_time=point.time, step=point.step, summary=Summary(value=[value]))
    for name, number in replay.outcome.items():
        value = Summary.Value(tag=f"outcome/{name}", simple_value=number)
        yield Event(wall_time=replay.ended, summary=Summary(value=[value]))
    for name, text in replay.notes.items():
        value = Summary.Value(tag=f"notes/{name}/text_summary")
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = 7  # DT_STRING
        value.tensor.string_val.append(text.encode())
        yield Event(wall_time=replay.ended, summary=Summary(value=[value]))
