"""A kind of GPU can be required or left out: where a real Ray places workers."""

import os
import subprocess
import sys

PLACED = """
import os
own = dict(os.environ)
from lmzoo.lab.cluster.resources import Resources
from lmzoo.lab.sweep.driver.placement import actor_options
os.environ.clear()  # the package prepares for a Ray that it starts itself
os.environ.update(own)
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
kinds = {}
for kind in ("A100", "T4", "L4"):
    labels = {"ray.io/accelerator-type": kind}
    resources = {f"accelerator_type:{kind}": 1}
    node = cluster.add_node(num_cpus=1, num_gpus=1, resources=resources, labels=labels)
    kinds[node.node_id] = kind
import ray
ray.init(cluster.address, log_to_driver=False)
class Worker:
    def node(self):
        return ray.get_runtime_context().get_node_id()
for options in ({"accelerator": "T4"}, {"without": ("T4", "L4")}, {"accelerator": "V100"}):
    resources = Resources(gpus=1.0, **options)
    live = sum(resources.workers_on(node["Resources"]) for node in ray.nodes())
    actors = [ray.remote(**actor_options(resources))(Worker).remote() for _ in range(3)]
    asked = [actor.node.remote() for actor in actors]
    placed = ray.get(ray.wait(asked, num_returns=3, timeout=8)[0])
    print(live, *sorted(kinds[node] for node in placed))
    for actor in actors:
        ray.kill(actor)
ray.shutdown()
cluster.shutdown()
"""


def test_workers_are_placed_on_the_wanted_kind_only():
    done = subprocess.run(
        [sys.executable, "-c", PLACED],
        env={**os.environ, "RAY_ADDRESS": "local", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["1 T4", "1 A100", "0"]
