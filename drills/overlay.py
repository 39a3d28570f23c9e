"""`clusters/onprem.yaml` as it is, but for the addresses, the account and the installation.

The hosts have no way to the internet and are this machine, so they link its virtual
environment in place of installing one, and each offers Ray one CPU.
"""

from pathlib import Path

import yaml

from drills.hosts import ROOT, Host


def overlay(head: Host, workers: list[Host], path: Path) -> None:
    """Write the cluster file of these hosts."""
    cluster = yaml.safe_load((ROOT / "clusters/onprem.yaml").read_text())
    cluster["provider"] |= {"head_ip": head.ip, "worker_ips": [w.ip for w in workers]}
    cluster["auth"] = {"ssh_user": "root", "ssh_private_key": "~/.ssh/id_ed25519"}
    profile, bashrc, venv, install = cluster["setup_commands"]
    assert ".venv" in venv
    assert "pip install" in install
    cluster["setup_commands"] = [
        profile,
        bashrc,
        f"test -e ~/lmzoo/.venv || ln -s {ROOT}/.venv ~/lmzoo/.venv",
    ]
    for part in ("head_start_ray_commands", "worker_start_ray_commands"):
        stop, start = cluster[part]
        small = "ray start --num-cpus=1 --object-store-memory=100000000 "
        cluster[part] = [stop, start.replace("ray start ", small)]
    path.write_text(yaml.safe_dump(cluster))
