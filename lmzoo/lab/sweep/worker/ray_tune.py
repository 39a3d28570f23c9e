"""Ray Tune in a worker, without Ray Data and pandas, which it imports for the types of signatures.

They take half of the time of its import, and a sweep uses neither. While Ray Tune is imported they
are modules whose names are empty classes; afterwards they can be imported as usual. The driver,
where Ray Tune registers a type of Ray Data, has imported all before.
"""

import sys
from types import ModuleType
from typing import Any


class _Absent(ModuleType):
    """A module that is not imported."""

    __path__ = []  # noqa: RUF012  a package, as the import system wants it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


_ABSENT = {name for name in ("ray.data", "pandas") if name not in sys.modules}
sys.modules.update({name: _Absent(name) for name in _ABSENT})
try:
    from ray import tune
finally:
    for _name in _ABSENT:
        del sys.modules[_name]

__all__ = ["tune"]
