"""The text of the drills."""

from pathlib import Path

WORDS = ("a", "man", "dog", "runs", "sits", "in", "the", "park", "two", "red")


def write_sentences(path: Path, count: int = 8000) -> None:
    """Write so many lines."""
    lines = [" ".join(WORDS[(i * j + i) % 10] for j in range(3 + i % 4)) for i in range(count)]
    path.write_text("\n".join(lines) + "\n")
