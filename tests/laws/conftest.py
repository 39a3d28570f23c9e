from tests.cli.conftest import lmzoo as lmzoo
