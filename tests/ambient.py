"""States of a process in which somebody calls lmzoo."""

import os
import random
import sys
import warnings
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from lmzoo.kernels.device import Setting, flag, settings

BACKENDS = torch.backends
DTYPE = torch.get_default_dtype, torch.set_default_dtype
SET: dict[str, Setting] = {
    "float64": (*DTYPE, torch.float64),
    "bfloat16": (*DTYPE, torch.bfloat16),
    "float16": (*DTYPE, torch.float16),
    "device": (torch.get_default_device, torch.set_default_device, "meta"),
    "threads": (torch.get_num_threads, torch.set_num_threads, 2),
    "gradients": (torch.is_grad_enabled, torch._C._set_grad_enabled, False),
    "medium precision": (
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium",
    ),
    "deterministic": (
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True,
    ),
    "denormals": (lambda: bool(SMALL * 0.1 == 0), torch.set_flush_denormal, True),
    "TF32": flag(BACKENDS, "fp32_precision", "tf32"),
    "TF32 of convolutions": flag(BACKENDS.cudnn.conv, "fp32_precision", "ieee"),
    "without oneDNN": flag(BACKENDS.mkldnn, "enabled", value=False),
    "without einsum": flag(BACKENDS.opt_einsum, "enabled", value=False),
    "filled memory": flag(torch.utils.deterministic, "fill_uninitialized_memory", value=True),
    "stderr": flag(sys, "stderr", None),
    "numpy": (np.geterr, lambda how: np.seterr(**how), dict.fromkeys(np.geterr(), "raise")),
}  # fmt: skip
# A tenth of it is a denormal number.
SMALL = torch.full((1,), 2e-38, device="cpu")
STATES: dict[str, Any] = {
    **{name: lambda setting=setting: settings([setting]) for name, setting in SET.items()},
    "plain": lambda: settings([]),
    "bfloat16 in oneDNN": lambda: settings([flag(BACKENDS.mkldnn.conv, "fp32_precision", "bf16")]),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast float16": lambda: torch.autocast("cpu", torch.float16),
    "autocast without cache": lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "device context": lambda: torch.device("meta"),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(mode=True),
    "attention": lambda: sdpa_kernel(SDPBackend.MATH),
}
"""Name -> a function that makes the context of the state."""


def value_of(setting: Setting):
    """Return a setting; torch's error if the new name of a flag is set, and this is the old one."""
    try:
        return setting[0]()
    except RuntimeError as error:
        return str(error)


def observed() -> list[Any]:
    """Return the state of the process, which a call must leave as it is."""
    values: list[Any] = list(map(value_of, SET.values()))
    values.append(torch.is_autocast_enabled("cpu"))
    values.append(torch.is_autocast_enabled("cuda"))
    values.append(torch.is_inference_mode_enabled())
    values.append(BACKENDS.cuda.flash_sdp_enabled())
    values.append(list(warnings.filters))
    values.append(dict(os.environ))
    values.append(random.getstate())
    # Arrays and tensors do not compare to one truth.
    values.append(str(np.random.get_state()))
    values.append(torch.get_rng_state().tolist())
    return values
