import sys
from pathlib import Path

import pytest

from lmzoo.config import config
from lmzoo.errors import UserError
from lmzoo.registry import Registry, discover


@pytest.fixture
def tools() -> Registry:
    registry: Registry = Registry("tool")

    @registry("hammer")
    class Hammer:
        @config
        class Config:
            weight: int = 1

        def __init__(self, config: Config, length: int) -> None:
            self.config, self.length = config, length

    @registry("pliers")
    class Pliers:
        @config
        class Config:
            pass

    return registry


def test_two_parts_of_one_name_are_our_own_mistake(tools: Registry) -> None:
    with pytest.raises(AssertionError, match="tool 'hammer' is registered twice"):
        tools.add("hammer", object())


def test_a_part_knows_its_name(tools: Registry) -> None:
    assert tools["hammer"].name == "hammer"
    assert list(tools) == ["hammer", "pliers"]
    assert "hammer" in tools
    assert "saw" not in tools


@pytest.mark.parametrize(
    ("name", "said"),
    [("hamer", "no tool 'hamer'; near: hammer"), ("xyz", "no tool 'xyz'; known: hammer, pliers")],
)
def test_a_miss_suggests(tools: Registry, name: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        tools[name]
    assert str(caught.value) == said


def test_a_config_is_read_from_a_name_a_mapping_or_itself(tools: Registry) -> None:
    hammer = tools["hammer"].Config
    assert tools.read("hammer") == hammer()
    assert tools.read({"name": "hammer", "weight": 3}) == hammer(weight=3)
    assert tools.read(hammer(weight=3)) == hammer(weight=3)


def test_writing_is_the_inverse_of_reading(tools: Registry) -> None:
    for given in ("pliers", {"name": "hammer", "weight": 3}):
        written = tools.write(tools.read(given))
        assert tools.read(written) == tools.read(given)
        assert tools.write(tools.read(written)) == written


def test_equal_fields_do_not_make_two_parts_one(tools: Registry) -> None:
    @tools("mallet")
    class Mallet:
        @config
        class Config:
            weight: int = 1

    assert tools.name_of(tools.read("mallet")) == "mallet"
    assert tools.name_of(tools.read("hammer")) == "hammer"


def test_building_hands_over_config_and_sizes(tools: Registry) -> None:
    built = tools.build(tools.read({"name": "hammer", "weight": 2}), length=7)
    assert (type(built), built.config.weight, built.length) == (tools["hammer"], 2, 7)


def test_discovery_imports_every_module_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
