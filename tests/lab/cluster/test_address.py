"""Which cluster a sweep joins."""

from pathlib import Path

import pytest

from lmzoo.lab.cluster.address import QUIET, ray_environment


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


def test_without_a_cluster_ray_starts_with_a_new_random_token(home, monkeypatch):
    monkeypatch.setattr("os.path.expanduser", str)  # an account without a home
    first, second = (ray_environment({"RAY_TMPDIR": str(home)}) for _ in range(2))
    assert "RAY_ADDRESS" not in first
    assert first["RAY_AUTH_MODE"] == "token"
    assert QUIET.items() <= first.items()
    assert len(first["RAY_AUTH_TOKEN"]) == 64
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]


def test_the_head_of_a_cluster_joins_it(home):
    env = make_head(home)
    assert ray_environment(env)["RAY_ADDRESS"] == "10.0.0.1:6379"
    assert QUIET.items() <= ray_environment(env).items()
    assert "RAY_AUTH_MODE" not in ray_environment(env)
    (home / ".ray").mkdir()
    (home / ".ray/auth_token").write_text("secret")
    assert ray_environment(env)["RAY_AUTH_MODE"] == "token"
    assert "RAY_ADDRESS" not in ray_environment({**env, "RAY_ADDRESS": "local"})
    for address in ("10.9.9.9:1", "localhost:6379"):
        assert ray_environment({**env, "RAY_ADDRESS": address})["RAY_ADDRESS"] == address


def test_a_cluster_of_another_account_is_not_joined(home, monkeypatch):
    env = make_head(home)
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert "RAY_ADDRESS" not in ray_environment(env)


@pytest.mark.parametrize("missing", ["ray_bootstrap_config.yaml", "ray/ray_current_cluster"])
def test_a_ray_that_ray_up_did_not_start_is_not_joined(home, missing):
    env = make_head(home)
    (home / missing).unlink()
    assert "RAY_ADDRESS" not in ray_environment(env)
