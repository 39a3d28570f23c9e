"""Runs whose losses are a function of their config: a sweep without training takes milliseconds."""

import hashlib
import math
from types import SimpleNamespace

from lmzoo.lab.store.records import epoch_records


def open_fake_run(store, planned, corpus):
    """Open a planned run as `local_sweep.open_run` does."""
    return FakeRun(store.run(planned.id), planned)


class FakeRun:
    """A run with a curve that depends on the learning rate; the highest rates diverge."""

    def __init__(self, folder, planned):
        self.folder = folder
        self.id = planned.id
        self._rate = planned.config["recipe"]["lr"]
        # Not the identity, which depends on more than what decides the loss here.
        self._noise = f"{planned.label}/{planned.config['seed']}/{self._rate}"
        folder.create(planned.config)
        self.training = SimpleNamespace(record={}, diverged=False)
        for record in epoch_records(folder.records()):
            self.training.record = record
        self._check_divergence()

    @property
    def epoch(self):
        return self.training.record.get("epoch", 0)

    def train(self, budget):
        while self.epoch < budget and not self.training.diverged:
            loss = fake_loss(self._noise, self._rate, self.epoch + 1)
            self.training.record = {"event": "epoch", "epoch": self.epoch + 1, "valid_token": loss}
            self.folder.append(self.training.record)
            self._check_divergence()
            yield self.training.record

    def test(self):
        loss = self.training.record["valid_token"]
        self.folder.append({"event": "test", "epoch": self.epoch, "token": loss})
        return SimpleNamespace(token=loss)

    def end(self, status, reason=""):
        end = {"event": "end", "epoch": self.epoch, "status": status, "reason": reason}
        self.folder.append(end)

    def close(self):
        pass

    def _check_divergence(self):
        self.training.diverged = self.training.record.get("valid_token", 0) is None


def fake_loss(name: str, rate: float, epoch: int) -> float | None:
    if rate > 0.08 and epoch > 1:
        return None
    # Not `hash`, which differs between processes.
    digest = hashlib.md5(f"{name}/{epoch}".encode()).hexdigest()
    noise = int(digest, 16) % 1000 / 5000
    of_rate = (math.log10(rate) + 2) ** 2
    untrained = 3 * math.exp(-40 * rate * epoch)
    return 2 + of_rate + untrained + noise
