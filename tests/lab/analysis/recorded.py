"""The studies of the results pages, each read and ranked once."""

import functools
from pathlib import Path

import polars as pl

from lmzoo.lab.analysis.load import StudyFolder, load_study
from lmzoo.lab.analysis.ranking_table import study_ranking
from lmzoo.lab.analysis.render import Report
from lmzoo.lab.analysis.report import render_report

PAGES = Path(__file__).parents[3] / "docs/results"
RECORDS = PAGES / "records"


@functools.cache
def folder_of(name: str) -> StudyFolder:
    return load_study(RECORDS / f"{name}.parquet")


@functools.cache
def report_of(name: str) -> Report:
    return study_ranking(folder_of(name))


def frame_of(name: str) -> pl.DataFrame:
    return report_of(name).frame


@functools.cache
def page_of(name: str) -> str:
    return render_report(RECORDS / f"{name}.parquet")
