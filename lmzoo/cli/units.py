"""Measure the test text of a study's corpora, for records that lack its size."""

from pathlib import Path
from typing import TYPE_CHECKING

from lmzoo.errors import UserError

if TYPE_CHECKING:
    from lmzoo.analysis.units import TextSizes


def measured_sizes(study: Path, unit: str, data_dir: Path | None) -> "TextSizes | None":
    """Return the sizes of the study's corpora from their files; None if they are not asked for.

    Args:
        study: the study's folder.
        unit: the unit of the table; only `bpc`, `bpb` and `wppl` need sizes.
        data_dir: folder of the corpus's files; None measures nothing.

    Raises:
        UserError: A corpus cannot be opened, or it is not the one of the runs.
    """
    if data_dir is None or unit not in ("bpc", "bpb", "wppl"):
        return None
    import json

    from lmzoo.analysis.load import load_study
    from lmzoo.data.open import open_corpus

    sizes = {}
    runs = load_study(study).runs.select("corpus", "fingerprint").unique().collect()
    for spec, fingerprint in runs.iter_rows():
        corpus = open_corpus(json.loads(spec), data_dir)
        if corpus.fingerprint != fingerprint or corpus.test_size is None:
            raise UserError(
                f"corpus {corpus.name} in {data_dir} is not the one of the runs, or has unknown "
                "words of unknown length; use --unit token"
            )
        sizes[fingerprint] = (corpus.test.num_scored, *corpus.test_size)
    return sizes
