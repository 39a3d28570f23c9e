import sys
from abc import ABC, abstractmethod

import pytest

from lmzoo.base.config import config
from lmzoo.base.errors import UserError
from lmzoo.base.registry import Registry, discover


@pytest.fixture
def tools() -> Registry:
    registry: Registry = Registry("tool")

    @registry("hammer")
    class Hammer:
        @config
        class Config:
            weight: int = 1

    @registry("pliers")
    class Pliers:
        @config
        class Config:
            pass

    return registry


def test_a_name_and_a_config_belong_to_one_part(tools):
    with pytest.raises(UserError, match=r"'hammer' is registered already, by .*Hammer; choose"):
        tools.add("hammer", object())

    class Mallet:
        Config = tools["hammer"].Config

    with pytest.raises(UserError, match=r"'mallet' has the Config of .*Hammer; define its own"):
        tools.add("mallet", Mallet)


def test_a_class_that_is_defined_again_replaces_the_old_one(tools):
    def define() -> type:
        @tools("saw")
        class Saw:
            @config
            class Config:
                teeth: int = 9

        return Saw

    define()
    again = define()
    assert tools["saw"] is again
    assert tools.name_of(tools.parse("saw")) == "saw"


@pytest.mark.parametrize(
    ("name", "message"),
    [("hamer", "no tool 'hamer'; near: hammer"), ("xyz", "no tool 'xyz'; known: hammer, pliers")],
)
def test_an_unknown_name_suggests_similar_names(tools, name, message):
    with pytest.raises(UserError) as caught:
        tools[name]
    assert str(caught.value) == message


def test_parse_accepts_a_name_a_mapping_or_a_config_and_dump_is_its_inverse(tools):
    hammer = tools["hammer"].Config
    assert tools.parse("hammer") == hammer()
    assert tools.parse({"name": "hammer", "weight": 3}) == hammer(weight=3)
    assert tools.parse(hammer(weight=3)) == hammer(weight=3)
    for value in ("pliers", {"name": "hammer", "weight": 3}):
        dumped = tools.dump(tools.parse(value))
        assert tools.parse(dumped) == tools.parse(value)
        assert tools.dump(tools.parse(dumped)) == dumped


def test_discover_imports_every_module_below_a_package(tmp_path, monkeypatch):
    nested = tmp_path / "shed" / "shelf"
    nested.mkdir(parents=True)
    for folder in (nested.parent, nested):
        (folder / "__init__.py").touch()
        (folder / "thing.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    discover("shed")
    assert {"shed.thing", "shed.shelf.thing"} <= set(sys.modules)
    for name in [name for name in sys.modules if name.split(".")[0] == "shed"]:
        monkeypatch.delitem(sys.modules, name)


def test_a_part_that_lacks_a_method_or_its_config_is_refused_where_it_is_defined(tools):
    class Saw(ABC):
        @abstractmethod
        def cut(self): ...

    with pytest.raises(UserError, match=r"tool 'saw' lacks cut and Config; add it to .*Saw$"):
        tools("saw")(Saw)
    assert "saw" not in tools
