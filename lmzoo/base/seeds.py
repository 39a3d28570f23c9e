"""Random seeds: one seed per run, and derived seeds for everything that is drawn."""

import hashlib


def derive_seed(seed: int, *names: object) -> int:
    """Return a 63-bit seed for the purpose that `names` describe.

    Different seeds or names give independent random streams.
    """
    text = "/".join(map(str, (seed,) + names))
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:8]) >> 1
