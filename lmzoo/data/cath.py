"""CATH: amino-acid sequences of protein domains, by residue.

    <start> M N I F E M L ...

`split="interleaved"` deals the domains 8:1:1 and appends `<end>` to domains that are not cut.
`split="seed"` is the split of S0, 4:1 without `<end>`. Its held-out domains, which S0 has as one
set, are assigned alternately to validation and test.

The releases S20 and S35 are clustered at 20 % and 35 % sequence identity; domains of different
splits can still be homologous. The data are from cathdb.info under CC BY 4.0.

Source: Sillitoe et al. 2021 (doi:10.1093/nar/gkaa1079); preprocessing of `split="seed"`: S0.
"""

from typing import Literal

from pydantic import Field

from lmzoo.base.config import config
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.download import FILES, locate
from lmzoo.data.files import read_fasta
from lmzoo.data.sequences import assemble
from lmzoo.data.splits import interleave
from lmzoo.data.vocabulary import build_vocabulary


@config
class CathConfig:
    """The release, the maximal sequence length and the split."""

    release: Literal["S20-v4_1_0", "S35-v4_3_0"] = "S20-v4_1_0"
    """The results of S0 are for S35-v4_3_0. Its checksum is unknown, so it needs --data-dir."""
    length: int = Field(20, ge=2, le=512)
    """Padded length T, `<start>` included; S0 uses 20 and 100."""
    split: Literal["interleaved", "seed"] = "interleaved"


@CORPORA("cath")
class Cath(CorpusSource):
    """Protein domains, which are natural amino-acid sequences, by residue (CATH, CC BY 4.0).

    By default every tenth domain is for validation and another tenth for testing; domains of
    different splits can be homologous. Domains longer than `length` are cut and have no `<end>`.
    The unknown residue X is a token. From cathdb.info (Sillitoe et al. 2021,
    doi:10.1093/nar/gkaa1079).
    """

    Config = CathConfig

    def load(self) -> Corpus:
        file = FILES[self.config.release]
        domains = read_fasta(locate(file, self.data_dir, self.name))
        as_published = self.config.split == "seed"
        if as_published:
            train, held_out = interleave(domains, (4, 1))
            valid, test = interleave(held_out, (1, 1))
            # S0 built the vocabulary from all domains, before it held any out.
            vocabulary_part = [domain[: self.config.length - 1] for domain in domains]
        else:
            train, valid, test = interleave(domains, (8, 1, 1))
            # Held-out domains must not decide which tokens there are.
            vocabulary_part = train
        source = f"CATH {self.config.release}, cathdb.info, CC BY 4.0"
        return assemble(
            self.name,
            (train, valid, test),
            build_vocabulary(vocabulary_part, joiner=""),
            length=self.config.length,
            end=not as_published,
            unit="residue",
            source=source,
        )
