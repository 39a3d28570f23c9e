"""The nodes of drills/autoscaler.py: raylets on this machine, started by Ray's real autoscaler.

Unlike the provider of Ray that it extends, this one notices that a node has died, as the provider
of a cloud does. Node number `LMZOO_DRILL_LATE_NODE` starts `LMZOO_DRILL_LATE` seconds late.
"""

import os
import threading

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider

LATE_NODE = int(os.environ.get("LMZOO_DRILL_LATE_NODE", "0"))
LATE_SECONDS = float(os.environ.get("LMZOO_DRILL_LATE", "0"))


class Provider(FakeMultiNodeProvider):
    """Starts raylets with pretended resources; the autoscaler creates it by its name."""

    def __init__(self, provider_config, cluster_name):
        super().__init__(provider_config, cluster_name)
        self._created = 0

    def create_node_with_resources_and_labels(self, node_config, tags, count, resources, labels):
        for _ in range(count):
            self._created += 1
            create = super()._create_node_with_resources_and_labels
            arguments = (node_config, tags, 1, resources, labels)
            if self._created == LATE_NODE:
                threading.Timer(LATE_SECONDS, create, arguments).start()
            else:
                create(*arguments)

    def non_terminated_nodes(self, tag_filters):
        with self.lock:
            dead = [
                name for name, node in self._nodes.items()
                if "node" in node and node["node"].dead_processes()
            ]  # fmt: skip
            for name in dead:
                self._terminate_node(self._nodes.pop(name))
        return super().non_terminated_nodes(tag_filters)
