"""Which nodes a cluster may get: read on its head, from the file of `ray up` or from Kubernetes.

Ray has no public function for it, and its autoscaler publishes only the nodes that it is starting.
`ray up` leaves the config of the cluster in the home folder of the head. On Kubernetes, the head
pod may read its RayCluster, which the KubeRay operator permits if the cluster is autoscaled.
"""

import json
import math
import os
import ssl
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lmzoo.lab.cluster.address import CLUSTER_CONFIG

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes mounts the credentials of a pod."""
KUBERNETES_SECONDS = 3.0
"""How long the server of Kubernetes may take to respond."""


@dataclass(frozen=True)
class NodeType:
    """A type of worker node: its resources ({}: unknown until a node joins), and how many."""

    resources: Mapping[str, float]
    count: int


@dataclass(frozen=True)
class Growth:
    """The worker nodes that a cluster may have at the same time, those that are live included.

    Attributes:
        types: The types of these nodes.
        nodes: The maximum number of nodes of all types; None: any node may join.
        autoscaling: Whether nodes are started when they are needed.
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
    if "RAY_CLUSTER_NAME" not in environ or "KUBERNETES_SERVICE_HOST" not in environ:
        return Growth()
    try:
        return _of_ray_cluster(_ray_cluster(environ)["spec"])
    except (OSError, ValueError, KeyError):  # not permitted, or described in another way
        return Growth(autoscaling=True)


def _of_cluster_config(config: Mapping[str, Any]) -> Growth:
    if config["provider"]["type"] == "local":
        machines = len(config["provider"].get("worker_ips", []))
        return Growth((NodeType({}, machines),), machines)
    total = config.get("max_workers", 0)
    types = {**config.get("available_node_types", {})}
    types.pop(config.get("head_node_type"), None)
    return Growth(
        tuple(
            NodeType(dict(kind.get("resources") or {}), min(kind.get("max_workers", total), total))
            for kind in types.values()
        ),
        total,
        autoscaling=True,
    )


def _ray_cluster(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the RayCluster of this head pod."""
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    path = f"apis/ray.io/v1/namespaces/{namespace}/rayclusters/{environ['RAY_CLUSTER_NAME']}"
    token = (SERVICE_ACCOUNT / "token").read_text().strip()
    request = urllib.request.Request(
        f"https://{host}:{port}/{path}", headers={"Authorization": f"Bearer {token}"}
    )
    context = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=KUBERNETES_SECONDS, context=context) as response:
        return json.load(response)


def _of_ray_cluster(spec: Mapping[str, Any]) -> Growth:
    autoscaling = bool(spec.get("enableInTreeAutoscaling"))
    key = "maxReplicas" if autoscaling else "replicas"
    types = tuple(
        NodeType(_pod_resources(group), group.get(key, 1) * group.get("numOfHosts", 1))
        for group in spec.get("workerGroupSpecs", [])
    )
    return Growth(types, sum(kind.count for kind in types), autoscaling)


def _pod_resources(group: Mapping[str, Any]) -> dict[str, float]:
    """Return the CPUs and GPUs of a group's pods, from the same fields as Ray takes them."""
    stated, start = group.get("resources", {}), group.get("rayStartParams", {})
    container = group["template"]["spec"]["containers"][0].get("resources", {})
    limits, requests = container.get("limits", {}), container.get("requests", {})
    cpus = [stated.get("CPU"), start.get("num-cpus"), limits.get("cpu"), requests.get("cpu")]
    gpus = [stated.get("GPU"), start.get("num-gpus")]
    gpus += [n for name, n in {**requests, **limits}.items() if name.endswith("gpu")]
    return {"CPU": _first_quantity(cpus), "GPU": _first_quantity(gpus)}


def _first_quantity(quantities: list[Any]) -> int:
    """Return the first quantity that is stated, rounded up; "1500m" is 1.5; 0 if there is none."""
    for text in (str(quantity) for quantity in quantities if quantity is not None):
        return math.ceil(float(text[:-1]) / 1000) if text.endswith("m") else math.ceil(float(text))
    return 0
