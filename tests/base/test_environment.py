import shutil
import sys

import numpy as np

from lmzoo.base.environment import differences, environment, place_of, present
from lmzoo.base.shell import command_environment


def test_what_a_script_imports_and_reads_is_recorded(tmp_path, monkeypatch):
    script = 'import json, numpy as np\nE = os.environ; import rich\nE["LEVEL"]'
    (tmp_path / "train.py").write_text(script)
    monkeypatch.setenv("LEVEL", "5")
    found = command_environment(f"{sys.executable} train.py $OTHER {{seed}}", tmp_path)
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


def install(site, version):
    facts = site / f"tinypkg-{version}.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Name: tinypkg\nVersion: {version}\n")


def test_a_package_that_is_upgraded_is_a_difference(tmp_path, monkeypatch):
    install(tmp_path, "1.0")
    monkeypatch.syspath_prepend(tmp_path)
    old = {"packages": {"tinypkg": "0.9", "gone": "1"}, "python": "2.7"}
    assert differences(old, present(old), program=True).keys() == {"tinypkg", "python"}


def test_a_command_has_the_packages_of_its_own_python(tmp_path):
    """Those that its helpers import, too."""
    python = tmp_path / "venv/bin/python3"
    site = tmp_path / "venv/lib/python3.9/site-packages"
    install(site, "2.0")
    python.parent.mkdir()
    python.write_text("")
    python.chmod(0o755)
    (tmp_path / "helper.py").write_text("import tinypkg")
    command = f"{python} train.py {{seed}}"
    assert "packages" not in command_environment(command, tmp_path)
    found = command_environment(command, tmp_path, ["helper.py"])
    assert found["packages"] == {"tinypkg": "2.0"}
    assert found["python"] == "3.9"
    assert "torch" not in found
    assert not differences(found, present(found), program=True)
    shutil.rmtree(site)
    install(site, "3.0")
    later = place_of()[0] + 1, *found["folders"]
    assert environment(sources=[b"import tinypkg"], place=later)["packages"] == {"tinypkg": "3.0"}
