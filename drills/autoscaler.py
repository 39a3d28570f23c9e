"""A Ray cluster on this machine whose nodes are started by Ray's real autoscaler.

    with AutoscaledCluster(folder, {"gpu": ({"CPU": 2, "GPU": 2}, 4)}) as cluster:
        cluster.start(Path("log"), sys.executable, "sweeps/gru_ablation.py")

The nodes are raylets with pretended resources (drills/fake_nodes.py). All sockets are on loopback.
The home folder is a folder of the drill, and only processes of the drill are ended.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID

ROOT = Path(__file__).parents[1]
RAY = str(Path(sys.executable).with_name("ray"))
HEAD_TYPE = "ray.head.default"
MARK = "LMZOO_DRILL"
"""Environment variable by which the processes of a drill are found."""
AUTOSCALER = {
    "RAY_FAKE_CLUSTER": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": FAKE_HEAD_NODE_ID,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID,
}
"""Version 2 of the autoscaler, as on AWS; it knows a node by the id that its provider gives it."""
COMMANDS = (
    "initialization_commands", "setup_commands", "head_setup_commands", "worker_setup_commands",
    "head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files",
)  # fmt: skip


class AutoscaledCluster:
    """A head without CPUs, and node types: name -> (resources, maximum number of nodes).

    All processes of the cluster have the environment variables in `variables`.

    `late` is (number of the node, seconds): this node joins that much later than the others.
    """

    def __init__(
        self,
        folder: Path,
        node_types: Mapping[str, tuple[dict[str, int], int]],
        *,
        head_cpus: int = 0,
        max_workers: int = 0,
        late: tuple[int, float] = (0, 0.0),
        idle_minutes: float = 0.5,
        **variables: str,
    ) -> None:
        self.home = folder / "home"
        self.port = _free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.mark = uuid.uuid4().hex
        self.head_cpus = head_cpus
        self.late = late
        self.variables = variables
        types: dict[str, Any] = {
            name: {"resources": resources, "node_config": {}, "min_workers": 0, "max_workers": most}
            for name, (resources, most) in node_types.items()
        }
        total = max_workers or sum(most for _, most in node_types.values())
        types[HEAD_TYPE] = {"resources": {"CPU": head_cpus}, "node_config": {}, "max_workers": 0}
        self.config = {
            "cluster_name": "drill", "max_workers": total, "upscaling_speed": 100.0,
            "idle_timeout_minutes": idle_minutes, "available_node_types": types,
            "head_node_type": HEAD_TYPE, "auth": {"ssh_user": "nobody"}, "file_mounts": {},
            "provider": {
                "type": "external", "module": "drills.fake_nodes.Provider",
                "gcs_address": self.address, "launch_multiple": True,
                "head_node_id": FAKE_HEAD_NODE_ID,
            },
            **{name: [] for name in COMMANDS},
        }  # fmt: skip

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a program on the head."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "LMZOO_"))}
        late_node, late_seconds = self.late
        return {
            **kept,
            MARK: self.mark,
            "LMZOO_DRILL_LATE_NODE": str(late_node),
            "LMZOO_DRILL_LATE": str(late_seconds),
            "HOME": str(self.home),
            "PYTHONPATH": str(ROOT),
            "RAY_TMPDIR": str(self.home.parent),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_enable_metrics_collection": "0",
            "RAY_object_store_memory": "100000000",
            "RAY_raylet_start_wait_time_s": "120",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "AUTOSCALER_METRIC_PORT": "-1",
            "DASHBOARD_METRIC_PORT": "-1",
            "OMP_NUM_THREADS": "1",
            **self.variables,
        }

    def __enter__(self) -> "AutoscaledCluster":
        self.home.mkdir(parents=True)
        config = self.home / "ray_bootstrap_config.yaml"
        config.write_text(yaml.safe_dump(self.config))
        started = subprocess.run(
            [RAY, "start", "--head", f"--port={self.port}", f"--num-cpus={self.head_cpus}",
             "--num-gpus=0", "--include-dashboard=false", f"--dashboard-port={_free_port()}",
             "--dashboard-agent-listen-port=0", f"--autoscaling-config={config}",
             "--object-store-memory=100000000", "--disable-usage-stats"],
            env={**self.environment, **AUTOSCALER}, cwd=ROOT,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if started.returncode:
            self.close()
            raise RuntimeError(started.stdout + started.stderr)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, output: Path, *command: object, **variables: str) -> subprocess.Popen[bytes]:
        """Start a program on the head, which prints to the file `output`."""
        with output.open("w") as file:
            return subprocess.Popen(
                list(map(str, command)), env={**self.environment, **variables}, cwd=ROOT,
                stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def raylets(self) -> dict[str, int]:
        """Return node id -> process of the live worker nodes."""
        found = {}
        for pid in self.processes():
            with contextlib.suppress(OSError):
                arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                ids = [a.partition("=")[2] for a in arguments if a.startswith("--node_id=")]
                if arguments[0].endswith("raylet") and ids and "--head" not in arguments:
                    found[ids[0]] = pid
        return found

    def kill_node(self, node_id: str) -> None:
        """End a node as the interruption of a machine does: without any warning."""
        os.kill(self.raylets()[node_id], signal.SIGKILL)

    def processes(self) -> list[int]:
        """Return all processes of this drill, except this one."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End all processes of this drill."""
        deadline = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
