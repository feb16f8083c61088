"""A Ray cluster of three nodes, which are processes of this machine."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def started_cluster():
    patch = pytest.MonkeyPatch()
    for name, value in {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # which here means: listen on the loopback address alone
        "OMP_NUM_THREADS": "1",
        "RAY_worker_niceness": "0",  # otherwise 15, with which workers hardly run on a busy machine
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "src"))),
    }.items():
        patch.setenv(name, value)
    nodes = Nodes()
    patch.setenv("RAY_ADDRESS", nodes.start())
    yield nodes
    nodes.cluster.shutdown()
    patch.undo()


class Nodes:
    """A cluster of Ray within this machine, whose nodes are noticed to be dead after some seconds."""

    options = {"node_ip_address": "127.0.0.1", "include_dashboard": False, "object_store_memory": 80_000_000}  # noqa: RUF012
    config = dict(health_check_initial_delay_ms=500, health_check_period_ms=1000, health_check_failure_threshold=15)  # noqa: RUF012, C408

    def start(self):
        from ray.cluster_utils import Cluster as RayCluster

        head = {"num_cpus": 0, "_system_config": self.config, **self.options}
        self.cluster = _patiently(lambda: RayCluster(initialize_head=True, head_node_args=head))
        self.first, self.second = self.add(), self.add()
        return self.cluster.address

    def add(self):
        return _patiently(lambda: self.cluster.add_node(num_cpus=1, **self.options))

    def replace_first(self):
        """Kills a node as a cut cable does, and lets another one join."""
        self.cluster.remove_node(self.first, allow_graceful=False)
        self.first = self.add()


def _patiently(start):
    """Start a node again where Ray gave up after half a minute, its limit on any machine."""
    for _ in range(4):
        try:
            return start()
        except Exception as error:
            if "timed out" not in str(error):
                raise
    return start()
