"""Is a tensor mapped by `torch.vmap`, as those of pack members are?"""

import torch
from torch import Tensor


def is_vmapped(x: Tensor) -> bool:
    """Return whether `torch.vmap` maps over the tensor; no shape may depend on its values then."""
    return torch._C._functorch.is_batchedtensor(x)  # pyright: ignore[reportAttributeAccessIssue]
