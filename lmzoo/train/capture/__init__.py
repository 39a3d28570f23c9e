"""Record the operations of a training step once per batch shape, and replay them afterwards.

    step(rate, *columns)    the first steps of a shape run normally; then one is recorded
    replay                  copy the columns into the recorded buffers, run the recorded operations

A step of a small recurrent model is hundreds of short operations, and Python takes longer to issue
them than the device takes to run them. A replayed step runs no Python.

Everything that differs between steps is an input: the columns of the batch and the learning rate.
What a step changes (weights, optimiser state, sums) stays at the same memory addresses. A step that
cannot be recorded runs normally, and one log line gives the reason: it synchronises with the
device (`.item()`, shapes that depend on values), or it draws from the CPU's random generator, and
every replay would repeat the draw.

    recorder.py   the interface of a recorder
    cuda.py       the recorder of GPUs: CUDA graphs. `packed/recorder.py` records on CPUs.
    stepper.py    runs the steps of an epoch, recorded if there is a recorder

CUDA graphs: Ng and Ranganathan et al. 2021, "Accelerating PyTorch with CUDA Graphs".
"""
