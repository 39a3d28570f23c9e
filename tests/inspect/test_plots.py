"""The heat map shows each probability at its row and column."""

import torch

from lmzoo.inspect.plots import heat_map


def test_a_cell_has_the_probability_of_its_row_and_column():
    table = torch.tensor([[0.25, 1.0], [0.75, 0.0]])
    chart = heat_map(table, ["a", "b"], ["1 x", "2 y"], "component").to_dict()
    (values,) = chart["datasets"].values()
    cells = {(cell["row"], cell["column"]): cell["p"] for cell in values}
    assert cells == {("a", "1 x"): 0.25, ("a", "2 y"): 1, ("b", "1 x"): 0.75, ("b", "2 y"): 0}
    assert chart["encoding"]["y"]["sort"] == ["a", "b"]
