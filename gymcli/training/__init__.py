"""Rollouts for training: token sequences, a sampler for a training loop, and hooks for TRL."""

from gymcli.store.sequences import TokenSequence, sequences
from gymcli.store.tokens import TokenCall, TokenFile
from gymcli.training.sampler import SampledRollout, Sampler
from gymcli.types import SampledMessage, Tokens

__all__ = [
    "SampledMessage",
    "SampledRollout",
    "Sampler",
    "TokenCall",
    "TokenFile",
    "TokenSequence",
    "Tokens",
    "sequences",
]
