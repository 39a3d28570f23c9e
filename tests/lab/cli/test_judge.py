"""`lmzoo judge` on a file of results."""

import json

EXAMPLE = "docs/assets/judge/results.csv"
OPTIONS = ("--by", "variant", "--seed", "seed", "--metric", "loss", "--margin", "0.02")


def test_judge_prints_json(lmzoo) -> None:
    code, out, err = lmzoo("judge", EXAMPLE, *OPTIONS, "--json")
    rows = json.loads(out)["rows"]
    assert (code, err) == (0, "")
    assert {row["variant"]: row["verdict"] for row in rows}["wider"] == "better"


def test_bad_arguments_are_one_line(refused) -> None:
    for arguments, word in (
        ((), "give a file"),
        ((EXAMPLE,), "--by COLUMN; columns of"),
        ((EXAMPLE, "--by", "variant"), "--metric NAME"),
        ((EXAMPLE, *OPTIONS, "--format", "xml"), "xml"),
        (("nowhere.csv", *OPTIONS), "nowhere.csv"),
        ((EXAMPLE, *OPTIONS, "--successive", "--reference", "base"), "--successive"),
    ):
        assert word in refused("judge", *arguments)
