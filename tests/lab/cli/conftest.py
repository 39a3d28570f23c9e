from tests.cli.conftest import lmzoo as lmzoo
from tests.cli.conftest import printed as printed
from tests.cli.conftest import refused as refused
from tests.lab.analysis.conftest import no_charts as no_charts
from tests.lab.analysis.conftest import toy as toy
