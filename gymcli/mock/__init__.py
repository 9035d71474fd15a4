"""An OpenAI-compatible server on loopback that can be scripted and made to fail."""

from gymcli.mock.behaviours import (
    Behaviour,
    MockAnswer,
    echo,
    fixed,
    in_order,
    parse_behaviour,
    scripted,
)
from gymcli.mock.faults import Faults, Latency, Outage
from gymcli.mock.process import serve
from gymcli.mock.recording import Exchange, Recorder, Stats
from gymcli.mock.server import MockServer, Received
from gymcli.mock.tokenizer import TokenSampler

__all__ = [
    "Behaviour",
    "Exchange",
    "Faults",
    "Latency",
    "MockAnswer",
    "MockServer",
    "Outage",
    "Received",
    "Recorder",
    "Stats",
    "TokenSampler",
    "echo",
    "fixed",
    "in_order",
    "parse_behaviour",
    "scripted",
    "serve",
]
