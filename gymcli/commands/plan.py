"""What `gym collect --dry-run` shows: the plan of a run, and the first request to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymcli.commands.console import print_json, result, run_async, warn

if TYPE_CHECKING:
    from gymcli.runner.collection import Collection

__all__ = ["show_plan"]


def show_plan(collection: Collection, *, is_json: bool) -> None:
    """Print what would be done, and the body of the first request."""
    import msgspec

    collection.look()
    for text in collection.warnings:
        warn(text)
    if is_json:
        request = msgspec.Raw(_first_body(collection)) if collection.num_expected else None
        print_json(msgspec.json.encode({"plan": _plan(collection), "request": request}))
        return
    _print_plan(collection)
    if not collection.num_expected:
        return
    result()
    result("the first request, which is not sent:")
    print_json(_first_body(collection))


def _plan(collection: Collection) -> dict[str, object]:
    """Give the plan for `--json`."""
    manifest, endpoint = collection.manifest, collection.options.endpoint
    return {
        "tasks": manifest.tasks,
        "num_tasks": manifest.num_tasks,
        "shard": manifest.shard or None,
        "repeats": collection.options.repeats,
        "num_expected": collection.num_expected,
        "num_scored": collection.num_scored,
        "num_left": collection.num_left,
        "environments": list(manifest.environments),
        "model": manifest.model,
        "base_url": endpoint.base_url if endpoint else None,
        "run": str(collection.path),
    }


def _print_plan(collection: Collection) -> None:
    manifest, options = collection.manifest, collection.options
    files = ", ".join(f"{file['path']} ({file['num_rows']} rows)" for file in manifest.tasks)
    result(f"tasks         {files}")
    repeats = f", {options.repeats} of each" if options.repeats > 1 else ""
    result(f"attempts      {collection.num_expected} of {manifest.num_tasks} tasks{repeats}")
    if manifest.shard:
        result(f"shard         {manifest.shard}")
    if collection.num_scored:
        result(f"scored        {collection.num_scored}, left {collection.num_left}")
    result(f"environments  {', '.join(manifest.environments)}")
    endpoint = options.endpoint
    result(
        f"model         {manifest.model} ({endpoint.base_url if endpoint else 'in this machine'})"
    )
    result(f"run           {collection.path}")


def _first_body(collection: Collection) -> bytes:
    """Give the body of the first request, as it would be sent."""
    from gymcli.models.client import Client
    from gymcli.models.endpoint import Endpoint
    from gymcli.runner.identity import emulates_tools

    options = collection.options
    endpoint = options.endpoint
    shown = endpoint or Endpoint(
        base_url="http://127.0.0.1",
        model=collection.manifest.model,
        emulate_tools=emulates_tools(options),
    )
    request = run_async(collection.first_request())
    return Client(shown, concurrency=1).payload(request)
