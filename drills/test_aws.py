"""`ray up cluster.yaml` against a fake EC2, up to the launch of the head.

No machine is reached: the fake EC2 runs on loopback, addresses are private, and the `ssh` on the
PATH always fails.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import boto3
import pytest
import yaml

from tests.lab.sweep.processes import ROOT, wait_until

pytestmark = pytest.mark.filterwarnings("ignore")

REGION = "us-west-2"


@pytest.fixture
def aws(tmp_path, monkeypatch):
    """An environment in which AWS is a server on loopback; returns its home folder."""
    port = 5600 + os.getpid() % 300
    variables = {
        "HOME": str(tmp_path),
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": REGION,
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "RAY_TMPDIR": str(tmp_path),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin/ssh"
    ssh.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/ssh.log\nexit 255\n')
    ssh.chmod(0o755)
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: _is_up(port))
        yield tmp_path
    finally:
        server.kill()
        server.wait()


def _is_up(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def write_config(path: Path) -> dict:
    """Write cluster.yaml with the lines marked <-- filled in for the fake EC2."""
    ec2, iam = boto3.client("ec2", REGION), boto3.client("iam", REGION)
    cluster = yaml.safe_load((ROOT / "cluster.yaml").read_text())
    zone = cluster["provider"]["availability_zone"]
    filters = [{"Name": "availability-zone", "Values": [zone]}]
    subnet = ec2.describe_subnets(Filters=filters)["Subnets"][0]
    group = ec2.create_security_group(
        GroupName="mine", Description="mine", VpcId=subnet["VpcId"]
    )["GroupId"]  # fmt: skip
    image = ec2.describe_images(Owners=["099720109477"])["Images"][0]["ImageId"]
    iam.create_instance_profile(InstanceProfileName="lmzoo-head")
    cluster["provider"]["use_internal_ips"] = True
    for node in cluster["available_node_types"].values():
        values = {"ImageId": image, "SecurityGroupIds": [group], "SubnetIds": [subnet["SubnetId"]]}
        node["node_config"].update(values)
    path.write_text(yaml.safe_dump(cluster))
    return {"group": group, "subnet": subnet["SubnetId"], "image": image}


def test_ray_up_launches_the_head_of_the_config(aws):
    ec2 = boto3.client("ec2", REGION)
    path = aws / "cluster.yaml"
    ids = write_config(path)
    groups_before = {g["GroupId"] for g in ec2.describe_security_groups()["SecurityGroups"]}

    def instances() -> list[dict]:
        reservations = ec2.describe_instances()["Reservations"]
        return [i for r in reservations for i in r["Instances"]]

    with (aws / "up.log").open("w") as log:
        up = subprocess.Popen(
            [str(Path(sys.executable).with_name("ray")), "up", "-y", str(path)],
            cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + 200
        while not (instances() and (aws / "ssh.log").exists()):
            assert up.poll() is None, (aws / "up.log").read_text()
            assert time.monotonic() < deadline, (aws / "up.log").read_text()
            time.sleep(0.5)
    finally:
        if up.poll() is None:
            os.killpg(up.pid, signal.SIGKILL)
        up.wait()

    (head,) = instances()
    assert head["InstanceType"] == "m6i.xlarge"
    assert (head["ImageId"], head["SubnetId"]) == (ids["image"], ids["subnet"])
    assert [g["GroupId"] for g in head["SecurityGroups"]] == [ids["group"]]
    assert head["IamInstanceProfile"]["Arn"].endswith("/lmzoo-head")
    tags = {tag["Key"]: tag["Value"] for tag in head["Tags"]}
    assert (tags["ray-cluster-name"], tags["ray-node-type"]) == ("lmzoo", "head")
    groups = {g["GroupId"] for g in ec2.describe_security_groups()["SecurityGroups"]}
    assert groups == groups_before, "Ray made a security group of its own"
    assert head["PrivateIpAddress"] in (aws / "ssh.log").read_text()
    assert head.get("PublicIpAddress", "-") not in (aws / "ssh.log").read_text()
