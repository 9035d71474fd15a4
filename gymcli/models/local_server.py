"""Starts the embedded model in a child process and ends it with the `async with` block."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from gymcli.errors import RunError
from gymcli.models.local_weights import model_name
from gymcli.secrets import NOTHING_SECRET

__all__ = ["LocalServer"]

_CHILD = Path(__file__).with_name("child.py")
_POLL_SECONDS = 0.05
_STOP_SECONDS = 5.0
_LOG_TAIL_BYTES = 16_384
_MAX_REASON_CHARACTERS = 300
_LLAMA_ERROR = re.compile(r"^[\d.]+ E +(?:srv +|cmn +)?(.+)$", re.MULTILINE)
"""An error of llama.cpp's log: seconds, level, source, text."""


class LocalServer:
    """An OpenAI-compatible endpoint of one GGUF file, there as long as the block lasts.

    It listens on 127.0.0.1 at a port that the system picks, in a session of its own, so that
    Ctrl-C in the terminal does not reach it. It answers four requests at once and queues the rest;
    each may take 8192 tokens of context. When this process ends, however it does, it ends too.

    Args:
        weights: The GGUF file, from `parse_local` or `default_weights`.
        start_seconds: How long loading may take.

    Raises:
        RunError: On entry: the child ended or was not ready in time.

    """

    def __init__(self, weights: Path, *, start_seconds: float = 60.0) -> None:
        self.weights = weights
        self.start_seconds = start_seconds
        self.model = model_name(weights)
        """What the endpoint calls the model."""
        self.base_url = ""
        """Where the endpoint is, `/v1` included; known once the block is entered."""
        self.pid = 0
        """The child's process id, once it was started."""
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        command = [sys.executable, "-P", str(_CHILD), str(self.weights.absolute()), self.model]
        async with contextlib.AsyncExitStack() as stack:
            log = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
            child = await _launch(command, log)
            self.pid = child.pid
            stack.push_async_callback(_stop, child, _STOP_SECONDS)
            address = await _await_ready(child, log, self.model, self.start_seconds)
            self.base_url = f"{address}/v1"
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()


async def _launch(command: Sequence[str], log: IO[bytes]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            env=NOTHING_SECRET.environment(os.environ),  # it needs no key
            start_new_session=True,
        )
    except OSError as error:
        raise RunError(f"the embedded model cannot be started: {error}") from error


async def _await_ready(child: Process, log: IO[bytes], model: str, seconds: float) -> str:
    """Wait until the child says where it listens and answers there; give that address."""
    assert child.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            address = (await child.stdout.readline()).decode().strip()
            if address and await _is_healthy(address, child):
                return address
            status = await child.wait()
    except TimeoutError as error:
        raise RunError(
            f"the embedded model {model} was not ready within {seconds:g} seconds; "
            "a smaller GGUF file loads faster"
        ) from error
    raise RunError(f"the embedded model {model} did not start: {_reason(log, status)}")


async def _is_healthy(address: str, child: Process) -> bool:
    """Ask until the server says that it is healthy; False once the child has ended."""
    import aiohttp  # late: heavy

    async with aiohttp.ClientSession() as session:
        while child.returncode is None:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{address}/health") as answer:
                    if answer.status == 200:
                        return True
            await asyncio.sleep(_POLL_SECONDS)
    return False


def _reason(log: IO[bytes], status: int) -> str:
    """Say in one line why the child ended: the first error of llama.cpp, else its last words."""
    log.seek(0, 2)
    log.seek(max(log.tell() - _LOG_TAIL_BYTES, 0))
    text = log.read().decode(errors="replace")
    errors = _LLAMA_ERROR.findall(text)
    words = errors or text.strip().splitlines()[-1:]
    ending = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    if not words:
        return ending
    return f"{words[0].strip()[:_MAX_REASON_CHARACTERS]} ({ending})"


async def _stop(child: Process, seconds: float) -> None:
    """End the child by closing its stdin; kill it where that does not help. Leaves no zombie."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await child.wait()
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
