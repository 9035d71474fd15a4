"""Trains a tiny model to add, on a CPU: gymcli plays, TRL trains.

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
from datasets import Dataset
from tiny_model import Server, make_model, make_tokenizer
from torch.nn.utils.rnn import pad_sequence
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

import gymcli
from gymcli.training import trl

NUM_HELD_OUT = 200
PARAMS = {"max_tokens": 24}
# TRL's own values are meant for large models on a GPU.
ON_CPU: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "lr_scheduler_type": "constant",
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
}


def main() -> None:
    """Make a model, warm it up, measure it, train it, and measure it again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=150, help="steps of GRPO")
    parser.add_argument("--two-turns", action="store_true", help="add with a tool")
    parser.add_argument("--shuffled-rewards", action="store_true", help="a control: learn nothing")
    parser.add_argument("--out", type=Path, required=True, help="a new folder for all files")
    options = parser.parse_args()
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    packages = ("torch", "trl", "transformers", "gymcli")
    print("versions", *(f"{name} {version(name)}" for name in packages))
    options.out.mkdir(parents=True)
    tutorial = Path(__file__).parent
    env = str(tutorial / "adding_machine.py") if options.two_turns else "arithmetic"
    write_tasks(options.out)
    train, held_out = options.out / "train.jsonl", options.out / "held_out.jsonl"

    # The first lessons: the gold answers to the training tasks, a row for each message of the model.
    oracle, sft = options.out / "oracle", options.out / "sft.jsonl"
    gym("collect", train, "--env", env, "--model", "oracle", "--out", oracle)
    gym("export", oracle, "--to", "sft", "--loss", "assistant", "-o", sft)
    rows = [json.loads(line) for line in sft.read_text().splitlines()]
    lessons = [{name: row[name] for name in ("prompt", "completion")} for row in rows]
    tokenizer = make_tokenizer([row["prompt"] + row["completion"] for row in lessons])
    model = make_model(tokenizer)
    print("model   ", f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens")

    with Server(model, tokenizer) as server:
        endpoint = gymcli.Endpoint(base_url=server.base_url, model="tiny")

        def measure(name: str) -> Path:
            run = options.out / name
            model_options = ("--model", "tiny", "--base-url", server.base_url)
            sampling = ("--record-tokens", "--max-tokens", PARAMS["max_tokens"], "--repeats", 4)
            gym("collect", held_out, "--env", env, *model_options, *sampling, "--out", run)
            return run

        warmed_up = WarmedUp(held_out, env, endpoint)
        trainer = SFTTrainer(
            model,
            args=SFTConfig(
                output_dir=str(options.out),
                per_device_train_batch_size=64,
                learning_rate=3e-3,
                num_train_epochs=100,
                logging_strategy="no",
                seed=options.seed,
                **ON_CPU,
            ),
            train_dataset=Dataset.from_list(lessons),
            processing_class=tokenizer,
            callbacks=[warmed_up],
        )
        trainer.remove_callback(PrinterCallback)
        started = time.perf_counter()
        trainer.train()
        show("warm-up", f"{trainer.state.global_step} steps", started)
        before = measure("before")

        rollouts = CheckedRollouts(
            trl.rollout_func(env, train, endpoint=endpoint, params=PARAMS, seed=options.seed)
        )
        trainer = GRPOTrainer(
            model,
            reward_funcs=shuffled_reward if options.shuffled_rewards else trl.reward,
            args=GRPOConfig(
                output_dir=str(options.out),
                per_device_train_batch_size=256,
                num_generations=8,
                max_steps=options.steps,
                learning_rate=1e-3,
                logging_steps=1,
                seed=options.seed,
                **ON_CPU,
            ),
            train_dataset=trl.dataset(train, env=env),
            processing_class=tokenizer,
            rollout_func=rollouts,
            callbacks=[Progress()],
        )
        trainer.remove_callback(PrinterCallback)
        started = time.perf_counter()
        trainer.train()
        show("training", f"{options.steps} steps, {dict(rollouts.rollouts.counts)}", started)
        rollouts.rollouts.close()
        after = measure("after")

    print("served and trained log-probabilities differ by at most", rollouts.largest_difference)
    print("completions that re-tokenise to other ids:", rollouts.num_changed)
    gym("compare", before, after, is_shown=True)
    if not rollouts.largest_difference < 1e-4:
        raise SystemExit("the server does not sample from the model that is trained")


def write_tasks(folder: Path) -> None:
    """Write the sums of two numbers from 1 to 49, in random order, to two files."""
    sums = [(a, b) for a in range(1, 50) for b in range(1, 50)]
    random.shuffle(sums)
    rows = [
        {
            "id": f"{a}+{b}",
            "prompt": f"What is {a} + {b}? Answer with the number.",
            "a": a,
            "b": b,
            "answer": a + b,
        }
        for a, b in sums
    ]
    lines = [json.dumps(row) + "\n" for row in rows]
    (folder / "held_out.jsonl").write_text("".join(lines[:NUM_HELD_OUT]))
    (folder / "train.jsonl").write_text("".join(lines[NUM_HELD_OUT:]))


def gym(*arguments: object, is_shown: bool = False) -> None:
    """Run a command of gymcli; the verdict of `gym compare` is its exit code, too."""
    command = [str(Path(sys.executable).with_name("gym")), *map(str, arguments)]
    done = subprocess.run(command, capture_output=not is_shown, text=True, check=False)
    if done.returncode and not is_shown:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")


def show(what: str, how_much: str, started: float) -> None:
    print(f"{what:9}", how_much, f"{(time.perf_counter() - started) / 60:.1f} minutes", sep=", ")


class WarmedUp(TrainerCallback):
    """Ends SFT when a quarter of the held-out sums are right: enough to have something to reward."""

    def __init__(self, tasks: Path, env: str, endpoint: gymcli.Endpoint) -> None:
        self.tasks, self.env, self.endpoint = tasks, env, endpoint

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % 25 == 0 and asyncio.run(self.share_right()) >= 0.25:
            control.should_training_stop = True

    async def share_right(self) -> float:
        records = gymcli.collect(
            self.tasks, env=self.env, endpoint=self.endpoint, params=PARAMS
        )
        rewards = [one.reward async for one in records if isinstance(one, gymcli.Rollout)]
        return sum(rewards) / NUM_HELD_OUT


class Progress(TrainerCallback):
    """Prints the reward of every tenth step."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "reward" in logs and state.global_step % 10 == 0:
            print(f"step {state.global_step:<4} reward {logs['reward']:.2f}", flush=True)


def shuffled_reward(**columns: Any) -> list[float | None]:
    """Return the rewards of other completions of the batch: nothing can be learnt from them."""
    rewards = trl.reward(**columns)
    return random.sample(rewards, len(rewards))


class CheckedRollouts:
    """Rollouts for TRL, compared with what the trainer computes from the same ids."""

    def __init__(self, rollouts: trl.RolloutFunction) -> None:
        self.rollouts = rollouts
        self.largest_difference = 0.0
        self.num_changed = 0

    @torch.no_grad()
    def __call__(self, prompts: list[str], trainer: GRPOTrainer) -> dict[str, list[Any]]:
        """Play a batch; a wrong id, a lost one or other weights would show in a probability."""
        rows = self.rollouts(prompts, trainer)
        names = ("prompt_ids", "completion_ids", "logprobs", "env_mask")
        batch = list(zip(*(rows[name] for name in names), strict=True))
        # Padded at the end, where a causal model does not look.
        ids = [torch.tensor(prompt + completion) for prompt, completion, _, _ in batch]
        computed = trainer.model(pad_sequence(ids, batch_first=True)).logits.log_softmax(-1)
        tokenizer = trainer.processing_class
        for row, (prompt, completion, served, mask) in zip(computed, batch, strict=True):
            places = torch.arange(len(completion)) + len(prompt) - 1
            difference = row[places, completion] - torch.tensor(served)
            largest = (difference.abs() * torch.tensor(mask)).max().item()
            self.largest_difference = max(self.largest_difference, largest)
            self.num_changed += tokenizer.encode(tokenizer.decode(completion)) != completion
        return rows


if __name__ == "__main__":
    main()
