"""Token sequences: what of an attempt can be trained in one pass.

The next prompt of a conversation should begin with the last prompt and its sample. Where it does
not, the history was rendered again (re-tokenised, re-templated) or rewritten, and what the engine
saw differs from what it had sampled. The rule is that of TRL 1.16's `_chain_to_sequences`
(`trl.experimental.async_grpo`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gymcli.store.tokens import TokenCall, check_shared
from gymcli.types import Rollout, StopReason

FORK_THRESHOLD = 1024
"""From this many changed ids at the end of a sample on, a new sequence begins."""


class TokenSequence(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Token ids to be trained in one pass; the three lists have the same length."""

    input_ids: list[int]
    loss_mask: list[int]
    """1 for ids that the policy sampled, 0 for prompts and what the environment said."""
    logprobs: list[float]
    """Of the sampled ids, as the engine reported them; 0.0 where the mask is 0."""
    prompt_length: int
    """The length of its first prompt."""
    calls: list[int] = []
    """The numbers of its calls."""
    weight_version: str = ""
    """Of its first call."""
    stop_reason: StopReason | None = None
    """Why the episode ended."""
    off_policy: str = ""
    """Why some of the log-probabilities are not those of the distribution sampled from."""

    @property
    def is_cut(self) -> bool:
        """Whether the episode was cut off or refused instead of ending by itself."""
        return self.stop_reason not in ("done", "env_done")


def sequences(rollout: Rollout, calls: Iterable[TokenCall]) -> list[TokenSequence]:
    """Return the sequences of a scored attempt; none if it has no score.

    A call whose prompt begins with the whole sequence so far continues it. Where only the end of
    the last sample changed, by less than `FORK_THRESHOLD` ids, the prompt's ids replace it and are
    masked; any other change begins a new sequence. No sampled id is trained twice.

    `calls` are those of the play that counts, in order; those with a problem are skipped.

    Raises:
        RunFileError: A call claims to share more ids than the call before has.
    """
    token_sequences: list[TokenSequence] = []
    if rollout.reward is None:
        return token_sequences
    held: list[int] = []  # the ids of the last call, which are those of the last sequence
    last_sample = 0
    for call in calls:
        if call.problem:
            continue
        check_shared(call, len(held))
        changed = len(held) - call.num_shared
        is_new = not token_sequences or (
            changed and (call.num_shared < last_sample or changed >= FORK_THRESHOLD)
        )
        if is_new:
            prompt = held[: call.num_shared] + call.added
            token_sequences.append(
                TokenSequence(
                    input_ids=list(prompt),
                    loss_mask=[0] * len(prompt),
                    logprobs=[0.0] * len(prompt),
                    prompt_length=len(prompt),
                    weight_version=call.weight_version,
                    stop_reason=rollout.stop_reason,
                )
            )
        sequence = token_sequences[-1]
        if not is_new:
            sequence.input_ids[call.num_shared :] = call.added
            sequence.loss_mask[call.num_shared :] = [0] * len(call.added)
            sequence.logprobs[call.num_shared :] = [0.0] * len(call.added)
        sequence.calls.append(call.call)
        last_sample = len(sequence.input_ids)
        sequence.input_ids += call.sampled
        sequence.loss_mask += [1] * len(call.sampled)
        sequence.logprobs += call.logprobs
        sequence.off_policy = sequence.off_policy or call.off_policy
        held = sequence.input_ids
    return token_sequences
