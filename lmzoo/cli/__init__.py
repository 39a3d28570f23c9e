"""The subcommands of `lmzoo`, one file each, apart from `list` and `describe` in catalogue.py.

`lmzoo NAME` imports only the module of that subcommand, so table commands do not import torch.
"""

import sys

from lmzoo.base import say_stopped

sys.excepthook = say_stopped
