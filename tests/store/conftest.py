"""An S3 server on loopback, and a bucket in it."""

import itertools

import pytest

from lmzoo.store import s3 as bucket_module


@pytest.fixture(scope="session")
def s3_server():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


NUMBERS = itertools.count()


@pytest.fixture
def bucket(s3_server, monkeypatch, tmp_path):
    """The address of an empty bucket; boto3 finds the server by its environment."""
    import boto3

    fake = {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }
    for name, value in fake.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bucket_module.tempfile, "tempdir", str(tmp_path))
    bucket_module._client.cache_clear()
    bucket_module._scratch.cache_clear()
    name = f"runs-{next(NUMBERS)}"
    boto3.client("s3").create_bucket(Bucket=name)
    yield f"s3://{name}"
    bucket_module._client.cache_clear()
    bucket_module._scratch.cache_clear()
