"""Environments that run on a server elsewhere, in NeMo Gym's resources-server protocol."""

from gymcli.remote.environment import (
    RemoteEnvironment,
    ReverifyMode,
    remote_environment,
    reverify_mode,
)

__all__ = ["RemoteEnvironment", "ReverifyMode", "remote_environment", "reverify_mode"]
