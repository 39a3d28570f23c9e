"""Trainings that answer one question each and are not a study."""
