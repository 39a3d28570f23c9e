"""A training step recorded once for each shape of its batch, and replayed from then on.

    step(rate, *columns)    some times as it is; then recorded, reading from buffers of its own
    replay                  columns into the buffers, and one launch for all the operations

A step of a small recurrent model is hundreds of operations, each of which a GPU, and for a few
small members a processor, ends sooner than Python can start the next. What changes from step to
step is in the columns, the learning rate too; what a step leaves behind (weights, optimiser
state, sums) lies in memory that it found there. A step that cannot be recorded is done as it is,
and a line of the log says why: it waits for the device (`.item()`, shapes that depend on
numbers), or it draws from the host's generator, which would be the same draw at every replay.

    recorder.py   what records, and what it is given
    cuda.py       CUDA graphs; `fuse/tape.py` records on a processor
    stepper.py    the steps of an epoch, recorded where something records

CUDA graphs: Ng and Ranganathan et al. 2021, "Accelerating PyTorch with CUDA Graphs".
"""
