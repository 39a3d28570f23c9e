"""The fixtures of the toy study."""

from tests.toy_study import corpus as corpus
from tests.toy_study import corpus_fields as corpus_fields
from tests.toy_study import planner as planner
from tests.toy_study import sentences as sentences
from tests.toy_study import study as study
from tests.toy_study import undisturbed as undisturbed
