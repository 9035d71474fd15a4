"""The policy of a collection: where it is asked."""

from __future__ import annotations

from gymcli.errors import UsageError
from gymcli.models.local_model import has_tool_template, parse_local
from gymcli.models.roles import ModelSource
from gymcli.runner.options import CollectOptions

__all__ = ["emulates_tools", "policy_source", "sends_no_key"]


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


def emulates_tools(options: CollectOptions) -> bool:
    """Say whether tools go into the policy's prompt."""
    if options.endpoint is not None:
        return options.endpoint.emulate_tools
    weights = parse_local(options.model)
    return weights is not None and not has_tool_template(weights)


def sends_no_key(options: CollectOptions) -> bool:
    """Say whether nothing that is sent to the policy's endpoint could be a key."""
    endpoint = options.endpoint
    return endpoint is not None and not (endpoint.api_key or endpoint.headers or endpoint.query)
