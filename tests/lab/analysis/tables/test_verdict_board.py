"""The verdicts of a ranking in TensorBoard equal those of the table."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from lmzoo.lab.analysis.records.load import load_study
from lmzoo.lab.analysis.tables.ranking_table import study_ranking
from lmzoo.lab.analysis.tables.verdict_board import write_verdicts
from lmzoo.lab.store.records import BOARD, VERDICT_METRICS
from tests.cli.run_lmzoo import run_lmzoo
from tests.lab.analysis.toy_study import ToyStudy

MODEL = {"name": "m", "cell": {"name": "mgu", "cuts": ["state_to_candidate"]}}


@pytest.fixture
def toy(tmp_path) -> ToyStudy:
    toy = ToyStudy(tmp_path / "toy")
    toy.add_point("full", [3.0, 3.1, 3.2])
    toy.add_point("4", [3.5, 3.55, 3.72], model=MODEL)
    toy.add_point("gone", [None, None, None])
    toy.study_json["points"][-1]["label"] = "cut gone/by"
    toy.write()
    return toy


def read(toy: ToyStudy, name: str) -> tuple[dict[str, object], dict[str, float]]:
    """Return the HParams and the metrics of a run."""
    events = EventAccumulator(str(toy.path / BOARD / name))
    events.Reload()
    (content,) = events.PluginTagToContent("hparams").values()
    info = metadata.parse_session_start_info_plugin_data(content)
    hparams = {key: getattr(v, v.WhichOneof("kind")) for key, v in info.hparams.items()}
    return hparams, {tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]}


def test_each_point_has_its_verdict_and_the_numbers_of_the_table(toy):
    frame = study_ranking(toy.path).frame
    write_verdicts(toy.path, frame)
    row = frame.filter(label="cut state_to_candidate (4)").row(0, named=True)
    hparams, metrics = read(toy, "cut state_to_candidate (4) · verdict")
    assert hparams["stage"] == f"verdict: {row['verdict']}"
    assert hparams["lr"] == pytest.approx(0.003)
    assert metrics == pytest.approx({tag: row[name] for name, tag in VERDICT_METRICS.items()})
    assert read(toy, "cut full · verdict")[0]["stage"] == "verdict: reference"
    hparams, metrics = read(toy, "cut gone_by · verdict")  # a slash is no part of a file name
    assert hparams["point"] == "cut gone/by"
    assert "verdict/loss" not in metrics


def test_the_command_replaces_old_verdicts_and_tables_ignore_the_folder(toy, capsys):
    for _ in range(2):
        assert run_lmzoo("rank", toy.path, "--tensorboard") == 0
    folder = toy.path / BOARD / "cut full · verdict"
    assert len(list(folder.iterdir())) == 1
    assert load_study(toy.path).damaged == ()


def test_nothing_is_written_without_the_option(toy, capsys):
    assert run_lmzoo("rank", toy.path) == 0
    assert not (toy.path / BOARD).exists()
