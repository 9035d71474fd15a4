"""The child process of the embedded model: llama.cpp's own HTTP server on a free loopback port.

It is run by its path (`python -P local_child.py WEIGHTS NAME`) and imports nothing of gymcli. Once
the model is loaded, it writes the server's address to stdout as one line; llama.cpp's log goes to
stderr. It exits when its stdin ends, which also happens if the parent is killed. While a file is
loading, llama.cpp holds the interpreter lock, so the exit waits until it is loaded.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import xllamacpp

NUM_SLOTS = 4
"""Requests answered in parallel; others wait in the server's queue."""

SLOT_TOKENS = 8192
"""Context of each slot: the length that the shipped model was trained with. llama.cpp lowers it for
a model that was trained with less."""

MAX_ANSWER_TOKENS = 2048
"""The limit of a request that names none: a small model may repeat itself until its end."""

MAX_THREADS = 8
"""More threads slow a small model down: its layers are short, and all threads wait at each."""

HTTP_THREADS = 136
"""A kept-alive connection holds a thread of the server; with fewer threads, 128 clients starve."""

CACHE_MEGABYTES = 1024
"""For the prompts of conversations that are not in a slot; llama.cpp's default is 8192."""

LOG_ERRORS = 1


def main(weights: str, name: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C does
    report = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # no library may write to the report
    watch = threading.Thread(target=_leave_with_parent, daemon=True)
    watch.start()
    server = _serve(weights, name)
    os.write(report, f"{server.listening_address}\n".encode())
    os.close(report)
    watch.join()


def _leave_with_parent() -> None:
    """Wait for the end of stdin, then end the process."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os._exit(0)  # sys.exit would end only this thread


def _serve(weights: str, name: str) -> xllamacpp.Server:
    """Load the model and listen; the server stops when the returned object is freed."""
    # libgomp reads this when it is loaded, hence the late import. Threads that spin at a barrier
    # take cores from the threads that they wait for, if anything else runs on the machine.
    os.environ["GOMP_SPINCOUNT"] = "0"
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {name}  # or answers would carry the file's path
    params.port = 0
    params.n_parallel = NUM_SLOTS
    params.n_ctx = NUM_SLOTS * SLOT_TOKENS
    params.n_predict = MAX_ANSWER_TOKENS
    params.n_threads_http = HTTP_THREADS
    params.cache_ram_mib = CACHE_MEGABYTES
    params.cors_origins = "localhost"  # no web page may send requests to this server
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = LOG_ERRORS
    affinity = getattr(os, "sched_getaffinity", None)
    num_cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    num_threads = min(num_cores, MAX_THREADS)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = num_threads
    # Fitting layers to a graphics card loads the file twice, so it is off without such a card.
    cpu = xllamacpp.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
    params.fit_params = any(device["type"] != cpu for device in xllamacpp.get_device_info())
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main(*sys.argv[1:])
