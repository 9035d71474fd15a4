"""Asks an endpoint for one message: HTTP, retries, timeouts, and where endpoints are named."""

from gymcli.client.endpoint import SCALAR_DIALECTS, Endpoint
from gymcli.client.http import Client
from gymcli.client.retry import is_unreachable
from gymcli.client.served import served_model
from gymcli.client.settings import ModelSettings, Settings, load_settings, resolve_endpoint
from gymcli.client.statuses import is_fatal

__all__ = [
    "SCALAR_DIALECTS",
    "Client",
    "Endpoint",
    "ModelSettings",
    "Settings",
    "is_fatal",
    "is_unreachable",
    "load_settings",
    "resolve_endpoint",
    "served_model",
]
