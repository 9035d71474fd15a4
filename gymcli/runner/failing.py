"""What is recorded of an attempt that could not be scored, and what of it the run should know."""

from __future__ import annotations

from gymcli.errors import (
    AttemptError,
    EndpointGoneError,
    ModelError,
    RoleError,
    UnknownUsageError,
    frames_of,
)
from gymcli.models.api_errors import is_fatal, is_unreachable
from gymcli.types import ErrorRecord, Failure, Rollout

__all__ = ["POLICY", "cause_of", "failure_of", "fatal_error", "role_of"]

POLICY = ""
"""The policy, where roles are named."""


def fatal_error(error: AttemptError) -> AttemptError | None:
    """Return an error that every further attempt may meet as well, of the policy or of a role."""
    cause = cause_of(error)
    if isinstance(cause, UnknownUsageError):
        return error
    if isinstance(cause, ModelError) and (is_fatal(cause) or is_unreachable(cause)):
        return error
    return None


def cause_of(error: AttemptError) -> BaseException | None:
    """Give the client's error behind that of a role; any other error as it is."""
    return error.__cause__ if isinstance(error, RoleError) else error


def role_of(error: AttemptError) -> str:
    """Return the role whose model failed, with which its error begins, or `POLICY`."""
    return str(error).partition(":")[0] if isinstance(error, RoleError) else POLICY


def failure_of(rollout: Rollout, error: AttemptError) -> Failure:
    """Give the record of an attempt that could not be scored."""
    cause = cause_of(error)
    named = cause if isinstance(cause, EndpointGoneError) else error  # that it ended the run
    return Failure(
        schema_version=rollout.schema_version,
        task_id=rollout.task_id,
        task_hash=rollout.task_hash,
        attempt=rollout.attempt,
        env=rollout.env,
        env_version=rollout.env_version,
        env_options=rollout.env_options,
        seed=rollout.seed,
        error=ErrorRecord(
            error_class=type(named).__name__,
            phase=error.phase,
            # An exception may say what cannot be encoded.
            message=str(error).encode(errors="replace").decode(),
            status=cause.status if isinstance(cause, ModelError) else None,
            frames=frames_of(error),
        ),
        messages=rollout.messages,
        redacted=rollout.redacted,
        model=rollout.model,
        usage=rollout.usage,
        calls=rollout.calls,
        cost=rollout.cost,
        role_usage=rollout.role_usage,
        timing=rollout.timing,
        retries=rollout.retries,
    )
