import sys

import numpy as np

from lmzoo.base.environment import differences, environment, present
from lmzoo.base.shell import command_sources


def test_what_a_script_imports_and_reads_is_recorded(tmp_path, monkeypatch):
    script = 'import json, numpy as np\nE = os.environ; import rich\nE["LEVEL"]'
    (tmp_path / "train.py").write_text(script)
    monkeypatch.setenv("LEVEL", "5")
    sources = command_sources("python train.py $OTHER {seed}", tmp_path)
    found = environment(sources=sources)
    assert found["packages"]["numpy"] == np.__version__
    assert found["variables"].keys() == {"LEVEL", "OTHER"}
    assert found["variables"]["OTHER"] is None
    assert found["variables"]["LEVEL"] != "5"  # it may be a secret
    assert not differences(found, present(found), program=True)
    monkeypatch.setenv("LEVEL", "6")
    monkeypatch.setenv("OTHER", "")
    changed = differences(found, present(found), program=True)
    assert changed.keys() == {"LEVEL", "OTHER"}
    assert not differences(found, present(found), program=False)


def test_a_function_has_the_distributions_that_it_has_imported():
    assert environment(sys.modules)["packages"]["pytest"]
    assert "packages" not in environment()


def test_a_package_that_is_upgraded_is_a_difference(tmp_path, monkeypatch):
    (tmp_path / "tinypkg-1.0.dist-info").mkdir()
    (tmp_path / "tinypkg-1.0.dist-info/METADATA").write_text("Name: tinypkg\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    old = {"packages": {"tinypkg": "0.9", "gone": "1"}, "python": "2.7"}
    assert differences(old, present(old), program=True).keys() == {"tinypkg", "python"}
