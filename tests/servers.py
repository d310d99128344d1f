"""Real servers for tests: PostgreSQL in a temporary cluster, and `mlflow server`."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OWNER = "postgres"
"""PostgreSQL refuses to run as root; Debian's package makes this user."""


@contextmanager
def postgresql() -> Iterator[str]:
    """The URI of an empty database behind a Unix socket; a skip where PostgreSQL is not, in CI a failure."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not found:
        reason = "needs PostgreSQL (apt-get install postgresql)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    # not below pytest's folders: those are closed to other users, and a socket's path must be short
    cluster = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    root = os.geteuid() == 0
    if root:
        shutil.chown(cluster, OWNER)

    def call(program: str, *arguments: str) -> None:
        command = [str(found[-1] / program), "-D", str(cluster / "data"), *arguments]
        subprocess.run(
            command, check=True, cwd="/", stdout=subprocess.DEVNULL, user=OWNER if root else None, timeout=120
        )

    try:
        call("initdb", "-U", "dmad", "-A", "trust", "--no-sync")
        options = f"-k {cluster} -c listen_addresses='' -c fsync=off"
        call("pg_ctl", "-w", "-l", str(cluster / "log"), "-o", options, "start")
        try:
            yield f"postgresql://dmad@/postgres?host={cluster}"
        finally:
            call("pg_ctl", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(cluster)


@contextmanager
def mlflow_server(backend: str, folder: Path) -> Iterator[str]:
    """The address of `mlflow server` over the store `backend`, with artifacts through the server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
                "--workers", "1", "--backend-store-uri", backend,
                "--artifacts-destination", str(folder / "artifacts"),
            ],
            env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )  # fmt: skip
    uri = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 180
        while True:
            try:
                urllib.request.urlopen(f"{uri}/health", timeout=1).close()
                break
            except OSError:
                told = (folder / "server.log").read_text()[-2000:]
                assert time.monotonic() < deadline, f"the server did not start: {told}"
                assert process.poll() is None, f"the server ended: {told}"
                time.sleep(0.2)
        yield uri
    finally:
        if process.poll() is None:
            os.killpg(process.pid, 15)
        process.wait(30)
