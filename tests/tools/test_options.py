"""The page of the laws at each option has the options of today."""

from tools.options import PAGE, page


def test_the_page_lists_the_cases():
    assert PAGE.read_text("utf-8") == page(), "python tools/options.py writes it"
