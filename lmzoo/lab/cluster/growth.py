"""Which nodes a cluster may get: read on its head, from the file of `ray up`.

Ray has no public function for it, and its autoscaler publishes only the nodes that it is starting.
`ray up` leaves the config of the cluster in the home folder of the head. On Kubernetes the nodes
that the autoscaler may start are not known.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lmzoo.lab.cluster.address import CLUSTER_CONFIG


@dataclass(frozen=True)
class NodeType:
    """A type of worker node: its resources ({}: unknown until a node joins), and how many."""

    resources: Mapping[str, float]
    count: int


@dataclass(frozen=True)
class Growth:
    """The worker nodes that a cluster may have at the same time, of these types.

    At most so many `nodes`; None: any node may join. `autoscaling`: they start when needed.
    """

    types: tuple[NodeType, ...] = ()
    nodes: int | None = None
    autoscaling: bool = False


def read_growth(environ: Mapping[str, str] = os.environ) -> Growth:
    """Return what the cluster may get; runs on its head.

    Without a description, for example after `ray start` by hand, any node may join.
    """
    config = Path(CLUSTER_CONFIG).expanduser()
    if config.exists():
        return _of_cluster_config(yaml.safe_load(config.read_text()))
    # On Kubernetes an autoscaler starts pods, and no file says how many.
    return Growth(autoscaling={"RAY_CLUSTER_NAME", "KUBERNETES_SERVICE_HOST"} <= environ.keys())


def _of_cluster_config(config: Mapping[str, Any]) -> Growth:
    if config["provider"]["type"] == "local":
        # What a machine has is known when it joins.
        machines = len(config["provider"].get("worker_ips", []))
        return Growth((NodeType({}, machines),), machines)
    total = config.get("max_workers", 0)
    types = []
    for name, kind in config.get("available_node_types", {}).items():
        if name != config.get("head_node_type"):
            count = min(kind.get("max_workers", total), total)
            types.append(NodeType(kind.get("resources") or {}, count))
    return Growth(tuple(types), total, autoscaling=True)
