"""Functions that tests call in worker processes; workers import this module, so it stays small."""

import asyncio
import ctypes
import os
import resource
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MEGABYTE = 2**20


class NotMadeAgainError(Exception):
    """An exception that can be pickled but not unpickled."""

    def __init__(self, first, second):
        super().__init__(first + second)


class MadeHereOnly:
    """Unpickles in a worker and fails in the process of the test."""

    def __reduce__(self):
        return made_again, (os.getpid(),)


class NoException(BaseException):
    """A BaseException, as some libraries raise for timeouts."""


def made_again(pid):
    if pid != os.getpid():
        raise ValueError("made in another process")


def process():
    return os.getpid()


def write_everywhere(data):
    """Write to every descriptor but the standard ones."""
    for number in range(3, 1024):
        with suppress(OSError):
            os.set_blocking(number, False)
            os.write(number, data)


def write_to_low_descriptors(data):
    for number in range(3, 64):
        with suppress(OSError):
            os.write(number, data)


def compute_where_others_do(seconds, niceness, num_others):
    """Compute for so many seconds of CPU time on a CPU that other processes share."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    program = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"
    others = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(num_others)]
    os.nice(niceness)
    started, ends = time.monotonic(), time.process_time() + seconds
    while time.process_time() < ends:
        pass
    for other in others:
        other.kill()
        other.wait()
    return time.monotonic() - started


def add(first, second):
    return first + second


def tell(path):
    """Write the process id to a file, atomically."""
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
    """Compute in a single operation that never lets another thread run."""
    if path:
        tell(path)
    return sum(range(10**13))


def start_another(path):
    """Start a child process and wait for it."""
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
    print("on stdout")
    print("on stderr", file=sys.stderr)
    os.write(1, b"straight to the file\n")
    ctypes.CDLL(None).puts(b"from a library")
    return "quiet"


def is_imported(name):
    return name in sys.modules


class Holder:
    """A class with every kind of function."""

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
    except FileNotFoundError:  # it just ended, or there is no /proc
        return not Path("/proc").is_dir()
    return state != "Z"
