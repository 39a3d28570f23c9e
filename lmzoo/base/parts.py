"""The parts of an installation: what a command needs, what is missing, and how to install it.

The base installation judges, plans, ranks and reports. The extras of `pyproject.toml` bring the
rest.
"""

from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "lmzoo-ablations"
PARTS = {
    "zoo": ("torch", "numba", "llvmlite", "jaxtyping", "pooch", "filelock"),
    "sweeps": ("ray", "optuna", "tensorboard"),
    "figures": ("altair", "vl_convert"),
    "bpe": ("tokenizers",),
    "track": ("wandb",),
    "cluster": ("boto3",),
}
"""Extra -> the modules that it brings."""


def missing_parts(module: str, needs: tuple[str, ...] = ()) -> list[str]:
    """Return the extras to install: those of a command that lack a module, and that of `module`.

    It is empty if no extra brings the module.
    """
    bringing = [extra for extra, modules in PARTS.items() if module in modules]
    # A module of the user, or one that should be there.
    if not bringing:
        return []
    lacking = [extra for extra in needs if not is_complete(extra)]
    return list(dict.fromkeys(lacking + bringing))


def is_complete(extra: str) -> bool:
    """Whether all modules of an extra are installed."""
    return all(map(_is_installed, PARTS[extra]))


def install_command(extras: list[str]) -> str:
    """Return the command that adds extras to this installation, a clone or not."""
    names = ",".join(extras)
    clone = Path(__file__).parents[2]
    if (clone / "pyproject.toml").exists():
        return f"pip install -c {clone}/constraints.txt -e '{clone}[{names}]'"
    return f"pip install '{DISTRIBUTION}[{names}]'"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ValueError, ModuleNotFoundError):  # a module that a test has replaced
        return False
