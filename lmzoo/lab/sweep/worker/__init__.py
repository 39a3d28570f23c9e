"""The worker: one share of a device; trains packs and reports."""
