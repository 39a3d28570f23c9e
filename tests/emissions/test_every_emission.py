import pytest

from lmzoo.emissions.base import EMISSIONS, Emission
from lmzoo.functional.normalise import Norm
from lmzoo.laws.emissions import EMISSION_LAWS, EmissionLaw
from tests.emissions.support import make


@pytest.fixture(params=EMISSIONS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=Norm)
def emission(name: str, request: pytest.FixtureRequest) -> Emission:
    return make(name, request.param)


@pytest.mark.parametrize("law", EMISSION_LAWS, ids=lambda law: law.__name__)
def test_every_emission_obeys_every_law(emission: Emission, law: EmissionLaw) -> None:
    law(emission)
