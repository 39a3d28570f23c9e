"""Old name of `lmzoo.sweep.worker.tensorboard`."""

from lmzoo.deprecation import deprecated
from lmzoo.sweep.worker.tensorboard import RunWriter as RunWriter

deprecated("lmzoo.sweep.tensorboard", "lmzoo.sweep.worker.tensorboard", removed_in="0.4")
