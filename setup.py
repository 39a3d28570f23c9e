"""The studies of `sweeps/` and a cluster file go into the wheel (`lmzoo/lab/cli/shipped.py`)."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithStudies(build_py):
    """Copies the studies into the package; an editable installation has them beside it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "lmzoo/shipped_studies")
            target.mkdir(parents=True, exist_ok=True)
            for path in (*Path("sweeps").glob("*.py"), Path("clusters/onprem.yaml")):
                shutil.copyfile(path, target / path.name)


setup(cmdclass={"build_py": BuildWithStudies})
