"""A zoo of small language models, each a proven density.

    types, config, space, registry, record    words everything else is said in
    functional                                pure functions: normalisers, mixtures of starts
    contract, catalogue                       what a model is; what rows there are
    cells, emissions, blocks, data            the parts
    fit, evaluate                             training as a stream of records
    models                                    the zoo itself, by family
    zoo                                       the front door: names, config, build

Importing this package imports nothing heavy; `import lmzoo.zoo` opens the door.
"""
