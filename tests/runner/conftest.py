"""A local Ray cluster, shared by all tests that join one."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

_SETTINGS = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
}

_HEAD = """
import sys, ray
context = ray.init(
    address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
    object_store_memory=100 * 2**20, _temp_dir=sys.argv[1], _node_ip_address="127.0.0.1",
)
print(context.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


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
        for name, value in _SETTINGS.items():
            patch.setenv(name, value)
        command = [sys.executable, "-c", _HEAD, folder]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as head:
            assert head.stdin is not None
            assert head.stdout is not None
            yield head.stdout.readline().decode().strip()
            head.stdin.close()
            head.wait()
