"""Trains a tiny model to add, on a CPU: gymcli plays and scores, TRL trains.

`make train` runs this file, and docs/tutorials/training.md explains it. Nothing is downloaded: the
tokenizer and the model are made here. 200 sums are held out; the model is measured on them before
and after it trains on the others.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tiny_model import ModelServer, make_model, make_tokenizer
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerFast, PrinterCallback, Qwen2ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

import gymcli
from datasets import Dataset
from gymcli.training import trl

NUM_HELD_OUT = 200
PARAMS = {"max_tokens": 24}
# TRL's own values are meant for large models on a GPU.
ON_CPU: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
}


def main() -> None:
    """Make a model, warm it up, measure it, train it, and measure it again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=150, help="steps of GRPO (default: 150)")
    parser.add_argument("--two-turns", action="store_true", help="add with a tool")
    parser.add_argument("--shuffled-rewards", action="store_true", help="a control: learn nothing")
    parser.add_argument("--out", type=Path, help="a new folder (default: runs/train-TIME)")
    options = parser.parse_args()
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    versions = [f"{name} {version(name)}" for name in ("torch", "trl", "transformers")]
    print("versions ", *versions)
    env = "arithmetic"
    if options.two_turns:
        env = str(Path(__file__).with_name("adding_machine.py"))
    out: Path = options.out or Path("runs", time.strftime("train-%Y%m%d-%H%M%S"))
    out.mkdir(parents=True)
    write_tasks(out)

    lessons = first_lessons(out, env)
    tokenizer = make_tokenizer([row["prompt"] + row["completion"] for row in lessons])
    model = make_model(tokenizer)
    print("files    ", out)
    print(f"model     {model.num_parameters():,} parameters, {len(tokenizer)} tokens")
    with ModelServer(model, tokenizer) as server:
        endpoint = gymcli.Endpoint(base_url=server.base_url, model="tiny")
        warm_up(model, tokenizer, lessons, WarmEnough(out, env, endpoint))
        before = measure("before", out, env, server)
        played = trl.rollout_func(
            env, out / "train.jsonl", endpoint=endpoint, params=PARAMS, seed=options.seed
        )
        rollouts = CheckedRollouts(played)
        reward = shuffled_reward if options.shuffled_rewards else trl.reward
        train(model, tokenizer, rollouts, reward, options.steps, out)
        played.close()
        after = measure("after", out, env, server)
    model.save_pretrained(out / "model")
    # Apart: in a folder of Qwen2, transformers splits text by the rules of Qwen2.
    tokenizer.save_pretrained(out / "tokenizer")
    gym("compare", before, after, is_shown=True)
    # A wrong id, a lost one or older weights would show here. A control drives the logits so far
    # apart that the rounding of float32 alone may reach this limit.
    if rollouts.largest_difference >= 1e-4 and not options.shuffled_rewards:
        raise SystemExit("the served model is not the one that is trained")


def write_tasks(out: Path) -> None:
    """Write the sums of two numbers from 1 to 49, in random order, to two files.

    The 361 sums that ship with `arithmetic` are too few: the model would learn them by heart.
    """
    sums = [(a, b) for a in range(1, 50) for b in range(1, 50)]
    random.shuffle(sums)
    lines = [
        json.dumps(
            {
                "id": f"{a}+{b}",
                "prompt": f"What is {a} + {b}? Answer with the number.",
                "a": a,
                "b": b,
                "answer": a + b,
            }
        )
        for a, b in sums
    ]
    (out / "held_out.jsonl").write_text("\n".join(lines[:NUM_HELD_OUT]))
    (out / "train.jsonl").write_text("\n".join(lines[NUM_HELD_OUT:]))


def gym(*arguments: object, is_shown: bool = False) -> None:
    """Run a command of gymcli; the verdict of `gym compare` is its exit code, too."""
    command = [str(Path(sys.executable).with_name("gym")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=not is_shown, text=True, check=False)
    if done.returncode and not is_shown:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")


def first_lessons(out: Path, env: str) -> list[dict[str, Any]]:
    """Return the gold answers to the training tasks, a row for each message of the model."""
    gym("collect", out / "train.jsonl", "--env", env, "--model", "oracle", "--out", out / "oracle")
    file = out / "lessons.jsonl"
    gym("export", out / "oracle", "--to", "sft", "--loss", "assistant", "-o", file)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [{name: row[name] for name in ("prompt", "completion")} for row in rows]


def warm_up(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    lessons: list[dict[str, Any]],
    warm_enough: "WarmEnough",
) -> None:
    """Imitate the gold answers: reinforcement needs answers that are right now and then."""
    trainer = SFTTrainer(
        model,
        args=SFTConfig(
            output_dir=str(warm_enough.out),
            per_device_train_batch_size=64,
            learning_rate=3e-3,
            lr_scheduler_type="constant",
            num_train_epochs=100,  # `WarmEnough` ends it much earlier
            logging_strategy="no",
            **ON_CPU,
        ),
        train_dataset=Dataset.from_list(lessons),
        processing_class=tokenizer,
        callbacks=[warm_enough],
    )
    trainer.remove_callback(PrinterCallback)
    started = time.perf_counter()
    trainer.train()
    print(f"warm-up   {trainer.state.global_step} steps, {minutes_since(started)}")


class WarmEnough(TrainerCallback):
    """Ends the warm-up when a quarter of the held-out sums are right."""

    def __init__(self, out: Path, env: str, endpoint: gymcli.Endpoint) -> None:
        self.out, self.env, self.endpoint = out, env, endpoint

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure at every tenth step."""
        if state.global_step % 10 == 0 and asyncio.run(self._share_right()) >= 0.25:
            control.should_training_stop = True

    async def _share_right(self) -> float:
        tasks = self.out / "held_out.jsonl"
        records = gymcli.collect(tasks, env=self.env, endpoint=self.endpoint, params=PARAMS)
        rewards = [one.reward async for one in records if isinstance(one, gymcli.Rollout)]
        return sum(rewards) / NUM_HELD_OUT


def measure(name: str, out: Path, env: str, server: ModelServer) -> Path:
    """Play every held-out task four times, and return the run."""
    run = out / name
    model = ("--model", "tiny", "--base-url", server.base_url)
    sampling = ("--record-tokens", "--max-tokens", PARAMS["max_tokens"], "--repeats", 4)
    gym("collect", out / "held_out.jsonl", "--env", env, *model, *sampling, "--out", run)
    return run


class CheckedRollouts:
    """Rollouts for TRL; the trainer's own log-probabilities are compared with the served ones."""

    def __init__(self, played: trl.RolloutFunction) -> None:
        self.played = played
        self.largest_difference = 0.0
        self.num_changed = 0
        """Completions whose text has other token ids than those that were sampled."""

    @torch.no_grad()
    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """Play the episodes of a batch."""
        columns = self.played(prompts, trainer)
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
        rows = list(zip(*(columns[name] for name in names), strict=True))
        # Padded at the end, where a causal model does not look.
        ids = [torch.tensor(prompt + completion) for prompt, completion, _, _ in rows]
        computed = trainer.model(pad_sequence(ids, batch_first=True)).logits.log_softmax(-1)
        tokenizer = trainer.processing_class
        for row, (prompt, completion, served, mask) in zip(computed, rows, strict=True):
            places = torch.arange(len(completion)) + len(prompt) - 1
            differences = (row[places, completion] - torch.tensor(served)).abs()
            largest = (differences * torch.tensor(mask)).max().item()
            self.largest_difference = max(self.largest_difference, largest)
            self.num_changed += tokenizer.encode(tokenizer.decode(completion)) != completion
        return columns


def shuffled_reward(**columns: Any) -> list[float | None]:
    """Return the rewards of other completions of the batch, which teach nothing."""
    rewards = trl.reward(**columns)
    return random.sample(rewards, len(rewards))


def train(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    rollouts: CheckedRollouts,
    reward: Any,
    steps: int,
    out: Path,
) -> None:
    """Train by GRPO: 32 tasks a step, 8 attempts each, compared with each other."""
    trainer = GRPOTrainer(
        model,
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(out),
            per_device_train_batch_size=256,
            num_generations=8,
            max_steps=steps,
            learning_rate=1e-3,
            logging_steps=1,
            **ON_CPU,
        ),
        train_dataset=trl.dataset(out / "train.jsonl", env=rollouts.played.sampler.options.env),
        processing_class=tokenizer,
        rollout_func=rollouts,
        callbacks=[RewardProgress()],
    )
    trainer.remove_callback(PrinterCallback)
    started = time.perf_counter()
    trainer.train()
    counts = ", ".join(f"{number} {name}" for name, number in rollouts.played.counts.items())
    print(f"training  {steps} steps, {counts}, {minutes_since(started)}")
    print(f"checked   log-probabilities differ by at most {rollouts.largest_difference:.1e}")
    print(f"          {rollouts.num_changed} completions would be tokenised to other ids")


class RewardProgress(TrainerCallback):
    """Prints the reward of every tenth step."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Print a line."""
        if "reward" in logs and state.global_step % 10 == 0:
            print(f"step {state.global_step:<4} reward {logs['reward']:.2f}", flush=True)


def minutes_since(started: float) -> str:
    """Return the time since then as text."""
    return f"{(time.perf_counter() - started) / 60:.1f} minutes"


if __name__ == "__main__":
    main()
