"""Turns content parts between chat shape and Responses shape."""

from __future__ import annotations

from gymcli.nemo_gym.payload import object_in, text_in
from gymcli.types import JSONObject

__all__ = ["part_from_responses", "part_to_responses", "refusal_in"]

_OUTPUT_ONLY = ("annotations", "logprobs")
"""What Responses text parts carry and chat endpoints refuse."""


def part_from_responses(part: JSONObject) -> JSONObject:
    """Give a content part in chat shape; one that has no such shape stays as it is."""
    rest = {key: value for key, value in part.items() if key != "type"}
    match part.get("type"):
        case "input_text" | "output_text":
            kept = {key: value for key, value in rest.items() if key not in _OUTPUT_ONLY}
            return {"type": "text", **kept}
        case "input_image" if isinstance(rest.get("image_url"), str):
            url = rest.pop("image_url")
            detail = rest.pop("detail", None)
            image = {"url": url} if detail is None else {"url": url, "detail": detail}
            return {"type": "image_url", "image_url": image, **rest}
        case "input_file":
            return {"type": "file", "file": rest}
        case _:  # input_audio is the same in both
            return part


def part_to_responses(part: JSONObject, role: str) -> JSONObject:
    """Give a chat content part in Responses shape; others stay as they are."""
    rest = {key: value for key, value in part.items() if key != "type"}
    match part.get("type"):
        case "text":
            return {"type": "output_text" if role == "assistant" else "input_text", **rest}
        case "image_url" if "url" in object_in(rest.get("image_url")):
            image = dict(object_in(rest.pop("image_url")))
            return {"type": "input_image", "image_url": image.pop("url"), **image, **rest}
        case "image_url":  # some write the address itself
            return {"type": "input_image", **rest}
        case "file" if isinstance(rest.get("file"), dict):
            file = object_in(rest.pop("file"))
            return {"type": "input_file", **file, **rest}
        case _:
            return part


def refusal_in(parts: list[JSONObject]) -> str:
    """Join the refusals among the parts of an assistant message."""
    return "".join(text_in(p.get("refusal")) for p in parts if p.get("type") == "refusal")
