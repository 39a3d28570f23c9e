"""Folder -> frames -> report -> text: load, ranking with statistics, standings, render."""
