from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real() -> Path:
    """The real data, which licences keep out of the repository; it may lie beside it."""
    folder = Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real data in {folder}")
    return folder
