"""A study on one HTML page that needs no network: `lmzoo report RUN`."""

from lmzoo.lab.analysis.report.page import render_report as render_report
