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
    if request.param == "init":
        return yaml.safe_load(cluster_file("gates"))
    return yaml.safe_load(FILES[request.param].read_text())


@pytest.fixture
def aws():
    return yaml.safe_load(FILES["aws"].read_text())


@pytest.fixture
def aws_nodes(aws):
    return aws["available_node_types"]


@pytest.fixture(scope="module")
def run_instances():
    model = botocore.session.get_session().get_service_model("ec2")
    return model.operation_model("RunInstances").input_shape


def validation_errors(node: dict, shape) -> str:
    """Validate Ray's request for this node, one machine in one of its subnets, as AWS does."""
    request = {**node, "MinCount": 1, "MaxCount": 1}
    # Ray starts a machine in one of the subnets.
    request["SubnetId"] = request.pop("SubnetIds", ["subnet-0"])[0]
    return botocore.validate.ParamValidator().validate(request, shape).generate_report()


def test_ray_accepts_the_config(cluster):
    validate_config(prepare_config(copy.deepcopy(cluster)))


def commands_of_nodes(config: dict):
    """Yield what each of Ray's two autoscalers runs on a new worker node of each type."""
    prepared = prepare_config(copy.deepcopy(config))
    second = AutoscalingConfig(copy.deepcopy(config), skip_content_hash=True)
    # Its constructor needs a cluster.
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
    steps = ["> ~/.lmzoo.sh", ". ~/.lmzoo.sh", "python3 -m venv ~/lmzoo/.venv", "pip install"]
    for commands in commands_of_nodes(cluster):
        text = "\n".join(commands)
        places = [text.index(step) for step in steps]
        # Each step needs those before it.
        assert places == sorted(places)
        assert "PATH=$HOME/lmzoo/.venv/bin" in text


def test_ray_refuses_a_misspelt_field(cluster):
    misspelt = cluster | {"idle_timeout": 5}
    with pytest.raises(Exception, match="idle_timeout"):
        validate_config(prepare_config(misspelt))


def test_aws_accepts_the_nodes(aws_nodes, run_instances):
    for name, node in aws_nodes.items():
        assert not validation_errors(node["node_config"], run_instances), name


def test_aws_refuses_a_misspelt_field(run_instances):
    assert "InstanceTyp" in validation_errors({"InstanceTyp": "x"}, run_instances)


def test_aws_nodes_are_closed(aws, aws_nodes):
    assert "security_group" not in aws["provider"]  # Ray would open its SSH port to everyone
    for node in aws_nodes.values():
        # Without one, AWS uses the default group of the account.
        assert node["node_config"]["SecurityGroupIds"]
        assert node["node_config"]["MetadataOptions"] == {"HttpTokens": "required"}


def test_only_the_head_may_start_machines(aws, aws_nodes):
    for name, node in aws_nodes.items():
        has_role = "IamInstanceProfile" in node["node_config"]
        assert has_role == (name == aws["head_node_type"])


def test_only_one_kind_of_node_has_gpus(aws_nodes):
    with_gpus = [name for name, node in aws_nodes.items() if "GPU" in node["resources"]]
    assert with_gpus == ["gpu"]


def test_workers_are_spot_machines_on_demand(aws, aws_nodes):
    del aws_nodes[aws["head_node_type"]]
    for node in aws_nodes.values():
        assert node["min_workers"] == 0 < node["max_workers"]
        assert node["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    most = sum(node["max_workers"] for node in aws_nodes.values())
    assert most == aws["max_workers"]
    assert 0 < aws["idle_timeout_minutes"] <= 10


def cpus_and_gpus(machine: str) -> tuple[int, int]:
    """Return what a machine of AWS has."""
    facts = INSTANCE_TYPES[machine]
    kinds = facts.get("GpuInfo", {}).get("Gpus", [])
    return facts["VCpuInfo"]["DefaultVCpus"], sum(gpu["Count"] for gpu in kinds)


def test_every_machine_offers_all_its_cpus_and_gpus(aws, aws_nodes):
    for name, node in aws_nodes.items():
        cpus, gpus = cpus_and_gpus(node["node_config"]["InstanceType"])
        if name == aws["head_node_type"]:
            cpus -= 1  # for the driver
        assert node["resources"]["CPU"] == cpus
        assert node["resources"].get("GPU", 0) == gpus


def test_the_machines_in_comments_offer_all_their_cpus_and_gpus():
    comments = re.findall(r"#   (\S+\.\d*xlarge) +({.*})", FILES["aws"].read_text())
    assert len(comments) == 3
    for machine, text in comments:
        resources = yaml.safe_load(text)
        assert (resources["CPU"], resources.get("GPU", 0)) == cpus_and_gpus(machine)


def test_the_ports_and_files_of_a_cluster_are_private(cluster):
    head = cluster["head_start_ray_commands"][-1]
    worker = cluster["worker_start_ray_commands"][-1]
    assert "--dashboard-host=127.0.0.1" in head
    # Files of Ray are readable for their owner only.
    assert "umask 077" in head
    assert "umask 077" in worker
    assert "0.0.0.0" not in yaml.safe_dump(cluster)


def test_the_token_is_copied_and_is_not_in_the_file(cluster):
    assert "~/.ray" in cluster["cluster_synced_files"]
    # What a token looks like.
    assert not re.search(r"\b[0-9a-f]{32,}\b", yaml.safe_dump(cluster))


@pytest.mark.parametrize(
    "setting",
    [
        "RAY_AUTH_MODE=token",
        "RAY_enable_metrics_collection=0",
        "AUTOSCALER_METRIC_PORT=-1",
        "DASHBOARD_METRIC_PORT=-1",
    ],
)
def test_a_node_asks_for_the_token_and_opens_no_port_of_metrics(cluster, setting):
    (profile,) = (command for command in cluster["setup_commands"] if "printf" in command)
    assert setting in profile


@pytest.fixture(params=FILES)
def installing(request):
    """A cluster that copies the repository to its nodes."""
    return yaml.safe_load(FILES[request.param].read_text())


def test_the_file_mounts_are_all_that_an_installation_needs(installing):
    paths = [ROOT / local for local in installing["file_mounts"].values()]
    files = {"pyproject.toml", "constraints.txt", "README.md"}
    assert all(path.exists() for path in paths)
    assert {path.name for path in paths} == {"lmzoo", "sweeps", "analysis", *files}


def test_each_installation_is_constrained(installing):
    commands = []
    for part in ("setup", "head_setup", "worker_setup"):
        commands += installing.get(f"{part}_commands", [])
    installs = [command for command in commands if "pip install" in command]
    assert installs
    assert all("-c ~/lmzoo/constraints.txt" in command for command in installs)
