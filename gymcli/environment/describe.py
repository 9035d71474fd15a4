"""What an environment says of itself, and the tasks that ship with it."""

from __future__ import annotations

import inspect
from pathlib import Path

import gymcli.envs
from gymcli.environment.find import Found, candidates
from gymcli.types import JSONObject

__all__ = ["describe", "own_tasks", "shipped_tasks"]


def shipped_tasks(name: str) -> Path | None:
    """Give the tasks file that ships with a built-in environment, if there is one."""
    package = Path(gymcli.envs.__file__ or "").parent
    for folder in (package / "_datasets", package.parent / "datasets"):
        # Plain names only: `/somewhere` joined to a folder is not in it.
        for candidate in (c for c in candidates(name) if Path(c).name == c):
            path = folder / candidate / "tasks.jsonl"
            if path.is_file():
                return path
    return None


def own_tasks(found: Found) -> Path | None:
    """Give the tasks file that ships with an environment, if there is one.

    An environment of somebody else's has none, even if it bears the name of one of ours.
    """
    is_ours = found.environment.__module__.startswith("gymcli.envs.")
    return shipped_tasks(found.name) if is_ours else None


def describe(found: Found) -> JSONObject:
    """Give what `gym envs` shows of an environment."""
    environment = found.environment
    lines = (inspect.getdoc(environment) or "").splitlines()
    tasks = own_tasks(found)
    return {
        "name": found.name,
        "description": lines[0] if lines else "",
        "version": environment.version,
        "max_reward": environment.max_reward,
        "tools": list(environment.method_tools()),
        "options": {
            name: field.annotation.__name__
            if inspect.isclass(field.annotation)
            else str(field.annotation)
            for name, field in environment.Options.model_fields.items()
        },
        "roles": [
            *environment.required_roles,
            *(f"{role} (optional)" for role in environment.optional_roles),
        ],
        "rescore": environment.rescore,
        **environment.properties._asdict(),
        "skipped_checks": dict(environment.skipped_checks),
        "tasks": str(tasks) if tasks else None,
    }
