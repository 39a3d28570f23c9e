"""A study as a SLURM job: requeued three times, and with another job on the same nodes."""

import json
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

from drills.cluster import OPTIONS, study_folder, table
from drills.hosts import ROOT
from drills.sentences import write_sentences
from drills.slurm import Slurm, install
from tests.lab.sweep.local_sweep import outcome
from tests.lab.sweep.processes import epochs_on_disk, start, wait_until

SCRIPT = "clusters/slurm.sh"
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
PROBE = """\
import json, os, time, ray
ray.init(log_to_driver=False, logging_level="ERROR")
while (resources := ray.cluster_resources()).get("CPU", 0) < 2:
    time.sleep(0.5)
open(f"{os.path.dirname(__file__)}/started-{os.environ['SLURM_JOB_ID']}", "w").close()
while not os.path.exists(f"{os.path.dirname(__file__)}/end"):
    time.sleep(0.5)
print("PROBE", json.dumps(resources))
"""


@pytest.fixture(scope="module")
def slurm():
    """Yield a running SLURM of two nodes with two CPUs and two pretended GPUs each."""
    if reason := install():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="lmzoo-slurm-", dir="/var/tmp"))
    try:
        with Slurm(folder) as slurm:
            write_sentences(folder / "sentences.txt", 800)
            yield slurm
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_options(slurm: Slurm, name: str) -> list[str]:
    """Return the options of a sweep into the store `name` that is long enough to be interrupted."""
    corpus = f"--corpus text:{slurm.folder}/sentences.txt --out {slurm.folder}/{name}"
    return shlex.split(f"{corpus} {OPTIONS} --epochs 20")


def folders_of_ray(job: str) -> list[Path]:
    """Return Ray's temporary folders of a job; one that SLURM has killed leaves them."""
    return list(Path("/tmp").glob(f"*-lmzoo-{job}"))


def wait_for_end(slurm: Slurm, job: str, seconds: float) -> str:
    """Return the state in which a job ends."""
    wait_until(lambda: slurm.state(job) in ENDED, seconds)
    return slurm.state(job)


def test_requeued_sweep_gives_the_same_records(slurm: Slurm):
    study = ROOT / "sweeps/gru_ablation.py"
    name = study_folder("gru_ablation", slurm.folder / "sentences.txt")
    alone = start(study, *sweep_options(slurm, "alone"))
    output = alone.communicate(timeout=1800)
    assert alone.returncode == 0, output

    job = slurm.submit(
        "--cpus-per-task=1", "--gpus-per-node=0", SCRIPT, str(study), *sweep_options(slurm, "job")
    )
    store = slurm.folder / "job" / name
    interruptions = (
        ["scancel", "--batch", "--signal=USR1", job],  # the signal before the time limit
        ["scontrol", "requeue", job],
        ["sbatch", "--partition=urgent", "--nodes=2", "--cpus-per-task=2", "--wrap=sleep 5",
         "--ntasks-per-node=1", "--output=/dev/null"],  # a job that preempts it
    )  # fmt: skip
    for restarts, interruption in enumerate(interruptions, start=1):
        goal = epochs_on_disk(store) + 3
        wait_until(lambda goal=goal: epochs_on_disk(store) >= goal, 600)
        assert slurm.state(job) == "RUNNING", slurm.output(job)
        slurm(*interruption)
        slurm.wait_for_restart(job, restarts)
        if restarts == 1:
            assert "interrupted; run the same command again" in slurm.output(job)
    assert wait_for_end(slurm, job, 1800) == "COMPLETED", slurm.output(job)

    undisturbed = slurm.folder / "alone" / name
    for folder in folders_of_ray(job):
        shutil.rmtree(folder)
    assert outcome(store) == outcome(undisturbed)
    assert table(store) == table(undisturbed)


def test_two_jobs_share_the_nodes_and_each_has_its_gpus(slurm: Slurm):
    probe = slurm.folder / "probe.py"
    probe.write_text(PROBE)
    options = ("--cpus-per-task=1", "--gpus-per-node=1", SCRIPT, str(probe))
    jobs = [slurm.submit(*options) for _ in range(2)]
    started = [slurm.folder / f"started-{job}" for job in jobs]
    wait_until(lambda: all(path.exists() for path in started), 300)
    (slurm.folder / "end").touch()
    for job in jobs:
        assert wait_for_end(slurm, job, 120) == "COMPLETED", slurm.output(job)
        resources = json.loads(slurm.output(job).partition("PROBE ")[2].splitlines()[0])
        assert (resources["CPU"], resources["GPU"]) == (2, 2)
        assert not folders_of_ray(job), "the job has left files behind"


def test_a_failed_study_ends_the_job_with_its_exit_code(slurm: Slurm):
    options = ("--nodes=1", "--cpus-per-task=1", "--gpus-per-node=0", SCRIPT)
    job = slurm.submit(*options, "sweeps/gru_ablation.py", "--corpus=text:/no/such/file")
    assert wait_for_end(slurm, job, 300) == "FAILED"
    assert slurm.show(job)["ExitCode"] == "2:0"
    assert slurm.show(job)["Restarts"] == "0"
