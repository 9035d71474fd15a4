"""What one worker knows: the environments that attempts name, and what judges answered."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from gymcli.engines.messages import NewVerdict, SentAttempt
from gymcli.environment.registry import Found, Registry, environment_options, prepare
from gymcli.environment.tool import EnvironmentOptions
from gymcli.errors import RunError, UsageError
from gymcli.store.verdicts import Verdicts
from gymcli.types import Message

__all__ = ["Environments", "TellingVerdicts", "check_same_code"]


class Environments:
    """The environments of this worker, as the attempts name them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._found: dict[tuple[str, bytes], tuple[Found, EnvironmentOptions]] = {}

    def find(self, sent: SentAttempt) -> tuple[Found, EnvironmentOptions]:
        """Give the environment of an attempt, with its options.

        Raises:
            UsageError: It is not here, or cannot be played here.
            RunError: It has other code here than where the run was started.

        """
        key = (sent.env, msgspec.json.encode(sent.options))
        known = self._found.get(key)
        if known is None:
            found = self._registry.find(sent.env)
            _check_same(found, sent.verifier.source_hash)
            options = environment_options(found.environment, found.name, {}, sent.options)
            prepare(found, options)
            known = self._found[key] = (found, options)
        return known


def check_same_code(registry: Registry, source_hashes: Mapping[str, str]) -> None:
    """See that environments, by their names, have the code here that they have elsewhere.

    Raises:
        RunError: One has not. One that is not here is missed when it is needed.

    """
    for name, source_hash in source_hashes.items():
        with suppress(UsageError):
            _check_same(registry.find(name), source_hash)


def _check_same(found: Found, source_hash: str) -> None:
    if found.source_hash != source_hash:
        raise RunError(
            f'environment "{found.name}" has other code on the Ray worker '
            f"{socket.gethostname()} than here; install the same version on all nodes"
        )


class TellingVerdicts(Verdicts):
    """The answers of judges that this worker knows; the driver is told of new ones."""

    def __init__(self, tell: Callable[[NewVerdict], None]) -> None:
        super().__init__()
        self._tell = tell
        self._known: dict[str, Message] = {}

    def learn(self, verdicts: Sequence[NewVerdict]) -> None:
        """Take what others were answered."""
        self._known.update((verdict.key, verdict.message) for verdict in verdicts)

    def get(self, key: str) -> Message | None:
        """Give an answer that is known."""
        return self._known.get(key)

    def add(self, key: str, message: Message, *, role: str, model: str) -> None:
        """Take a new answer."""
        self._known[key] = message
        self._tell(NewVerdict(key=key, message=message, role=role, model=model))
