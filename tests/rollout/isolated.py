"""Functions for worker processes to call; quick to import, since workers import them too."""

import asyncio
import ctypes
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

MEGABYTE = 2**20


class NotMadeAgainError(Exception):
    """Can be pickled but not unpickled."""

    def __init__(self, first, second):
        super().__init__(first + second)


class MadeHereOnly:
    """Raises when it is unpickled outside its worker."""

    def __reduce__(self):
        return made_again, (os.getpid(),)


class NoException(BaseException):
    """A BaseException, as some libraries raise at time-outs."""


def made_again(pid):
    if pid != os.getpid():
        raise ValueError("made in another process")


def process():
    return os.getpid()


def add(first, second):
    return first + second


def tell(path):
    """Write the id of this process to a file."""
    # Renamed, so that a reader never sees an incomplete file.
    draft = Path(f"{path}.draft")
    draft.write_text(str(os.getpid()))
    draft.rename(path)


def sleep_for_ever(path=None):
    if path:
        tell(path)
    while True:
        time.sleep(60)


def spin(path=None):
    if path:
        tell(path)
    while True:
        pass


def hold_the_interpreter(path=None):
    """Compute in one operation during which no other thread can run."""
    if path:
        tell(path)
    return sum(range(10**13))


def start_another(path):
    """Start another process and wait for it."""
    code = f"import tests.rollout.isolated as i; i.sleep_for_ever({str(path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True)


def take_memory(megabytes):
    return len(bytearray(megabytes * MEGABYTE))


def limit():
    """Return the current limit of address space in bytes."""
    return resource.getrlimit(resource.RLIMIT_AS)[0]


def leave(code):
    os._exit(code)


def exit_politely():
    sys.exit("enough")


def crash():
    os.abort()


def raise_no_exception():
    raise NoException("out of time")


def raise_cancelled():
    raise asyncio.CancelledError


def raise_stop():
    raise StopIteration("over")


def raise_not_made_again():
    raise NotMadeAgainError("a", "b")


def raise_unpicklable():
    error = ValueError("with a lambda")
    error.reason = lambda: None
    raise error


def raise_key_error(name):
    raise KeyError(name)


def give_unpicklable():
    return lambda: None


def give_unreadable():
    return MadeHereOnly()


def chatter():
    # Output on every level: Python's streams, the file descriptor, and C's buffered stdio.
    print("on stdout")
    print("on stderr", file=sys.stderr)
    os.write(1, b"straight to the file\n")
    ctypes.CDLL(None).puts(b"from a library")
    return "quiet"


def is_imported(name):
    return name in sys.modules


class Holder:
    """Has methods of every kind."""

    @staticmethod
    def double(number):
        return 2 * number

    @classmethod
    def own_name(cls):
        return cls.__name__

    def method(self):
        return self


async def wait_for(condition, seconds=20.0):
    """Wait until a condition holds, without blocking the event loop."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def is_running(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # ended in between, or a system without /proc
        return not Path("/proc").is_dir()
    return state != "Z"
