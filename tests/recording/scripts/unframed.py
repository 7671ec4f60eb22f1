"""Records twelve steps without a framework, as the recorders of all do: what becomes of the record does not depend on it."""

import os
import sys

import numpy as np

from samestep.common.steps.projections import Piece
from samestep.common.steps.record import RecordedStep, RecordedTensor, stats_dtype
from samestep.common.steps.recording import VARIABLE, Recorder, RecordOptions

tensors = [RecordedTensor(f"layer{k}.weight", "float32", Piece.whole((2,))) for k in range(6)]
recorder = Recorder(RecordOptions.from_json(os.environ[VARIABLE]), "torch")
recorder.end_with_process(lambda: None)
write = recorder.guarded(recorder.write)
recorder.guarded(recorder.begin)(tensors, 0, 1, False)
for step in range(-1, 12):
    rows = np.ones(len(tensors), stats_dtype(False))
    rows["bits"] = step + 2
    write(RecordedStep(step, stats={"weight": rows} if step < 0 else {"gradient": rows, "weight": rows}))
print("done")
sys.exit(3 if "--fail" in sys.argv else 0)
