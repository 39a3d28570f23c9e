"""Residues of a FASTA file: a header line that begins with `>`, then one or more lines.

Lower-case residues (soft masking) become upper-case, as NCBI's tools read them.
"""

from pathlib import Path

from lmzoo.data.lines import read_lines
from lmzoo.errors import UserError


def read_fasta(path: Path) -> list[str]:
    """The residues of every record, in the order of the file; headers are dropped.

    Raises:
        UserError: the file cannot be read, does not begin with a header, or a record is empty.
    """
    records: list[tuple[int, str, list[str]]] = []
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith(">"):
            records.append((number, line, []))
        elif line.strip():
            if not records:
                raise UserError(f"{path} line {number}: expected a '>' header, got {line[:20]!r}")
            records[-1][2].append("".join(line.split()))
    for number, header, residues in records:
        if not residues:
            raise UserError(f"{path} line {number}: record {header[:40]!r} has no residues")
    return ["".join(residues).upper() for _, _, residues in records]
