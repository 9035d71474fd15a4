"""An environment whose error quotes a secret; workers import this module, so it stays small."""

from gymcli import Environment, Task


class Leaking(Environment[Task]):
    """Say anything."""

    @classmethod
    async def verify(cls, rollout, context):
        raise RuntimeError("sk-0123-4567-89ab")

    @classmethod
    def generate(cls, rng, num):
        for number in range(num):
            yield {"id": f"t{number}", "prompt": f"Task {number}?"}
