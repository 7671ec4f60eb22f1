"""What other users of the machine can do to a run without a private network that is more than to spoil it. See docs/security.md.

torch binds to 127.0.0.1 and asks nobody who connects for a password (2.13).
"""

_WHO = "every user of this machine can connect to its processes on 127.0.0.1 and run code as you"
UNPICKLES_CALLS = f"{_WHO}: TensorPipe unpickles what it is sent"
UNPICKLES = f"{_WHO}: torch's pipelines unpickle the shapes that a stage is sent"
