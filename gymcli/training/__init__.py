"""Rollouts for training: token sequences, a sampler for a training loop, and hooks for TRL."""

from gymcli.store.sequences import TokenSequence, sequences
from gymcli.store.tokens import TokenCall, TokenFile

__all__ = ["TokenCall", "TokenFile", "TokenSequence", "sequences"]
