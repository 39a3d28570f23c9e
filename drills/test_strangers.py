"""Who has no token gets nowhere: from the network, and from another account of the head."""

import re
import socket

import grpc
import pytest

from drills.hosts import ROOT
from drills.site import Site

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
def open_ports(site: Site) -> list[int]:
    """What a scan of all ports of the head from another host finds."""
    return [port for port in range(1, 65536) if _open(site.head.ip, port)]


def test_a_scan_finds_ssh_and_servers_that_ask_for_the_token(site: Site, open_ports):
    assert 22 in open_ports
    assert 6379 in open_ports, "the scan does not see Ray's own port"
    assert 8265 not in open_ports, "the dashboard is not on loopback only"
    answers = {port: _ask(site.head.ip, port) for port in open_ports if port != 22}
    assert all(answers.values()), answers
    assert not [port for port, found in answers.items() if "OK" in found], answers
    assert all({"UNAUTHENTICATED", "401"} & found for found in answers.values()), answers


def test_another_account_of_the_head_can_neither_submit_nor_read(site: Site):
    stranger = "setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp"
    curl = "curl -s -o /dev/null -w '%{http_code}'"
    jobs = "http://127.0.0.1:8265/api/jobs/"
    read = site.head.run(f"{stranger} {curl} {jobs}")
    submit = site.head.run(f'{stranger} {curl} -X POST -d \'{{"entrypoint": "id"}}\' {jobs}')
    wrong = site.head.run(f"{stranger} {curl} -H 'Authorization: Bearer 0123' {jobs}")
    assert (read.stdout, submit.stdout) == ("401", "401")
    assert wrong.stdout in ("401", "403")
    for path in ("/root/.ray/auth_token", "/tmp/ray/session_latest/logs/gcs_server.out"):
        assert site.head.run(f"test -e {path}").returncode == 0
        assert site.head.run(f"{stranger} cat {path}").returncode != 0, path
    owner = site.head.run(f'{curl} -H "Authorization: Bearer $(cat ~/.ray/auth_token)" {jobs}')
    assert owner.stdout == "200", "nobody gets in: the check sees nothing"


def test_the_laptop_without_the_token_can_not_join(site: Site):
    program = f"import ray; ray.init('{site.head.ip}:6379')"
    python = f"{ROOT}/.venv/bin/python"
    done = site.laptop.run(f'RAY_AUTH_MODE=disabled timeout 120 {python} -c "{program}" 2>&1')
    assert done.returncode != 0
    assert re.search("[Uu]nauthenticated|InvalidAuthToken", done.stdout), done.stdout


def _open(ip: str, port: int) -> bool:
    with socket.socket() as link:
        link.settimeout(1)
        return link.connect_ex((ip, port)) == 0


def _ask(ip: str, port: int) -> set[str]:
    """How a server answers calls without a token: gRPC's codes, or HTTP's."""
    found = set()
    with grpc.insecure_channel(f"{ip}:{port}") as channel:
        for call in CALLS:
            try:
                channel.unary_unary(f"/ray.rpc.{call}")(b"", timeout=10)
                found.add("OK")
            except grpc.RpcError as error:
                found.add(error.code().name)  # type: ignore[attr-defined]
    if "UNAVAILABLE" in found:  # no gRPC server
        found = {_http(ip, port, path) for path in ("/", "/metrics", "/api/jobs/")}
    return found - {"UNIMPLEMENTED"}


def _http(ip: str, port: int, path: str) -> str:
    with socket.create_connection((ip, port), timeout=10) as link:
        link.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        status = link.recv(64).decode(errors="replace").split()[1]
    return "OK" if status.startswith("2") else status
