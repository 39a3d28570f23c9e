"""The cluster files: accepted by Ray and AWS's own rules, closed to strangers, complete."""

import copy
import re
from pathlib import Path

import botocore.session
import botocore.validate
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
FILES = {"aws": ROOT / "cluster.yaml", "onprem": ROOT / "clusters/onprem.yaml"}


@pytest.fixture(params=FILES, scope="module")
def cluster(request):
    return yaml.safe_load(FILES[request.param].read_text())


@pytest.fixture(scope="module")
def run_instances():
    model = botocore.session.get_session().get_service_model("ec2")
    return model.operation_model("RunInstances").input_shape


def _complaints(node: dict, shape) -> str:
    """What AWS would say to what Ray asks for: one machine in one of the subnets."""
    asked = {**node, "MinCount": 1, "MaxCount": 1}
    asked["SubnetId"] = asked.pop("SubnetIds", ["subnet-0"])[0]
    return botocore.validate.ParamValidator().validate(asked, shape).generate_report()


def test_ray_accepts_it(cluster):
    validate_config(prepare_config(copy.deepcopy(cluster)))


def test_ray_refuses_a_misspelt_field(cluster):
    with pytest.raises(Exception, match="idle_timeout"):
        validate_config(prepare_config({**cluster, "idle_timeout": 5}))


def test_aws_accepts_its_nodes(run_instances):
    nodes = yaml.safe_load(FILES["aws"].read_text())["available_node_types"]
    for name, node in nodes.items():
        assert not _complaints(node["node_config"], run_instances), name
        assert "InstanceTyp" in _complaints({"InstanceTyp": "x"}, run_instances)


def test_aws_nodes_are_closed_and_the_head_is_the_only_one_with_rights():
    description = yaml.safe_load(FILES["aws"].read_text())
    assert "security_group" not in description["provider"]  # Ray would add its own open rule to it
    for name, node in description["available_node_types"].items():
        config = node["node_config"]
        assert config["SecurityGroupIds"], name
        assert config["MetadataOptions"] == {"HttpTokens": "required"}
        assert ("IamInstanceProfile" in config) == (name == description["head_node_type"])


def test_workers_are_spot_gpus_from_none_and_idle_ones_end():
    description = yaml.safe_load(FILES["aws"].read_text())
    gpu, head = (description["available_node_types"][name] for name in ("gpu", "head"))
    assert gpu["min_workers"] == 0
    assert gpu["max_workers"] == description["max_workers"]
    assert gpu["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert gpu["resources"]["GPU"]
    assert "GPU" not in head["resources"]
    assert 0 < description["idle_timeout_minutes"] <= 10


def test_it_is_private(cluster):
    head, worker = cluster["head_start_ray_commands"][-1], cluster["worker_start_ray_commands"][-1]
    assert "--dashboard-host=127.0.0.1" in head
    assert all("umask 077" in command for command in (head, worker))
    everything = yaml.safe_dump(cluster)
    assert "0.0.0.0" not in everything
    assert "~/.ray" in cluster["cluster_synced_files"]
    assert not re.search(r"\b[0-9a-f]{32,}\b", everything), "a token has no place in the file"
    profile = next(command for command in cluster["setup_commands"] if "printf" in command)
    for setting in ("RAY_AUTH_MODE=token", "RAY_enable_metrics_collection=0"):
        assert setting in profile
    for port in ("AUTOSCALER_METRIC_PORT=-1", "DASHBOARD_METRIC_PORT=-1"):
        assert port in profile


def test_what_it_sends_is_there_and_all_that_an_installation_needs(cluster):
    sent = {there: ROOT / here for there, here in cluster["file_mounts"].items()}
    assert all(path.exists() for path in sent.values())
    names = {path.name for path in sent.values()}
    assert {
        "lmzoo",
        "sweeps",
        "analysis",
        "pyproject.toml",
        "constraints.txt",
        "README.md",
    } == names
    commands = [c for part in ("setup", "head_setup", "worker_setup")
                for c in cluster.get(f"{part}_commands", [])]  # fmt: skip
    installs = [command for command in commands if "pip install" in command]
    assert installs
    assert all("-c ~/lmzoo/constraints.txt" in command for command in installs)


def test_machines_reached_by_ssh_all_work():
    """Version 2 of the autoscaler would leave one of them idle."""
    start = yaml.safe_load(FILES["onprem"].read_text())["head_start_ray_commands"][-1]
    assert "RAY_enable_autoscaler_v2=0 ray start --head" in start
