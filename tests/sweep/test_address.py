"""Which cluster a sweep joins."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmzoo.sweep.address import environment

from .processes import ROOT


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ray").mkdir()
    return tmp_path


def _of_a_head(home: Path) -> dict[str, str]:
    (home / "ray_bootstrap_config.yaml").write_text("provider: {type: local}")
    (home / "ray/ray_current_cluster").write_text("10.0.0.1:6379\n")
    return {"RAY_TMPDIR": str(home)}


def test_without_a_cluster_it_is_our_own_behind_a_token_nobody_knows(home):
    one, other = environment({"RAY_TMPDIR": str(home)}), environment({"RAY_TMPDIR": str(home)})
    assert "RAY_ADDRESS" not in one
    assert one["RAY_AUTH_MODE"] == "token"
    assert len(one["RAY_AUTH_TOKEN"]) == 64
    assert one["RAY_AUTH_TOKEN"] != other["RAY_AUTH_TOKEN"]


def test_the_head_of_a_cluster_joins_it(home):
    env = _of_a_head(home)
    assert environment(env) == {"RAY_ADDRESS": "10.0.0.1:6379"}
    (home / ".ray").mkdir()
    (home / ".ray/auth_token").write_text("secret")
    assert environment(env)["RAY_AUTH_MODE"] == "token"
    assert "RAY_ADDRESS" not in environment({**env, "RAY_ADDRESS": "local"})
    assert environment({**env, "RAY_ADDRESS": "10.9.9.9:1"})["RAY_ADDRESS"] == "10.9.9.9:1"


def test_a_cluster_of_another_account_is_not_joined(home, monkeypatch):
    env = _of_a_head(home)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert "RAY_ADDRESS" not in environment(env)


@pytest.mark.parametrize(
    ("named", "joined"), [("local", ""), ("localhost:6379", "localhost:6379"), ("", "")]
)
def test_local_is_a_name_of_its_own_and_no_beginning(home, named, joined):
    env = {**os.environ, "RAY_ADDRESS": named, "HOME": str(home), "RAY_TMPDIR": str(home)}
    code = "from lmzoo.sweep.cluster import ADDRESS; print(ADDRESS)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=ROOT
    )
    assert (done.stdout.strip(), done.returncode) == (joined, 0), done.stderr


@pytest.mark.parametrize("missing", ["ray_bootstrap_config.yaml", "ray/ray_current_cluster"])
def test_ray_that_was_not_started_by_ray_up_is_not_joined(home, missing):
    env = _of_a_head(home)
    (home / missing).unlink()
    assert "RAY_ADDRESS" not in environment(env)
