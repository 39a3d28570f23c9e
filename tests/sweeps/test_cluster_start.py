"""Ray of our own that does not start, as on a busy machine, is started again."""

import contextlib

import pytest

from sweeps.engine import cluster as clusters


@pytest.mark.parametrize("failures", [0, clusters.STARTS - 1, clusters.STARTS])
def test_ray_that_does_not_start_is_started_again(monkeypatch, failures):
    calls = []

    def init(**_):
        calls.append(1)
        if len(calls) <= failures:
            raise Exception("The current node timed out during startup. This could")

    monkeypatch.setattr(clusters, "ADDRESS", "")
    monkeypatch.setattr(clusters.ray, "init", init)
    refused = failures == clusters.STARTS
    ends = pytest.raises(Exception, match="timed out") if refused else contextlib.nullcontext()
    with ends, clusters.cluster():
        assert len(calls) == failures + 1
    assert len(calls) == min(failures + 1, clusters.STARTS)
