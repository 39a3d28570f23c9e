from pathlib import Path

import pytest

from lmzoo.errors import UserError
from lmzoo.store.local import Store
from lmzoo.store.open import open_store


def test_bucket_address_may_be_a_path(bucket):
    store = open_store(Path(f"{bucket}/a") / "b")
    assert str(store) == f"{bucket}/a/b" == store.address
    assert type(open_store("runs/a")) is Store


def test_address_without_a_bucket_is_refused():
    with pytest.raises(UserError, match="'s3://' has no bucket"):
        open_store("s3://")
