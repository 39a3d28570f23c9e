"""With many shapes a placement is used several times, and no worker waits for that."""

import random

import pytest

from lmzoo.lab.study.planned_run import PlannedRun
from lmzoo.lab.sweep.fleet import sharing as module
from lmzoo.lab.sweep.fleet.costs import Pace
from lmzoo.lab.sweep.fleet.sharing import SHAPES, ReadyRuns, Sharing, WorkerState


class AnyPacker:
    """Packs of at most four runs."""

    def max_members(self, run: PlannedRun, memory: int) -> int:
        return 4

    def shares_estimate(self, run: PlannedRun) -> bool:
        return False


def many_shapes(shapes: int, each: int) -> Sharing:
    ready = ReadyRuns(lambda run: run.label)
    for label in map(str, range(shapes)):
        for index in range(each):
            ready.add(PlannedRun(f"{label}-{index}", label, "tune", index, {}, budget=10))
    return Sharing(ready, AnyPacker(), Pace())


@pytest.fixture
def placements(monkeypatch) -> list[int]:
    """Return the number of shapes of each placement that is computed."""
    computed, place = list[int](), module.place
    counted = lambda loads, slots: (computed.append(len(loads)), place(loads, slots))[1]  # noqa: E731
    monkeypatch.setattr(module, "place", counted)
    return computed


@pytest.mark.parametrize("shapes", [SHAPES // 2, 4 * SHAPES])
def test_a_placement_is_computed_less_often_the_more_shapes_it_has(placements, shapes):
    sharing, worker = many_shapes(shapes, 1), WorkerState()
    for _ in range(24):
        sharing.shares({"w": worker}, 1, 0.0, "w")
        sharing.changes += 1
    assert len(placements) == pytest.approx(24 / (1 + shapes // SHAPES), abs=1)


def test_a_worker_that_asks_never_waits_while_there_are_runs_for_it(placements):
    """As with a placement of this moment: it gets runs whenever that gives it some."""
    sharing, draws, asked = many_shapes(3 * SHAPES, 2), random.Random(1), 0
    workers = {str(number): WorkerState() for number in range(2 * SHAPES)}

    def gets(sharing: Sharing, name: str) -> bool:
        shares = sharing.shares(workers, len(workers), 0.0, name)[name]
        return any(own.runs and sharing.ready.count(key) for key, own in shares.items())

    while sharing.ready or any(worker.training for worker in workers.values()):
        name = draws.choice([*workers][: SHAPES // 2])
        worker, asked = workers[name], asked + 1
        for run_id in [*worker.training]:
            if draws.random() < 0.5:
                sharing.remove(worker, run_id)
        if not worker.training:
            fresh = Sharing(sharing.ready, sharing.packer, sharing.pace)
            fresh.runs = sharing.runs
            now, asked, own = gets(sharing, name), asked + 1, len(placements)
            assert now or not gets(fresh, name)
            del placements[own:]
        share = sharing.shares(workers, len(workers), 0.0, name)[name]
        if not worker.training:
            worker.key = sharing.ready.first_key([key for key, own in share.items() if own.runs])
        most = share[worker.key].runs if worker.key in share else 0
        for run in sharing.ready.take(worker.key, most - len(worker.training)):
            sharing.add(worker, run)
    assert len(placements) < asked


def test_a_new_worker_is_part_of_the_placement_at_once(placements):
    sharing = many_shapes(5 * SHAPES, 2)
    assert sharing.shares({"a": WorkerState()}, 1, 0.0, "a").keys() == {"a"}
    sharing.version += 1
    both = {"a": WorkerState(), "b": WorkerState()}
    assert all(sharing.shares(both, 2, 0.0, "a").values())
    assert len(placements) == 2
