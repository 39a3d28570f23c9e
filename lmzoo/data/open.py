"""Open a corpus by name: `captions`, `cath`, `text:PATH`, `fasta:PATH` ..."""

from lmzoo.data.corpus import corpus_config, open_corpus

__all__ = ["corpus_config", "open_corpus"]
