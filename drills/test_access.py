"""Without the token nobody gets access: neither from the network nor from another account."""

import re
import socket

import grpc
import pytest

from drills.cluster import Cluster
from drills.hosts import ROOT

CALLS = (
    "JobInfoGcsService/GetAllJobInfo",
    "InternalKVGcsService/InternalKVGet",
    "NodeManagerService/GetNodeStats",
    "ObjectManagerService/Push",
    "RayletDriver/ClusterInfo",
    "ReporterService/GetTraceback",
    "CoreWorkerService/PushTask",
)
"""One call for each of Ray's gRPC servers."""


@pytest.fixture(scope="module")
def open_ports(cluster: Cluster) -> list[int]:
    """Scan all ports of the head from another host and return the open ones."""
    return [port for port in range(1, 65536) if _is_open(cluster.head.ip, port)]


def test_open_ports_are_ssh_and_servers_that_require_the_token(cluster: Cluster, open_ports):
    assert 22 in open_ports
    assert 6379 in open_ports, "the scan does not see Ray's own port"
    assert 8265 not in open_ports, "the dashboard is not on loopback only"
    answers = {port: _answers(cluster.head.ip, port) for port in open_ports if port != 22}
    assert all(answers.values()), answers
    assert not [port for port, codes in answers.items() if "OK" in codes], answers
    assert all({"UNAUTHENTICATED", "401"} & codes for codes in answers.values()), answers


def test_another_account_on_the_head_can_neither_submit_nor_read(cluster: Cluster):
    as_nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp"
    curl = "curl -s -o /dev/null -w '%{http_code}'"
    jobs = "http://127.0.0.1:8265/api/jobs/"
    read = cluster.head.run(f"{as_nobody} {curl} {jobs}")
    submit = cluster.head.run(f'{as_nobody} {curl} -X POST -d \'{{"entrypoint": "id"}}\' {jobs}')
    wrong_token = cluster.head.run(f"{as_nobody} {curl} -H 'Authorization: Bearer 0123' {jobs}")
    assert (read.stdout, submit.stdout) == ("401", "401")
    assert wrong_token.stdout in ("401", "403")
    for path in ("/root/.ray/auth_token", "/tmp/ray/session_latest/logs/gcs_server.out"):
        assert cluster.head.run(f"test -e {path}").returncode == 0
        assert cluster.head.run(f"{as_nobody} cat {path}").returncode != 0, path
    owner = cluster.head.run(f'{curl} -H "Authorization: Bearer $(cat ~/.ray/auth_token)" {jobs}')
    assert owner.stdout == "200", "the token itself is refused, so the checks above prove nothing"


def test_laptop_without_the_token_cannot_join(cluster: Cluster):
    program = f"import ray; ray.init('{cluster.head.ip}:6379')"
    python = f"{ROOT}/.venv/bin/python"
    done = cluster.laptop.run(f'RAY_AUTH_MODE=disabled timeout 120 {python} -c "{program}" 2>&1')
    assert done.returncode != 0
    assert re.search("[Uu]nauthenticated|InvalidAuthToken", done.stdout), done.stdout


def _is_open(ip: str, port: int) -> bool:
    with socket.socket() as link:
        link.settimeout(1)
        return link.connect_ex((ip, port)) == 0


def _answers(ip: str, port: int) -> set[str]:
    """Return the gRPC or HTTP status codes with which a server answers calls without a token."""
    answers = set()
    with grpc.insecure_channel(f"{ip}:{port}") as channel:
        for call in CALLS:
            try:
                channel.unary_unary(f"/ray.rpc.{call}")(b"", timeout=10)
                answers.add("OK")
            except grpc.RpcError as error:
                answers.add(error.code().name)  # type: ignore[attr-defined]
    if "UNAVAILABLE" in answers:  # no gRPC server
        answers = {_http(ip, port, path) for path in ("/", "/metrics", "/api/jobs/")}
    return answers - {"UNIMPLEMENTED"}


def _http(ip: str, port: int, path: str) -> str:
    with socket.create_connection((ip, port), timeout=10) as link:
        link.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        status = link.recv(64).decode(errors="replace").split()[1]
    return "OK" if status.startswith("2") else status
