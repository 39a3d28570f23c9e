"""Train a small classifier of two spirals and print its test loss: a script to be judged.

    python benchmarks/no_op.py SEED CHANGE

CHANGE 0 is the script as it is. All others change nothing that matters: an odd one draws the
initial weights, an even one the order of the data, from another stream of random numbers.
"""

import sys

import numpy as np

SEED, CHANGE = int(sys.argv[1]), int(sys.argv[2])
HIDDEN, STEPS, BATCH, RATE, MOMENTUM = 64, 6000, 50, 0.1, 0.9


def spirals(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy points of two spirals, and which spiral each is on."""
    draw = np.random.default_rng(seed)
    label = draw.integers(2, size=count)
    turn = 3 * np.pi * np.sqrt(draw.random(count))
    angle = turn + np.pi * label
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) / 5
    return points + 0.1 * draw.normal(size=points.shape), label


def forward(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return both hidden layers and the probabilities of the second spiral."""
    a = np.maximum(x @ w[0] + w[1], 0)
    b = np.maximum(a @ w[2] + w[3], 0)
    return a, b, 1 / (1 + np.exp(-np.clip(b @ w[4] + w[5], -30, 30)))


initial = np.random.default_rng([SEED, 0, CHANGE * (CHANGE % 2)])
order = np.random.default_rng([SEED, 1, CHANGE * (CHANGE % 2 == 0)])
x, y = spirals(2000, 1)
shapes = ((2, HIDDEN), (0, HIDDEN), (HIDDEN, HIDDEN), (0, HIDDEN), (HIDDEN, 1), (0, 1))
w = [initial.normal(size=s) * np.sqrt(2 / s[0]) if s[0] else np.zeros(s[1]) for s in shapes]
moments = [np.zeros_like(one) for one in w]
for step in range(STEPS):
    rows = order.integers(len(x), size=BATCH)
    a, b, p = forward(x[rows])
    top = (p - y[rows, None]) / BATCH
    second = top @ w[4].T * (b > 0)
    first = second @ w[2].T * (a > 0)
    gradients = (
        x[rows].T @ first, first.sum(0), a.T @ second, second.sum(0), b.T @ top, top.sum(0),
    )  # fmt: skip
    for one, moment, gradient in zip(w, moments, gradients, strict=True):
        moment *= MOMENTUM
        moment += gradient
        one -= RATE * (1 - step / STEPS) * moment
test, label = spirals(2000, 2)
p = forward(test)[2][:, 0]
loss = -np.log(np.clip(np.where(label, p, 1 - p), 1e-9, None)).mean()
sys.stdout.write(f"{loss:.6f}\n")
