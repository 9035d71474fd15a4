"""Fixtures that several packages of tests use, and the event loop of tests that are async."""

import asyncio
import contextlib
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from gymcli.mock import MockServer
from gymcli.mock.process import serving

# A busy machine may be slow with one example; speed is measured in bench/.
hypothesis.settings.register_profile("thorough", deadline=None)
# Here each run draws other examples, so many short runs check a law as well as a long one; in CI,
# Hypothesis draws the same ones each time.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=25)
hypothesis.settings.load_profile("thorough" if os.environ.get("CI") else "quick")


Recording = Callable[[MockServer], object]

_RAY_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
}

_RAY_HEAD = """
import sys, ray
context = ray.init(
    address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
    object_store_memory=100 * 2**20, _temp_dir=sys.argv[1], _node_ip_address="127.0.0.1",
)
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is async on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture(scope="session", autouse=True)
def no_width() -> None:
    """Make results as wide as they are, as in a pipe: pytest-xdist sets COLUMNS in its workers."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session", autouse=True)
def no_certificates() -> None:
    """Spare hundreds of processes the system's certificates, which aiohttp reads at import.

    Only tests on loopback ask over TLS, with a certificate of their own.
    """
    os.environ["SSL_CERT_FILE"] = os.devnull


@pytest.fixture(autouse=True)
def import_path() -> Iterator[None]:
    """Take the folders of environments that a test loaded out of the import path again."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def closed_workers() -> Iterator[None]:
    """Close the shared workers after the tests, if any test used them."""
    yield
    # Not imported at the top: most tests score nothing.
    if pooled := sys.modules.get("tests.pooled"):
        pooled.close_pool()


@pytest.fixture
def mock_server() -> Iterator[MockServer]:
    """Yield a mock server in a thread; set its `behaviour` before asking it.

    It echoes by default. For tests that are not async, such as those of commands.
    """
    with serving(MockServer()) as server:
        yield server


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Recording], None]:
    """Return a function that copies what a function writes into the working directory.

    The function is called once for all tests, in a folder of its own, with a mock server.
    """
    folders: dict[Recording, Path] = {}

    def copy(record: Recording) -> None:
        if record not in folders:
            folder = tmp_path_factory.mktemp("recorded").resolve()
            with contextlib.chdir(folder), serving(MockServer()) as server:
                record(server)
            folders[record] = folder
        shutil.copytree(folders[record], Path(), dirs_exist_ok=True)
        for manifest in Path().rglob("run.json"):
            text = manifest.read_text(encoding="utf-8")
            manifest.write_text(text.replace(str(folders[record]), str(Path.cwd())))

    return copy


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """Yield the address of a cluster with two cores; it ends with the tests.

    Ray must not be imported earlier: at import it reads the variable that keeps it on the loopback
    address.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder,
    ):
        for name, value in _RAY_SETTINGS.items():
            patch.setenv(name, value)
        command = [sys.executable, "-c", _RAY_HEAD, folder]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as head:
            assert head.stdin is not None
            assert head.stdout is not None
            yield head.stdout.readline().decode().strip()
            head.stdin.close()
            head.wait()
