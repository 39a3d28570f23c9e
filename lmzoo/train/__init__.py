"""Training: recipes, optimisers, the trainer, evaluation, checkpoints, packs and runs on disk.

A step of a small recurrent model is hundreds of tiny operations, and each costs more to start than
to compute. P runs whose models have the same structure (the members of a pack) differ only in
numbers: weights, order of the data, learning rate, paths that are cut. One program trains them:

    pack_compatibility.py   which runs may share a pack, and which models can be packed
    pack_layout.py          the state of a member as rows
    pack_parameters.py      one row per member of a matrix: weights, gradients, optimiser
    pack_trainer.py         the step that trains P members, and their evaluation
    kept_trainers.py        epochs of packs, with trainers that are kept for later ones
    pack_recorder.py        records the operations of a step on a CPU, to replay it without Python
    checkpoint.py           the state of all members in one file
"""
