"""The embedded model: a small real model on loopback, gone when the command ends."""

from gymcli.local.server import LocalServer
from gymcli.local.weights import (
    DEFAULT,
    default_weights,
    has_tool_template,
    model_name,
    parse_local,
)

__all__ = [
    "DEFAULT",
    "LocalServer",
    "default_weights",
    "has_tool_template",
    "model_name",
    "parse_local",
]
