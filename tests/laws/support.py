"""Model calls with fixed noise, and comparisons of tensors (`lmzoo/laws/support.py`)."""

from lmzoo.laws.support import assert_close as assert_close
from lmzoo.laws.support import is_deterministic as is_deterministic
from lmzoo.laws.support import log_prob as log_prob
from lmzoo.laws.support import loss as loss
from lmzoo.laws.support import new_model as new_model
from lmzoo.laws.support import next_log_prob as next_log_prob
from lmzoo.laws.support import training_loss as training_loss
