"""Measure the largest tensor that a computation creates."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestTensorMode(TorchDispatchMode):
    """Records the size of the largest result of any operation, forward or backward."""

    def __init__(self):
        super().__init__()
        self.max_numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if kwargs is None:
            kwargs = {}
        result = func(*args, **kwargs)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.max_numel = max(self.max_numel, leaf.numel())
        return result
