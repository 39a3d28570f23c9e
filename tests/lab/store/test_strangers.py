"""Damaged studies and hostile names reach nothing; `python -m drills.strangers` tries more."""

from drills import strangers
from lmzoo.lab.store import archive


def test_no_damage_and_no_name_reaches_anything(capsys, monkeypatch):
    assert strangers.main(["--smoke"]) == 0, capsys.readouterr().err
    assert "| member of an archive | 10 | 10 |" in capsys.readouterr().out
    # Without the door the drill sees what is written.
    monkeypatch.setattr(archive, "all_below", lambda root, names: {n: root / n for n in names})
    monkeypatch.setattr(strangers, "try_damages", lambda *_: None)
    assert strangers.main(["--smoke"]) == 1
    assert "member of an archive, '../../x': written outside" in capsys.readouterr().err
