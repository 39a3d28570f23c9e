"""Stores: folders and S3 buckets that hold runs, with atomic writes, appends and locks."""
