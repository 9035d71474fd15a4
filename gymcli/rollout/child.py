"""A child process, seen from the parent: its start, the socket to it, and its end.

The event loop reads the socket and what the child prints; there is no thread. Messages are lines.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from gymcli.rollout.template import fill_standard, fork

__all__ = ["ChildProcess"]

LEAVE_SECONDS = 2.0
"""Seconds that an idle child is given to leave by itself."""

_MAX_PRINTED_BYTES = 1 << 16
_READ_BYTES = 1 << 18


class ChildProcess:
    """One child process and the socket to it; used in one event loop.

    Args:
        module: Its `main` is called with the handle of the socket.
        variables: The environment variables.
        take_lines: Called with the lines that the child sends.
        end: Called once where the child ends, or closes its socket, by itself.

    """

    def __init__(
        self,
        module: str,
        *,
        variables: Mapping[str, str],
        take_lines: Callable[[list[bytes]], None],
        end: Callable[[], None],
    ) -> None:
        self._take_lines = take_lines
        self._end = end
        self._chunks: list[bytes] = []
        self._unsent = bytearray()
        self._unprinted = b""
        self._loop = asyncio.get_running_loop()
        fill_standard()
        self._socket, theirs = socket.socketpair()
        self._printed, prints = os.pipe()
        try:
            with theirs:
                self._process = fork(module, theirs.fileno(), prints, variables)
        except BaseException:
            self._socket.close()
            os.close(self._printed)
            raise
        finally:
            os.close(prints)
        self._socket.setblocking(False)
        os.set_blocking(self._printed, False)
        self._loop.add_reader(self._socket.fileno(), self.read)
        self._loop.add_reader(self._printed, self._print)
        self._is_open = True
        self.has_unread = False
        """The child ended before it had read all that it was sent (Linux tells)."""

    def write(self, data: bytes) -> None:
        """Send data; what the socket has no room for is sent later."""
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.send(data)
            except BlockingIOError:
                pass
            except OSError:  # it has ended, which `read` will see
                self.has_unread = True
                return
            if sent < len(data):
                self._loop.add_writer(self._socket.fileno(), self._write_on)
        self._unsent += data[sent:]

    def _write_on(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._unsent)
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def read(self) -> None:
        """Take what the child has sent, if anything."""
        if not self._is_open:
            return
        try:
            data = self._receive()
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._socket.fileno())
            self._end()
        elif b"\n" not in data:
            self._chunks.append(data)
        else:
            *lines, rest = b"".join((*self._chunks, data)).split(b"\n")
            self._chunks = [rest] if rest else []
            self._take_lines(lines)

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            raise
        except OSError as error:
            # It is reset if the other end was closed before all was read there.
            self.has_unread |= isinstance(error, ConnectionResetError)
            return b""

    def has_ended(self) -> bool:
        """Return whether the process is over, also where a copy of it holds the socket."""
        return self._process.poll() is not None

    def resident_bytes(self) -> int:
        """Return the resident memory of the process; 0 where the system does not tell."""
        try:
            pages = Path(f"/proc/{self._process.pid()}/statm").read_bytes().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * resource.getpagesize()

    def kill(self) -> str:
        """Kill the process and what it started, and return how it died.

        What it replied before is taken first.
        """
        if not self._is_open:
            return ""
        self._end = _do_nothing
        code = self._process.kill()
        with suppress(BlockingIOError):  # a process that left the group holds the socket
            while data := self._receive():
                self._chunks.append(data)
        if lines := b"".join(self._chunks).split(b"\n")[:-1]:
            self._take_lines(lines)
        self._close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    async def leave(self) -> None:
        """Let an idle process end itself, and kill it where it does not."""
        if not self._is_open:
            return
        self._end = _do_nothing
        try:
            self._socket.shutdown(socket.SHUT_WR)
            ends = self._loop.time() + LEAVE_SECONDS
            while not self.has_ended() and self._loop.time() < ends:  # noqa: ASYNC110  # no event
                await asyncio.sleep(0.005)
        except OSError:  # its end of the socket is closed already
            pass
        finally:
            self._process.kill()
            self._close()

    def _close(self) -> None:
        self._is_open = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        while self._printed >= 0 and self._print():
            pass
        self._stop_printing()

    def _print(self) -> bool:
        """Pass on what the child prints, through this stderr, which hides secrets."""
        try:
            data = os.read(self._printed, _MAX_PRINTED_BYTES)
        except BlockingIOError:
            return False
        if data:
            *lines, rest = (self._unprinted + data).split(b"\n")
            if len(rest) > _MAX_PRINTED_BYTES:
                lines, rest = [*lines, rest], b""
        else:
            lines, rest = [self._unprinted] if self._unprinted else [], b""
            self._stop_printing()
        self._unprinted = rest
        with suppress(OSError, ValueError):  # closed, or its reader has left
            for line in lines:
                sys.stderr.write(line.decode(errors="replace") + "\n")
            sys.stderr.flush()
        return bool(data)

    def _stop_printing(self) -> None:
        if self._printed >= 0:
            self._loop.remove_reader(self._printed)
            os.close(self._printed)
            self._printed = -1


def _do_nothing() -> None:
    """The end of a process that was killed is no news."""
