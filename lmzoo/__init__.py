"""A zoo of small language models, each a proven density.

    types, config, space, registry, record    words everything else is said in
    functional                                pure functions: normalisers, mixtures of starts
    contract, catalogue                       what a model is; what rows there are
    cells, emissions, blocks, data            the parts
    recipe, fit, evaluate, decode             training as a stream of records, scoring, sampling
    models                                    the zoo itself, by family
    zoo                                       the front door: names, config, build
    checkpoint, run, trained                  runs on disk
    diagnostics, commands                     what is done with them

Importing this package imports nothing heavy; `import lmzoo.zoo` opens the door.
"""
