"""Tests of the container files: their commands exist, and the health check works."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from tests.builders import gym
from tests.serving.asking import Served

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())


def instruction(name):
    """Return the last instruction of this name, with its continued lines joined."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^\s*{name} +(.+)$", joined, re.MULTILINE)[-1].strip()


PAGES = ("docs/serving.md", "docs/deployment.md")


def commands_of_pages():
    """Return every `gym` command line on the pages about serving and deployment."""
    for page in PAGES:
        text = (ROOT / page).read_text().replace("\\\n", " ")
        for found in re.finditer(r"^\s*(?:\$ |srun )?gym (.+)$", text, re.MULTILINE):
            yield found[1].split()


def commands_of_containers():
    yield msgspec.json.decode(instruction("CMD"))
    for service in COMPOSE["services"].values():
        [*lines] = service["command"]
        if service.get("entrypoint") is None:
            yield lines
        else:
            yield from (line.split()[1:] for line in lines[0].splitlines())


@pytest.mark.parametrize("arguments", [*commands_of_containers(), *commands_of_pages()])
def test_the_command_exists(arguments):
    """An unknown option ends a command before its help is shown."""
    assert f"Usage: gym {arguments[0]}" in gym(*arguments, "--help", exit_code=0).stdout


def test_what_the_pages_deploy_is_yaml():
    text = (ROOT / "docs/deployment.md").read_text()
    blocks = re.findall(r"```yaml\n(.+?)```", text, re.DOTALL)
    kinds = [item["kind"] for block in blocks for item in yaml.safe_load_all(block)]
    assert kinds == ["Job", "Deployment", "Service", "NetworkPolicy"]
    [job, _] = [next(yaml.safe_load_all(block)) for block in blocks]
    [script] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    words = script.removeprefix("exec gym ").split()
    gym(*words, "--help", exit_code=0)


def test_the_image_runs_gym_as_a_user_of_its_own():
    assert msgspec.json.decode(instruction("ENTRYPOINT")) == ["gym"]
    assert instruction("USER") == "gym"
    assert instruction("EXPOSE") == "8000"
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed


def test_the_jobs_wait_for_servers_that_there_are():
    services = COMPOSE["services"]
    assert set(services["collect"]["depends_on"]) == {"mcqa", "counter"}
    urls = re.findall(r"http://(\w+):(\d+)", services["collect"]["command"][0])
    for name, port in urls:
        command = services[name]["command"]
        assert command[command.index("--port") + 1] == port
        assert command[command.index("--host") + 1] == "0.0.0.0"


async def test_the_health_check_tells_up_from_down():
    found = re.search(r"HEALTHCHECK .*CMD (\[.+\])$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)
    python, option, script = msgspec.json.decode(found[1])
    assert (python, option) == ("python", "-c")
    async with Served("Plain") as server:
        port = server.base_url.rpartition(":")[2]
        up = await asyncio.to_thread(exit_code, script.replace(":8000/", f":{port}/"))
    assert (up, await asyncio.to_thread(exit_code, script.replace(":8000/", f":{port}/"))) == (0, 1)


def exit_code(script):
    return subprocess.run([sys.executable, "-c", script], capture_output=True).returncode
