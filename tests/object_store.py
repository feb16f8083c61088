"""A server on this machine that speaks the protocol of S3, for tests of runs in object stores."""

import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import fsspec
import pytest


@contextmanager
def object_store(bucket="bucket"):
    """Serve an empty bucket, and let this process and its children find it as they would find that of a provider."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        files = fsspec.get_filesystem_class("s3")
        files.clear_instance_cache()  # of connections to another server
        try:
            _wait_for(f"{address}/moto-api/", server)
            files(use_listings_cache=False).mkdir(bucket)
            yield address
        finally:
            server.kill()
            server.wait()
            files.clear_instance_cache()


def _wait_for(address, server, seconds=900):
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < end, f"nobody answers at {address}"
            time.sleep(0.05)
