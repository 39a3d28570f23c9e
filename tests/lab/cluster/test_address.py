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
    env = {"RAY_TMPDIR": str(home)}
    first = ray_environment(env)
    second = ray_environment(env)
    token = first["RAY_AUTH_TOKEN"]
    assert "RAY_ADDRESS" not in first
    assert first["RAY_AUTH_MODE"] == "token"
    assert QUIET.items() <= first.items()
    # 32 bytes in hexadecimal.
    assert len(token) == 64
    assert token != second["RAY_AUTH_TOKEN"]


def test_the_head_of_a_cluster_joins_it(home):
    env = make_head(home)
    found = ray_environment(env)
    assert found["RAY_ADDRESS"] == "10.0.0.1:6379"
    assert QUIET.items() <= found.items()
    assert "RAY_AUTH_MODE" not in found


def test_a_cluster_with_a_token_is_joined_with_it(home):
    env = make_head(home)
    (home / ".ray").mkdir()
    (home / ".ray/auth_token").write_text("secret")
    assert ray_environment(env)["RAY_AUTH_MODE"] == "token"


def test_local_joins_no_cluster(home):
    env = make_head(home) | {"RAY_ADDRESS": "local"}
    assert "RAY_ADDRESS" not in ray_environment(env)


@pytest.mark.parametrize("address", ["10.9.9.9:1", "localhost:6379"])
def test_the_address_of_the_user_comes_first(home, address):
    env = make_head(home) | {"RAY_ADDRESS": address}
    assert ray_environment(env)["RAY_ADDRESS"] == address


def test_a_cluster_of_another_account_is_not_joined(home, monkeypatch):
    env = make_head(home)
    # The files belong to who runs the test.
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert "RAY_ADDRESS" not in ray_environment(env)


@pytest.mark.parametrize("missing", ["ray_bootstrap_config.yaml", "ray/ray_current_cluster"])
def test_a_ray_that_ray_up_did_not_start_is_not_joined(home, missing):
    env = make_head(home)
    (home / missing).unlink()
    assert "RAY_ADDRESS" not in ray_environment(env)
