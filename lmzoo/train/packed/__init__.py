"""Packed training: train many runs of the same structure as one program.

A step of a small recurrent model is hundreds of tiny operations, and each costs more to start than
to compute. P runs whose models have the same structure (the pack members) differ only in numbers:
weights, order of the data, learning rate, paths that are cut. One program trains them together:

    compatibility.py   which runs may share a pack, and which models can be packed
    layout.py          the state of a member as rows
    stacked.py         one row per member of a matrix: weights, gradients, optimiser state
    adam.py            Adam for all members in one kernel
    trainer.py         the step that trains P members, and their evaluation
    kept_trainers.py   epochs of packs, with trainers that are kept for later ones
    recorder.py        records the operations of a step on a CPU, to replay them without Python
    memory_plan.py     where the intermediate results of a replay are stored; keeps freed memory
"""
