"""An OpenAI-compatible server on loopback that can be scripted and made to fail."""

from gymcli.mock.behaviours import Behaviour, MockAnswer, echo, fixed, in_order, scripted
from gymcli.mock.faults import Faults
from gymcli.mock.latency import Latency
from gymcli.mock.outage import Outage
from gymcli.mock.process import serve
from gymcli.mock.recording import Recorder
from gymcli.mock.script import parse_behaviour
from gymcli.mock.server import MockServer, Received
from gymcli.mock.stats import Exchange, Stats

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
    "echo",
    "fixed",
    "in_order",
    "parse_behaviour",
    "scripted",
    "serve",
]
