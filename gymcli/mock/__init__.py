"""An OpenAI-compatible server on loopback that can be scripted and made to fail."""

from gymcli.mock.behaviours import Behaviour, MockAnswer, echo, fixed, in_order, scripted
from gymcli.mock.server import MockServer, Received

__all__ = [
    "Behaviour",
    "MockAnswer",
    "MockServer",
    "Received",
    "echo",
    "fixed",
    "in_order",
    "scripted",
]
