"""Made-up model files that are wrong while they run, or that do to their process what no builder should: one thing each.

A file is made of the same parts as those of `malformed.py`: a model, its declaration, and the data.
"""

from tests.own.malformed import GOOD_MODEL, file

NET = """
def net():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.count = nn.Linear(6, 2), 0
            {made}

        def forward(self, x):
            self.count += 1
            y = self.out(x)
            {called}
            return y

    return Net()
"""
LOSS = "model = samestep.Model(torch=net, loss={{'torch': lambda o, t: {loss}}})"
OPTIMIZER = "model = samestep.Model(torch=net, loss='mean_squared_error', optimizer={{'torch': {optimizer}}})"
SQUARES = "((o - t) ** 2)"


def model(made: str = "pass", called: str = "pass") -> str:
    return file(NET.format(made=made, called=called))


def loss(text: str) -> str:
    return file(declaration=LOSS.format(loss=text))


def optimizer(text: str, before: str = "") -> str:
    return file(before + GOOD_MODEL, OPTIMIZER.format(optimizer=text))


def top(text: str) -> str:
    return file(f"{text}\n{GOOD_MODEL}")


def data(text: str) -> str:
    return file(data=text)


SAM = """
def sam(params):
    import torch

    class SAM(torch.optim.SGD):
        def step(self, closure{default}):
            assert closure is not None, 'SAM requires closure'
            closure()
            return super().step()

    return SAM(params, 0.1)

"""
LATER = "if self.training and torch.is_grad_enabled() and len(x) > 5: {what}"
REFUSED = {
    # where the file is imported
    "empty": "",
    "zero bytes": "\0\0",
    "another encoding": "# -*- coding: nothing -*-\n",
    "an import that is half of it": "from samestep import nothing_like_it\n",
    "exits": top("import sys; sys.exit()"),
    "exits at once": top("import os; os._exit(7)"),
    "exits as if all were well": top("import os; os._exit(0)"),
    "is killed": top("import os; os.kill(os.getpid(), 9)"),
    "aborts": top("import os; os.abort()"),
    "reads address 0": top("import ctypes; ctypes.string_at(0)"),
    "interrupts itself": top("raise KeyboardInterrupt"),
    "recurses": top("def f(): return f()\nf()"),
    "a line that does not end": top("raise ValueError('x' * 100000)"),
    "letters that move the cursor": top("raise ValueError('\\x1b[2J\\r\\x07')"),
    "an error without words": top("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E"),
    "many errors": top("raise ExceptionGroup('a', [ValueError('b'), TypeError('c')])"),
    "asks for something": top("input('? ')"),
    # where the model is built
    "a coroutine": file("async def net():\n    from torch import nn\n    return nn.Linear(6, 2)\n"),
    "a generator": file("def net():\n    from torch import nn\n    yield nn.Linear(6, 2)\n"),
    "a class": file("def net():\n    from torch import nn\n    return nn.Linear\n"),
    "needs an argument": file("def net(width):\n    from torch import nn\n    return nn.Linear(6, width)\n"),
    "raises in __init__": model(made="raise KeyError('nothing')"),
    "no super().__init__()": file(NET.replace("super().__init__()", "pass").format(made="pass", called="pass")),
    "too large": model(made="self.big = nn.Linear(10**7, 10**7)"),
    "a group of its own": model(made="torch.distributed.init_process_group('nothing')"),
    "killed while it is built": model(made="import os; os.kill(os.getpid(), 9)"),
    "exits while it is built": model(made="import os; os._exit(0)"),
    "starts as no number": model(made="nn.init.constant_(self.out.weight, float('nan'))"),
    # where it is called
    "raises in training alone": model(
        called="if self.training and torch.is_grad_enabled(): raise ValueError('trained')"
    ),
    "raises later": model(called=LATER.format(what="raise ValueError('later')")),
    "exits later": model(called=LATER.format(what="import os; os._exit(0)")),
    "is killed later": model(called=LATER.format(what="import os; os.kill(os.getpid(), 9)")),
    "without gradients": model(called="y = y.detach()"),
    "a batch of no examples": model(called="y = y[:0]"),
    "fewer examples": model(called="y = y[:-1]"),
    "looks at its shape": model(called="assert len(x) == 7"),
    # the loss
    "a loss of several numbers": loss("o.sum() * o.new_ones(5)"),
    "a loss that is no number": loss(f"{SQUARES} * float('nan')"),
    "a loss of a word": loss("'x'"),
    "a loss of nothing": loss("None"),
    "a loss without gradient": loss(f"{SQUARES}.detach()"),
    "a loss that is constant": loss("o.new_zeros(o.shape, requires_grad=True)"),
    "a loss that raises later": loss(f"{SQUARES} if len(o) > 5 else 1 / 0"),
    # the optimizer
    "an optimizer that needs a closure": optimizer("sam", SAM.format(default="")),
    "an optimizer that asserts a closure": optimizer("sam", SAM.format(default="=None")),
    "an optimizer of nothing": optimizer("lambda p: __import__('torch').optim.SGD([], 0.1)"),
    "a rate below zero": optimizer("lambda p: __import__('torch').optim.SGD(p, -1)"),
    "LBFGS": optimizer("lambda p: __import__('torch').optim.LBFGS(p)"),
    # the data
    "data that exit": data("import os; os._exit(0)"),
    "data that are killed": data("import os; os.kill(os.getpid(), 9)"),
    "lists": data("return x[:60].tolist(), t[:50].tolist(), x[60:].tolist(), t[60:].tolist()"),
    "dates": data("return x[:60].astype('M8[s]'), t[:60], x[60:], t[60:]"),
    "records": data("return np.zeros(60, 'f4,f4'), t[:60], x[60:], t[60:]"),
    "numbers alone": data("return 1.0, 2.0, 3.0, 4.0"),
    "no numbers to hold out": data("return x[:60], t[:60], x[60:] * np.nan, t[60:]"),
    "none held out": data("return x[:60], t[:60], x[:0], t[:0]"),
    "one example": data("return x[:1], t[:1], x[60:], t[60:]"),
    "a generator of arrays": data("yield from (x[:60], t[:60], x[60:], t[60:], x)"),
    "a set": data("return {1, 2, 3, 4}"),
}
"""What must be one line, with exit code 2 or that of a run that failed, and leave nothing running."""
ONLY_RUN = (
    *("LBFGS", "one example", "an optimizer that needs a closure", "raises later", "exits later", "is killed later"),
    *("a loss that is no number", "in training alone"),
)
"""What shows in a run alone, or leaves a model to be described of which no row can be had."""
FAILING = ("exits later", "is killed later", "a loss that is no number", "in training alone")
"""What ends a run that has begun, which others may have ended as well, or makes its loss no number."""
ENDLESS = {
    "at the top": top("while True: pass"),
    "in the builder": model(made="import time\n            while True: time.sleep(1)"),
    "in the data": data("while True: pass"),
    "in the forward pass": model(called="while True: pass"),
    "in training alone": model(called=LATER.format(what="import time; time.sleep(1e6)")),
    "in the loss": loss("[None for _ in iter(int, 1)]"),
    "without signals": top(
        "import signal; signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN)\nwhile True: pass"
    ),
}
"""What takes longer than it may, and is ended."""
RUDE = {
    "prints": top("print('loud\\n' * 1000)"),
    "prints in each call": model(called="print('loud')"),
    "logs to stderr": top("import sys; sys.stderr.write('loud\\n' * 1000)"),
    "a thread": top("import threading, time; threading.Thread(target=time.sleep, args=(1e6,)).start()"),
    "a process": top("import subprocess; subprocess.Popen(['sleep', '1000'])"),
    "a session of its own": top("import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)"),
    "a timer": top("import signal; signal.setitimer(signal.ITIMER_REAL, 1e6)"),
    "another folder": top("import os, tempfile; os.chdir(tempfile.gettempdir())"),
    "no environment": top("import os; os.environ.clear()"),
    "no output": top("import sys; sys.stdout = sys.stderr = None"),
    "closed output": top("import os; os.close(1)"),
    "an error at the end": top("import atexit; atexit.register(lambda: 1 / 0)"),
    "numbers of its own": top("import random; random.seed(1)\nimport numpy as np; np.random.seed(1)"),
    "another default": model(made="torch.set_default_dtype(torch.float64)"),
    "gradients off": model(made="torch.set_grad_enabled(False)"),
    "warnings are errors": top("import warnings; warnings.simplefilter('error')"),
}
"""What is no way to behave, and does no harm: either it is refused, or it trains, and nothing is left running."""
