"""A Python function of the user that trains.

    def train(settings, seed, resume):
        ...
        yield {"epoch": 1, "valid": 1.31}, state

It yields a report after each epoch. With a state, of tensors, arrays and plain values, the run is
saved after each epoch: `resume` is the last state, None at the beginning. Without a state a run
that was interrupted begins again. A function that has a parameter `epochs` gets the number of
epochs of the study. One that returns its metrics instead trains in one step.
"""

import contextlib
import importlib
import inspect
import os
import random
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from lmzoo.base.environment import environment
from lmzoo.base.errors import UserError
from lmzoo.base.plain import Fields, FieldsDict
from lmzoo.base.restored import restore_variables
from lmzoo.base.seeds import derive_seed
from lmzoo.lab.store.opened import Files, noted, own_log, read_log, variables
from lmzoo.lab.store.pack_files import RUN
from lmzoo.lab.store.records import Record
from lmzoo.lab.store.user_code import UserCode, user_code
from lmzoo.lab.study.output import printed_into
from lmzoo.lab.study.programs import ProgramRun, Report
from lmzoo.train.checkpoint import checkpoint_bytes, read_checkpoint

GIVEN = "settings, seed, resume, epochs"
"""Arguments of a function."""
ARRAY = "numpy array"
"""Key of an array in a saved state."""


def check_function(function: Callable[..., Any]):
    """Raise a `UserError` unless workers can import the function and it has the parameters."""
    # Workers import the function by this name.
    name = getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(getattr(function, "__module__", ""))
    for part in name.split("."):
        found = getattr(found, part, None)
    code = getattr(function, "__code__", function)
    if getattr(found, "__code__", found) is not code:  # %autoreload gives the older one new code
        raise UserError(
            f"function {name or function!r} is not defined at the top of a module, so that no "
            "worker can import it; define it with `def` in a file; after a reload, import it again"
        )
    try:
        known = inspect.signature(function).parameters.values()
    except ValueError:  # it is written in C
        known = ()
    for parameter in known:
        is_needed = parameter.default is parameter.empty
        if parameter.kind.name.startswith("VAR_") or parameter.name in GIVEN.split(", "):
            is_needed = False
        # A call without it would fail on every worker.
        if is_needed or parameter.kind is parameter.POSITIONAL_ONLY:
            raise UserError(
                f"function {name} needs {parameter}; it is given {GIVEN} by their names only"
            )
    # It would return at once, without training.
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UserError(f"function {name} is asynchronous; write def {name}(settings, seed)")
    for parameter in ("settings", "seed"):
        if not known or not _takes(function, parameter):
            raise UserError(
                f"function {name} has no parameter {parameter!r}; write def {name}(settings, seed)"
            )


def takes_epochs(function: Callable[..., Any]) -> bool:
    """Return whether the number of epochs decides what the function does."""
    return "epochs" in inspect.signature(function).parameters


def function_code(function: Callable[..., Any]) -> UserCode:
    """Return the files of the function's module, and of those that it imports from its folder."""
    return user_code({function.__module__}, loaded=True)


def function_facts(function: Callable[..., Any]) -> FieldsDict:
    """Return what names the function; its code is a part of the run's identity of its own."""
    code = function_code(function)
    module = next(iter(code.modules), function.__module__)  # the name of a script, not __main__
    return {"name": function.__name__, "function": f"{module}:{function.__qualname__}"}


class FunctionRun(ProgramRun):
    """A run of a function."""

    _reports: Any = None
    _given: Mapping[str, str] = os.environ
    """The variables of the process before its step."""
    _changed: Mapping[str, str] = {}
    """The variables that it has set itself."""
    loaded = (".py",)
    from_zero = "report epoch + 1"
    rarer = "report each validation as an epoch, 1, 2, ...; one here is {:g} of its own"

    def start(self, budget: int) -> Iterator[Report]:
        """Call the function, and yield what it reports."""
        module, _, name = self.config["model"]["function"].partition(":")
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        self.environment()  # looks up the versions of what is imported, before an upgrade
        given = {
            "settings": dict(self.config["recipe"]),
            "seed": self.config["seed"],
            "resume": self.training.state,
            "epochs": budget,
        }
        # With the epoch: a run that goes on must not repeat its draws.
        _seed_generators(derive_seed(given["seed"], self.epoch))
        try:
            with _as_before():
                yield from self._reported(function, given)
        except Exception:
            raise
        except BaseException as error:  # of the function: the worker goes on
            if error.__traceback__ is None or error.__traceback__.tb_next is None:
                raise  # it closes this generator
            words = repr(error)
            if isinstance(error, SystemExit):
                words = f"sys.exit({error.code!r})"
            raise RuntimeError(f"it ended with {words}").with_traceback(error.__traceback__)  # noqa: B904

    def _reported(self, function: Any, given: Fields) -> Iterator[Report]:
        arguments = {name: value for name, value in given.items() if _takes(function, name)}
        result = function(**arguments)
        # A function that returns (loss, model) looks like (report, state).
        if isinstance(result, tuple) and not isinstance(next(iter(result), None), Mapping):
            raise RuntimeError(f"it returned {result!r:.60}: return one number, or metrics by name")
        # An array of no dimension is an Iterable, too.
        is_one = getattr(result, "ndim", 1) == 0
        if isinstance(result, Mapping | str | tuple):
            is_one = True
        if is_one or not isinstance(result, Iterable):
            result = [result]
        self._reports = result
        unnumbered = 0
        for item in result:
            report = item
            state = None
            if isinstance(item, tuple):
                if len(item) != 2:
                    raise RuntimeError(f"it reported {item!r:.60}: report metrics, or also a state")
                report, state = item
            metrics = {"": report}
            if isinstance(report, Mapping):
                metrics = report
            # A report without the metric, such as a line of progress, counts nothing.
            if "epoch" not in metrics and ("" in metrics or self._metric in metrics):
                unnumbered += 1
            if unnumbered > given["epochs"] and isinstance(result, Iterator):  # for ever, perhaps
                raise RuntimeError(
                    f"{unnumbered} reports have no epoch, in a study of {given['epochs']} epochs; "
                    'report {"epoch": 1, ...} after each epoch'
                )
            yield {str(name): value for name, value in metrics.items()}, state

    def train_epoch(self, budget: int):
        """Wait for the next report; what the function prints goes into the folder of the run."""
        # A function may fork; its child must not go on as a worker.
        process = os.getpid()
        try:
            with printed_into(self.folder.path), noted(), self._own_variables():
                super().train_epoch(budget)
        finally:
            if os.getpid() != process:  # a child that it forked, which has returned or failed
                os._exit(1)

    @contextlib.contextmanager
    def _own_variables(self) -> Iterator[None]:
        """Give a step the variables of its run; other steps of the process do not see them."""
        self._given = dict(os.environ)
        # What the children of a function read counts, too.
        os.environ.update(dict(self._changed) | variables(own_log()))
        try:
            yield
        finally:
            self._changed = {}
            for name, text in os.environ.items():
                if self._given.get(name) != text:
                    self._changed[name] = text
            restore_variables(self._given)

    def environment(self) -> FieldsDict:
        module, _, _ = self.config["model"]["function"].partition(":")
        files = user_code({module}).files.values()
        return environment(sys.modules, files, self._given)

    def read_files(self) -> Files:
        return read_log(own_log(), self.where)

    @property
    def has_state(self) -> bool:
        return self.training.state is not None

    def forget_state(self):
        self.training.state = None

    def stop(self):
        """Close the generators; what a `finally` of the function raises is printed only."""
        # The inner one first: its `finally` may use what the outer one holds.
        for generator in (self._reports, self._stream):
            if isinstance(generator, Generator):
                with printed_into(self.folder.path):
                    try:
                        generator.close()
                    except BaseException:  # or another thread waits for its next report
                        traceback.print_exc()
        self._stream = self._reports = None

    def _dump(self, records: list[Record]) -> Callable[[], bytes] | None:
        training = self.training
        if training.state is None:
            return None
        saved = {
            "epoch": training.epoch,
            "record": training.record,
            "state": _plain(training.state),
            "optimiser": None,
            "records": records,
            RUN: self.identity,
        }
        # Copied now, because the function may change its state.
        return partial(bytes, checkpoint_bytes(saved))

    def _load(self, data: bytes) -> list[Record]:
        saved = read_checkpoint(data, self.identity)
        training = self.training
        training.epoch = saved["epoch"]
        training.record = saved["record"]
        training.state = _arrays(saved["state"])
        return saved["records"]


def _seed_generators(seed: int):
    """Seed what a function may draw from without a seed of its own."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)  # also those of GPUs


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Restore what a run may set for those that follow: the folder, states of numpy and torch."""
    with torch.enable_grad(), contextlib.ExitStack() as after:
        after.callback(np.seterr, **np.geterr())  # `errstate` has to end in its own thread
        folder = os.open(".", os.O_RDONLY)  # a folder that was renamed is the same
        after.callback(os.close, folder)
        after.callback(os.fchdir, folder)
        after.callback(torch.set_default_dtype, torch.get_default_dtype())
        yield


def _takes(function: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(function).parameters
    if name in parameters:
        return True
    return any(other.kind is other.VAR_KEYWORD for other in parameters.values())


def _plain(value: Any) -> Any:
    """Return a state without arrays, as `torch.load(weights_only=True)` reads it."""
    # Other arrays, of objects, would need pickle.
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        return {ARRAY: torch.from_numpy(value.copy())}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        if isinstance(value, tuple):  # or a named one, whose class is not loaded again
            return tuple(items)
        return items
    if isinstance(value, torch.Tensor | str | bytes | bool | int | float | complex | None):
        return value
    raise RuntimeError(
        f"the state has a {type(value).__name__}; give tensors, arrays, numbers, text, lists, "
        "tuples and dictionaries"
    )


def _arrays(value: Any) -> Any:
    if isinstance(value, dict):
        # As `_plain` has written it.
        if value.keys() == {ARRAY}:
            return value[ARRAY].numpy()
        return {key: _arrays(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_arrays(item) for item in value)
    return value
