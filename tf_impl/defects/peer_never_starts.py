"""MultiWorkerMirroredStrategy waits for a peer that does not start, and ignores SIGTERM.

What to do: end it by SIGKILL after a time of your own.
"""

import json
import os
import socket
import subprocess
import sys

with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in (first, second)]
task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": 0}}
script = "import tensorflow as tf; print('up', flush=True); tf.distribute.MultiWorkerMirroredStrategy()"
environment = os.environ | {"TF_CONFIG": json.dumps(task)}
worker = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE)
assert worker.stdout is not None and worker.stdout.readline() == b"up\n"
ended = []
for wait, strike in ((20, worker.terminate), (20, worker.kill)):
    try:
        worker.wait(wait)
        ended.append(True)
    except subprocess.TimeoutExpired:
        ended.append(False)
        strike()
print(f"ended within 20 s: {ended[0]}; ended within 20 s of SIGTERM: {ended[1]}")
assert ended[1], "SIGTERM does not end it"
