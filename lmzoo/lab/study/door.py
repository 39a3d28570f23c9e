"""The door to what a study can train, as the study machine sees it.

The machine plans, schedules, stores and judges runs; it knows no model. It uses these functions of
the module `DOOR`; a package with other trainables needs no more.

    check_settings(study, settings)         refuses settings for all points that change what the
                                            points are about
    open_data(study, data_dir)              its data: `fields`, the config of the corpus; `corpus`;
                                            `lines`, what reading a text gave and lost; `source`, a
                                            line; fields and corpus are None if no point needs them
    select_labels(study, corpus, text)      the labels in `LABEL,LABEL` and those of the baselines
    resolve(study, corpus, fields, needed)  a `Trainable` for each point and baseline
    store_folder(storage, name, fields)     the folder of a study's store
    make_shapes(corpus)                     which runs may share a pack: `key`, `get`; and the facts
                                            about their models: `facts`
    is_counted(config)                      whether runs with the key of this one load one estimate
    make_trainer(corpus, threads, gpu)      the trainer of a worker, which opens a `SavedRun` of a
                                            run: `memory`, `with_facts`, `open`, `train_packed`,
                                            `packed_state`, `test_packed`, `is_final`
    row_name(name)                          the whole name of a row
"""

import functools
from importlib import import_module
from typing import Any

DOOR = "lmzoo.trainables.door"
"""The rows of the zoo, Python functions and commands; its functions say what they take."""


@functools.cache
def open_door() -> Any:
    """Return the door; the first call imports torch."""
    return import_module(DOOR)
