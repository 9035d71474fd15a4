"""Environments that run on a server elsewhere, in NeMo Gym's resources-server protocol."""

from gymcli.remote.environment import RemoteEnvironment, remote_environment
from gymcli.remote.reverification import ReverifyMode, reverify_mode

__all__ = ["RemoteEnvironment", "ReverifyMode", "remote_environment", "reverify_mode"]
