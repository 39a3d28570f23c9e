"""Which cluster a sweep joins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.lab.cluster.address import ray_environment
from tests.lab.sweep.processes import ROOT


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ray").mkdir()
    return tmp_path


def make_head(home: Path) -> dict[str, str]:
    """Write the files of a cluster's head; return its environment."""
    (home / "ray_bootstrap_config.yaml").write_text("provider: {type: local}")
    (home / "ray/ray_current_cluster").write_text("10.0.0.1:6379\n")
    return {"RAY_TMPDIR": str(home)}


def test_without_a_cluster_ray_starts_with_a_new_random_token(home):
    first, second = (ray_environment({"RAY_TMPDIR": str(home)}) for _ in range(2))
    assert "RAY_ADDRESS" not in first
    assert first["RAY_AUTH_MODE"] == "token"
    assert len(first["RAY_AUTH_TOKEN"]) == 64
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]


def test_the_head_of_a_cluster_joins_it(home):
    env = make_head(home)
    assert ray_environment(env)["RAY_ADDRESS"] == "10.0.0.1:6379"
    assert "RAY_AUTH_MODE" not in ray_environment(env)
    (home / ".ray").mkdir()
    (home / ".ray/auth_token").write_text("secret")
    assert ray_environment(env)["RAY_AUTH_MODE"] == "token"
    assert "RAY_ADDRESS" not in ray_environment({**env, "RAY_ADDRESS": "local"})
    assert ray_environment({**env, "RAY_ADDRESS": "10.9.9.9:1"})["RAY_ADDRESS"] == "10.9.9.9:1"


def test_a_cluster_of_another_account_is_not_joined(home, monkeypatch):
    env = make_head(home)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert "RAY_ADDRESS" not in ray_environment(env)


@pytest.mark.parametrize(
    ("ray_address", "joined"), [("local", ""), ("localhost:6379", "localhost:6379"), ("", "")]
)
def test_only_the_exact_name_local_means_no_cluster(home, ray_address, joined):
    env = {**os.environ, "RAY_ADDRESS": ray_address, "HOME": str(home), "RAY_TMPDIR": str(home)}
    code = "from lmzoo.lab.cluster.connection import ADDRESS; print(ADDRESS)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=ROOT
    )
    assert (done.stdout.strip(), done.returncode) == (joined, 0), done.stderr


@pytest.mark.parametrize("missing", ["ray_bootstrap_config.yaml", "ray/ray_current_cluster"])
def test_a_ray_that_ray_up_did_not_start_is_not_joined(home, missing):
    env = make_head(home)
    (home / missing).unlink()
    assert "RAY_ADDRESS" not in ray_environment(env)
