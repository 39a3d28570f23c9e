"""A local S3 server and an empty bucket in it."""

import itertools

import pytest

from lmzoo.lab.store import s3


@pytest.fixture(scope="session")
def s3_server():
    """Yield the URL of a moto server on loopback."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


BUCKET_NUMBERS = itertools.count()


@pytest.fixture
def bucket(s3_server, monkeypatch, tmp_path):
    """Yield the address of an empty bucket; boto3 finds the server by the environment."""
    import boto3

    environment = {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    s3._client.cache_clear()
    s3._scratch_folder.cache_clear()
    name = f"runs-{next(BUCKET_NUMBERS)}"
    boto3.client("s3").create_bucket(Bucket=name)
    yield f"s3://{name}"
    s3._client.cache_clear()
    s3._scratch_folder.cache_clear()
