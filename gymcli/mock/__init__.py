"""An OpenAI-compatible server on loopback that can be scripted and made to fail.

The public names are imported on first use, which keeps `gym mock --help` fast.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gymcli.mock.behaviours import Behaviour as Behaviour
    from gymcli.mock.behaviours import MockAnswer as MockAnswer
    from gymcli.mock.behaviours import echo as echo
    from gymcli.mock.behaviours import fixed as fixed
    from gymcli.mock.behaviours import in_order as in_order
    from gymcli.mock.behaviours import parse_behaviour as parse_behaviour
    from gymcli.mock.behaviours import scripted as scripted
    from gymcli.mock.faults import Faults as Faults
    from gymcli.mock.faults import Latency as Latency
    from gymcli.mock.faults import Outage as Outage
    from gymcli.mock.process import serve as serve
    from gymcli.mock.recording import Exchange as Exchange
    from gymcli.mock.recording import Recorder as Recorder
    from gymcli.mock.recording import Stats as Stats
    from gymcli.mock.server import MockServer as MockServer
    from gymcli.mock.server import Received as Received
    from gymcli.mock.tokenizer import TokenSampler as TokenSampler

_NAMES = {
    "behaviours": "Behaviour MockAnswer echo fixed in_order parse_behaviour scripted",
    "faults": "Faults Latency Outage",
    "process": "serve",
    "recording": "Exchange Recorder Stats",
    "server": "MockServer Received",
    "tokenizer": "TokenSampler",
}
"""The public names of each module."""

_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"gymcli.mock.{_MODULES[name]}"), name)
