"""Prints how many matrix products XLA leaves in a compiled step, without and with recomputation."""

import re

from samestep.common.batch import batches
from samestep.common.request import RunConfig
from samestep.common.run import parse
from samestep.common.techniques import Techniques
from samestep.tf_impl.models.inputs import as_inputs
from samestep.tf_impl.strategies.single import build


def main() -> None:
    """Of a transformer of three blocks, of which the inner one is computed twice."""
    for recompute in (False, True):
        techniques = Techniques(recompute=recompute, compile=True)
        asked = RunConfig("tf", "single", "prose-gpt+layers=3+width=32+context=16", batch_size=8, techniques=techniques)
        run = parse(asked)
        data = run.workload.data.load()
        batch = next(iter(batches(data.train_inputs, data.train_targets, run.batch_size, run.seed)))
        compiled = build(run)._part_gradients
        text = compiled.experimental_get_compiler_ir(*map(as_inputs, batch.rows()))(stage="optimized_hlo")
        print(len(re.findall(r"\bdot\(", text)))


if __name__ == "__main__":
    main()
