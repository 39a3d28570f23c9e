"""Many members of one shape trained as one program.

A step of a small recurrent model is hundreds of tiny operations, each of which costs more
to start than to do. P members that differ only in numbers (weights, data order, learning
rate, a cut path) do them together:

    shape.py      which members fit together, and which models may
    rows.py       one row of numbers per member: weights, gradients, optimiser state
    memory.py     arrays of many members, freed and asked for again at every step
    tape.py       a step's operations written down, and done again without Python between
    again.py      how one of them is done again, into the memory that it once wrote
    arena.py      where that memory lies
    together.py   an epoch of training and its evaluation, for P members at once
"""
