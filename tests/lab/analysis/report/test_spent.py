"""What a study has spent, by stage."""

import json

from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.report.recipe import spent_table
from lmzoo.lab.store.records import RECORDS


def test_stages_list_their_runs_and_the_devices_of_their_epochs(toy):
    (first, second) = toy.add_point("full", [2.0, 2.1])
    toy.add_run("full", 10, 3.0, setting={"lr": 0.001})
    for run, device in ((first, "GPU B"), (second, "CPU A")):
        file = toy.path / run / RECORDS
        lines = map(json.loads, file.read_text().splitlines())
        named = (line | {"device": device} if line["event"] == "epoch" else line for line in lines)
        file.write_text("".join(json.dumps(line) + "\n" for line in named))
    table = spent_table(load_study(toy.write()))
    rows = [dict(zip(table.header, row, strict=True)) for row in table.rows]
    assert [(row["stage"], row["runs"], row["epochs"], row["device"]) for row in rows] == [
        ("tune", "1", "3", "not recorded"),
        ("confirm", "2", "6", "CPU A, GPU B"),
        ("all", "3", "9", ""),
    ]
