"""Run `gym collect` as a process that one of its requests stops with a signal."""

import signal
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

from tests.builders import clean_environment, gym_process
from tests.reliability.worlds import Model

CHECKOUT = Path(__file__).parents[2]


class Stopped(NamedTuple):
    """How a process ended."""

    exit_code: int
    stderr: str


def run_stopped(
    arguments: tuple[str, ...],
    model: Model,
    *,
    num: int,
    number: signal.Signals,
    again: signal.Signals | None = None,
) -> Stopped:
    """Run a command in this folder; the `num`-th request sends it a signal.

    Args:
        arguments: The arguments of `gym`.
        model: The behaviour of the endpoint.
        num: The number of the request that sends the signal.
        number: The signal.
        again: A second signal, sent once the command has reported the first.
    """
    is_known = threading.Event()
    process: subprocess.Popen[str]

    def stop() -> None:
        # The request may come before Popen has returned.
        is_known.wait()
        process.send_signal(number)

    model.begin(num, stop)
    environment = {**clean_environment(), "PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen(
        gym_process(*arguments),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        is_known.set()
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if again is not None and "again to stop now" in line:
                    process.send_signal(again)
                    again = None
            return Stopped(process.wait(), "".join(said))
        finally:
            process.kill()
