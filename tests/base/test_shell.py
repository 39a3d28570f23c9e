"""The files that a shell command names."""

import pytest

from lmzoo.base.shell import named_files, noticed

FORMS = {
    "python train.py --config cfg.yaml": "train.py cfg.yaml",
    "python train.py --config=cfg.yaml @args.txt": "train.py cfg.yaml args.txt",
    "cd sub && python train.py": "sub/train.py",
    "(cd sub; python train.py); cat cfg.yaml": "sub/train.py cfg.yaml",
    "cd sub\npython -m train": "sub/train.py",
    "sh -c 'cd sub; python train.py'": "sub/train.py",
    "python -m sub.train": "sub/train.py",
    "python $HERE/train.py; python ~/sub/train.py": "train.py sub/train.py",
    "X=1 python train.py>cfg.yaml 2>&1 | tee args.txt": "train.py",
    "python train.py -o=cfg.yaml --out args.txt": "train.py",
    "python train.py 'it is": "train.py",
    f"python train.py {300 * 'x'}": "train.py",
}


@pytest.mark.parametrize("command", FORMS)
def test_files_are_found_in_usual_forms(command, tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    for name in ("train.py", "sub/train.py", "cfg.yaml", "args.txt"):
        (tmp_path / name).touch()
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert named_files(command, tmp_path) == FORMS[command].split()


@pytest.mark.parametrize(
    ("command", "noted", "said"),
    [
        ("cd a && X=1 python3.12 t.py --a 'b' 2>&1 | tee log", True, False),
        ("uv run python t.py", True, False),
        ("python t.py", False, True),
        ("make train", True, True),
        ("python t.py && ./score", True, True),
        ("Rscript fit.R", True, True),
    ],
)
def test_what_is_not_noticed_is_said(command, noted, said):
    assert bool(noticed(command, ["t.py"], noted=noted)) == said
