"""The policy of a collection: where it is asked."""

from __future__ import annotations

from gymcli.errors import UsageError
from gymcli.local import parse_local
from gymcli.role_models import ModelSource
from gymcli.runner.options import CollectOptions

__all__ = ["policy_source", "sends_no_key"]


def policy_source(options: CollectOptions) -> ModelSource | None:
    """Give what the policy is opened as; None: the environment's oracle plays.

    Raises:
        UsageError: It needs an endpoint, and there is none.

    """
    if options.model == "oracle":
        return None
    source = parse_local(options.model) or options.endpoint
    if source is None:
        raise UsageError(f"the model {options.model} needs an endpoint; give one")
    return source


def sends_no_key(options: CollectOptions) -> bool:
    """Say whether nothing that is sent to the policy's endpoint could be a key."""
    endpoint = options.endpoint
    return endpoint is not None and not (endpoint.api_key or endpoint.headers or endpoint.query)
