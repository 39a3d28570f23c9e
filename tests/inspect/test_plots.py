"""The heat map shows each probability at its row and column."""

import torch

from lmzoo.inspect.plots import heat_map

PROBABILITIES = [[0.25, 1.0], [0.75, 0.0]]
ROWS = ["a", "b"]
COLUMNS = ["1 x", "2 y"]


def test_a_cell_has_the_probability_of_its_row_and_column():
    table = torch.tensor(PROBABILITIES)
    chart = heat_map(table, ROWS, COLUMNS, "component").to_dict()
    (cells,) = chart["datasets"].values()
    assert len(cells) == 4
    for cell in cells:
        row = ROWS.index(cell["row"])
        column = COLUMNS.index(cell["column"])
        assert cell["p"] == PROBABILITIES[row][column]
    places = {(cell["row"], cell["column"]) for cell in cells}
    assert len(places) == 4
    assert chart["encoding"]["y"]["sort"] == ROWS
