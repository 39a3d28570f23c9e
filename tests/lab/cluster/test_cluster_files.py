"""The cluster configs are valid for Ray and AWS, private and complete."""

import copy
import re
from pathlib import Path
from types import SimpleNamespace

import botocore.session
import botocore.validate
import pytest
import yaml
from moto.ec2.models.instance_types import INSTANCE_TYPES
from ray.autoscaler._private.autoscaler import StandardAutoscaler
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.autoscaler.tags import TAG_RAY_USER_NODE_TYPE
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig

from lmzoo.cli.init import cluster_file

ROOT = Path(__file__).parents[3]
FILES = {"aws": ROOT / "cluster.yaml", "onprem": ROOT / "clusters/onprem.yaml"}


@pytest.fixture(params=[*FILES, "init"], scope="module")
def cluster(request):
    path = FILES.get(request.param)
    return yaml.safe_load(path.read_text() if path else cluster_file("gates"))


@pytest.fixture(scope="module")
def run_instances():
    model = botocore.session.get_session().get_service_model("ec2")
    return model.operation_model("RunInstances").input_shape


def validation_errors(node: dict, shape) -> str:
    """Validate Ray's request for this node, one machine in one of its subnets, as AWS does."""
    request = {**node, "MinCount": 1, "MaxCount": 1}
    request["SubnetId"] = request.pop("SubnetIds", ["subnet-0"])[0]
    return botocore.validate.ParamValidator().validate(request, shape).generate_report()


def test_ray_accepts_the_config(cluster):
    validate_config(prepare_config(copy.deepcopy(cluster)))


def commands_of_nodes(config: dict):
    """Yield what each of Ray's two autoscalers runs on a new worker node of each type."""
    prepared = prepare_config(copy.deepcopy(config))
    second = AutoscalingConfig(copy.deepcopy(config), skip_content_hash=True)
    first = StandardAutoscaler.__new__(StandardAutoscaler)
    first.config = prepared
    first.available_node_types = prepared["available_node_types"]
    for node_type in first.available_node_types:
        first.provider = SimpleNamespace(
            node_tags=lambda _, t=node_type: {TAG_RAY_USER_NODE_TYPE: t}
        )
        yield first._get_node_type_specific_fields(node_type, "worker_setup_commands")
        yield second.get_worker_setup_commands(node_type)


def test_each_node_makes_the_environment_in_which_its_ray_starts(cluster):
    for commands in commands_of_nodes(cluster):
        text = "\n".join(commands)
        steps = ["> ~/.lmzoo.sh", ". ~/.lmzoo.sh", "python3 -m venv ~/lmzoo/.venv", "pip install"]
        assert [text.find(step) for step in steps] == sorted(text.find(step) for step in steps)
        assert "> ~/.lmzoo.sh" in text
        assert "PATH=$HOME/lmzoo/.venv/bin" in text


def test_ray_refuses_a_misspelt_field(cluster):
    with pytest.raises(Exception, match="idle_timeout"):
        validate_config(prepare_config({**cluster, "idle_timeout": 5}))


def test_aws_accepts_the_nodes(run_instances):
    nodes = yaml.safe_load(FILES["aws"].read_text())["available_node_types"]
    for name, node in nodes.items():
        assert not validation_errors(node["node_config"], run_instances), name
        assert "InstanceTyp" in validation_errors({"InstanceTyp": "x"}, run_instances)


def test_aws_nodes_are_closed_and_workers_are_spot_machines_on_demand():
    config = yaml.safe_load(FILES["aws"].read_text())
    assert "security_group" not in config["provider"]  # Ray would open its SSH port to everyone
    types = config["available_node_types"]
    for name, node in types.items():
        node_config, is_head = node["node_config"], name == config["head_node_type"]
        assert node_config["SecurityGroupIds"], name
        assert node_config["MetadataOptions"] == {"HttpTokens": "required"}
        assert ("IamInstanceProfile" in node_config) == is_head
        assert ("GPU" in node["resources"]) == (name == "gpu")
        if not is_head:
            assert node["min_workers"] == 0 < node["max_workers"]
            assert node_config["InstanceMarketOptions"] == {"MarketType": "spot"}
    workers = [node["max_workers"] for name, node in types.items() if name != "head"]
    assert sum(workers) == config["max_workers"]
    assert 0 < config["idle_timeout_minutes"] <= 10


def test_every_machine_offers_all_its_cpus_and_gpus():
    """The machines named in comments too; the head keeps one CPU for the driver."""
    text = FILES["aws"].read_text()
    types = yaml.safe_load(text)["available_node_types"]
    machines = {t["node_config"]["InstanceType"]: t["resources"] for t in types.values()}
    comments = dict(re.findall(r"#   (\S+\.\d*xlarge) +({.*})", text))
    assert len(comments) == 3
    machines |= {name: yaml.safe_load(resources) for name, resources in comments.items()}
    for name, resources in machines.items():
        facts = INSTANCE_TYPES[name]
        gpus = sum(gpu["Count"] for gpu in facts.get("GpuInfo", {}).get("Gpus", []))
        reserved = name == types["head"]["node_config"]["InstanceType"]
        assert resources["CPU"] == facts["VCpuInfo"]["DefaultVCpus"] - reserved, name
        assert resources.get("GPU", 0) == gpus, name


def test_the_cluster_is_private(cluster):
    head, worker = cluster["head_start_ray_commands"][-1], cluster["worker_start_ray_commands"][-1]
    assert "--dashboard-host=127.0.0.1" in head
    assert all("umask 077" in command for command in (head, worker))
    text = yaml.safe_dump(cluster)
    assert "0.0.0.0" not in text
    assert "~/.ray" in cluster["cluster_synced_files"]
    assert not re.search(r"\b[0-9a-f]{32,}\b", text), "the file contains a token"
    profile = next(command for command in cluster["setup_commands"] if "printf" in command)
    for setting in ("RAY_AUTH_MODE=token", "RAY_enable_metrics_collection=0"):
        assert setting in profile
    for port in ("AUTOSCALER_METRIC_PORT=-1", "DASHBOARD_METRIC_PORT=-1"):
        assert port in profile


@pytest.mark.parametrize("name", FILES)
def test_the_file_mounts_exist_and_contain_all_that_an_installation_needs(name):
    cluster = yaml.safe_load(FILES[name].read_text())
    paths = [ROOT / local for local in cluster["file_mounts"].values()]
    assert all(path.exists() for path in paths)
    files = {"pyproject.toml", "constraints.txt", "README.md"}
    assert {path.name for path in paths} == {"lmzoo", "sweeps", "analysis", *files}
    commands = [c for part in ("setup", "head_setup", "worker_setup")
                for c in cluster.get(f"{part}_commands", [])]  # fmt: skip
    installs = [command for command in commands if "pip install" in command]
    assert installs
    assert all("-c ~/lmzoo/constraints.txt" in command for command in installs)
