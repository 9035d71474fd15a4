"""Draws numbers that depend on what is asked, and not on when or in which order."""

from __future__ import annotations

import hashlib

__all__ = ["body_hash", "draw"]

_BITS = 52  # half a step above them still fits a float, so that no draw is 0 or 1


def body_hash(body: bytes) -> str:
    """Give 16 hex digits that stand for a request's body."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def draw(seed: int, purpose: str, body: str, occurrence: int) -> float:
    """Give a number above 0 and below 1, the same for the same arguments.

    Args:
        seed: Of the server.
        purpose: What is decided; draws for different purposes know nothing of each other.
        body: The hash of the request's body.
        occurrence: How many requests of this body came before.

    """
    text = f"{seed} {purpose} {body} {occurrence}"
    found = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return ((found >> (64 - _BITS)) + 0.5) / (1 << _BITS)
