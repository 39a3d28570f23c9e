"""CATH: sequences of protein domains, by residue.

    <start> M N I F E M L ...

`split="interleaved"` is 8:1:1 with `<end>` where the domain is whole. `split="seed"` is
S0's 4:1 with no `<end>`: its training set exactly, and its held-out set dealt in turn to
validation and test, as S0 had no third set. S20 and S35 are clusterings at 20 % and 35 %
identity: beyond that the splits are not free of homology.

Sillitoe et al. 2021 (doi:10.1093/nar/gkaa1079); S0's preprocessing: zoo.md 1.9.
"""

from typing import Literal

from pydantic import Field

from lmzoo.config import config
from lmzoo.data.assemble import Split, assemble
from lmzoo.data.corpus import CORPORA, Corpus, CorpusSource
from lmzoo.data.download import RemoteFile, locate
from lmzoo.data.fasta import read_fasta
from lmzoo.data.splits import interleave
from lmzoo.data.vocabulary import by_frequency

URL = "https://download.cathdb.info/cath/releases/all-releases/"
RELEASES = {
    "S20-v4_1_0": RemoteFile(
        "cath",
        f"{URL}v4_1_0/non-redundant-data-sets/cath-dataset-nonredundant-S20-v4_1_0.fa",
        # Taken from a local copy, unpacked; upstream publishes no checksums.
        "5be2b7e084012db8f1f977ed9ee893ed843ecdce26c2a90e7abab18dc26e5cb3",
    ),
    "S35-v4_3_0": RemoteFile(
        "cath", f"{URL}v4_3_0/sequence-data/cath-domain-seqs-S35-v4_3_0.fa", None
    ),
}


@config
class CathConfig:
    """Which release, how much of each domain, and which domains train."""

    release: Literal["S20-v4_1_0", "S35-v4_3_0"] = "S20-v4_1_0"
    """S0's tables are on S35-v4_3_0, which we never held: it needs --data-dir."""
    length: int = Field(20, ge=2, le=512)
    """Padded length T, `<start>` included; S0 has 20 and 100."""
    split: Literal["interleaved", "seed"] = "interleaved"


@CORPORA("cath")
class Cath(CorpusSource):
    """Protein domains of CATH; unknown residues (X) are a letter of their own."""

    Config = CathConfig

    def load(self) -> Corpus:
        file = RELEASES[self.config.release]
        domains = read_fasta(locate(file, self.data_dir, self.name))
        seed = self.config.split == "seed"
        if seed:
            train, held_out = interleave(domains, (4, 1))
            valid, test = interleave(held_out, (1, 1))
            counted = [domain[: self.config.length - 1] for domain in domains]
        else:
            train, valid, test = interleave(domains, (8, 1, 1))
            counted = train
        source = f"CATH {self.config.release}, cathdb.info, CC BY 4.0"
        return assemble(
            self.name, Split(train, valid, test), by_frequency(counted, joiner=""),
            length=self.config.length, end=not seed, unit="residue", source=source,
        )  # fmt: skip
