"""Functions that tests have called in worker processes; light to import, as they are there too."""

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
    """Is pickled and cannot be made again from that."""

    def __init__(self, first, second):
        super().__init__(first + second)


class MadeHereOnly:
    """Raises where it is made again, but in a worker."""

    def __reduce__(self):
        return made_again, (os.getpid(),)


class NoException(BaseException):
    """What some libraries raise at their time-outs."""


def made_again(pid):
    if pid != os.getpid():
        raise ValueError("made in another process")


def process():
    return os.getpid()


def add(first, second):
    return first + second


def tell(path):
    """Write which process this is, whole or not at all."""
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
    """Compute in one operation, in which no other thread gets a turn."""
    if path:
        tell(path)
    return sum(range(10**13))


def start_another(path):
    """Start a process of one's own and wait for it."""
    code = f"import tests.rollout.isolated as i; i.sleep_for_ever({str(path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True)


def take_memory(megabytes):
    return len(bytearray(megabytes * MEGABYTE))


def limit():
    """Return the limit in force, in bytes of address space."""
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
    print("on stdout")
    print("on stderr", file=sys.stderr)
    os.write(1, b"straight to the file\n")
    ctypes.CDLL(None).puts(b"from a library")
    return "quiet"


def is_imported(name):
    return name in sys.modules


class Holder:
    """Has functions of every kind."""

    @staticmethod
    def double(number):
        return 2 * number

    @classmethod
    def own_name(cls):
        return cls.__name__

    def method(self):
        return self


async def wait_for(condition, seconds=20.0):
    """Wait until a condition holds, without holding up the event loop."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def is_running(pid):
    """Say whether a process runs; one that ended and was not waited for does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # ended in between, or a system without /proc
        return not Path("/proc").is_dir()
    return state != "Z"
