"""Old name of `lmzoo.sweep.worker.tensorboard`."""

from lmzoo.sweep.worker.tensorboard import RunWriter as RunWriter
from lmzoo.version import deprecated

deprecated("lmzoo.sweep.tensorboard", "lmzoo.sweep.worker.tensorboard", removed_in="0.4")
