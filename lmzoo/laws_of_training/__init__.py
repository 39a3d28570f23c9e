"""Laws of training, above `lmzoo.laws`: a pack equals lone runs, and a replay equals execution.

In comes a model; a law that does not hold raises AssertionError. Read `packing.py` first.
`iid_floor` trains on independent tokens: no causal model scores below their entropy.
"""

from lmzoo import laws
from lmzoo.contract import LanguageModel
from lmzoo.laws import Law, laws_of
from lmzoo.laws_of_training import packing

TRAINING = laws_of(packing)


def laws_for(model: type[LanguageModel]) -> list[Law]:
    """Return the laws that models of this class must obey, those of training included."""
    return laws.laws_for(model) + TRAINING
