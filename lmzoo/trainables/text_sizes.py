"""Measure the test text of a study's corpora, for records that lack its size."""

import json
from pathlib import Path

from lmzoo.base.errors import UserError
from lmzoo.data.corpus import open_corpus
from lmzoo.lab.analysis.load import load_study
from lmzoo.lab.analysis.units import TextSizes
from lmzoo.train.trained import found_from


def measured_sizes(study: Path, unit: str, data_dir: Path | None) -> TextSizes | None:
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
    sizes = {}
    runs = load_study(study).runs.select("corpus", "fingerprint").unique().collect()
    for spec, fingerprint in runs.iter_rows():
        corpus = open_corpus(found_from(study, json.loads(spec)), data_dir)
        if corpus.fingerprint != fingerprint or corpus.test_size is None:
            raise UserError(
                f"corpus {corpus.name} in {data_dir} is not the one of the runs, or has unknown "
                "words of unknown length; use --unit token"
            )
        sizes[fingerprint] = (corpus.test.num_scored, *corpus.test_size)
    return sizes
