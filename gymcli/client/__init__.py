"""Asks endpoints for messages: HTTP, limits, retries, outages, and where endpoints are named."""

from gymcli.client.client import Client, Conversation
from gymcli.client.endpoint import SCALAR_DIALECTS, Endpoint
from gymcli.client.governors import Governors
from gymcli.client.limits import Limits
from gymcli.client.served import served_model
from gymcli.client.settings import ModelSettings, Settings, load_settings, resolve_endpoint
from gymcli.client.signs import is_unreachable
from gymcli.client.statuses import is_fatal

__all__ = [
    "SCALAR_DIALECTS",
    "Client",
    "Conversation",
    "Endpoint",
    "Governors",
    "Limits",
    "ModelSettings",
    "Settings",
    "is_fatal",
    "is_unreachable",
    "load_settings",
    "resolve_endpoint",
    "served_model",
]
