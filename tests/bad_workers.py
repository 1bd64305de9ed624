"""Methods and tasks that are bad for the process that they run in; workers import them from here."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

from verax.tasks.climate.task import Climate


def dies_once(model, inputs, targets):
    mark = Path(os.environ["WORKERS_LOG"]) / "died"
    if not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return inputs


def dies_always(model, inputs, targets):
    os.kill(os.getpid(), signal.SIGKILL)


def sleeps(model, inputs, targets):
    time.sleep(600)


class Deadly(Climate):
    """A task that kills whoever trains on it, but for the process that plans the study."""

    def drawn(self, purpose="train", count=None, seed=0):
        if multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().drawn(purpose, count, seed)


class Refusing(Climate):
    """A task whose samples cannot be drawn, but for the process that plans the study."""

    def drawn(self, purpose="train", count=None, seed=0):
        if multiprocessing.parent_process() is not None:
            raise ArithmeticError("no such sample")
        return super().drawn(purpose, count, seed)
