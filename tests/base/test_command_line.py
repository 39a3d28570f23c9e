"""Garbage collection at the start and at the exit of command lines; fields of parts."""

import contextlib
import gc
import itertools
import json
import signal
from functools import partial

import pytest

from lmzoo.base.command_line import nest_settings, parse_settings, run_app
from lmzoo.base.errors import UserError
from lmzoo.base.memory import gc_disabled


def test_garbage_collection_is_disabled_during_imports():
    with gc_disabled():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), gc_disabled():
        import lmzoo.no_such_module  # type: ignore[import-not-found]  # noqa: F401
    assert gc.isenabled()


def test_a_part_and_its_fields_are_set_in_any_order():
    texts = ("model.cell=block", "model.cell.inner=mgu", "model.cell.inner.cuts=[4]")
    cell = {"name": "block", "inner": {"name": "mgu", "cuts": [4]}}
    for order in itertools.permutations(texts):
        assert nest_settings(parse_settings(order), "model") == {"cell": cell}
    given = {"model.cell": {"name": "mgu"}, "model.cell.cuts": [4]}
    nest_settings(given, "model")
    assert given["model.cell"] == {"name": "mgu"}, "the user's mapping was changed"
    with pytest.raises(UserError, match="too large"):
        parse_settings([f"recipe.batch={10**20}"])
    with pytest.raises(UserError, match=r"'model.width.x': 4 is not a part"):
        nest_settings({"model.width.x": 1, "model.width": 4}, "model")


def test_an_error_after_a_stop_is_a_stop(capsys):
    def stopped(**_: object):
        with contextlib.suppress(KeyboardInterrupt):  # as a callback of a C library does
            signal.raise_signal(signal.SIGTERM)
        raise RuntimeError("no compiled object yet")

    with pytest.raises(SystemExit) as stop:
        run_app(stopped)
    assert stop.value.code == 130
    assert capsys.readouterr().err == "stopped; RuntimeError: no compiled object yet\n"


def test_an_error_that_is_not_foreseen_is_one_line_and_no_answer(capsys, monkeypatch):
    own = (lambda **_: __import__("no_such_module"), lambda **_: {}["a key\nof two lines"])
    for fails, code in ((partial(json.loads, "{}"), 70), (own[0], 2), (own[1], 2)):
        with pytest.raises(SystemExit) as stop:
            run_app(fails)
        error = capsys.readouterr().err
        assert stop.value.code == code
        assert error.count("\n") == 1
        assert error.startswith("error of lmzoo: " if code == 70 else "error in your code: ")
    monkeypatch.setenv("LMZOO_TRACEBACK", "1")
    with pytest.raises(SystemExit):
        run_app(lambda **_: __import__("no_such_module"))
    assert "Traceback" in capsys.readouterr().err
