#!/bin/bash
# Runs a study on the nodes of one SLURM job. docs/tutorials/cluster.md explains how it works.
#
#   sbatch clusters/slurm.sh sweeps/gru_ablation.py --samples 8
#   sbatch --nodes=1 --gpus-per-node=8 clusters/slurm.sh sweeps/gru_ablation.py
#
# Submit it in the root of the repository, on a file system that all nodes mount; the environment is
# .venv there. Fill in the lines marked <-- , or give the same options to sbatch.

#SBATCH --job-name=lmzoo
#SBATCH --nodes=2                # <-- any number, also 1
#SBATCH --ntasks-per-node=1      # one Ray node on each SLURM node
#SBATCH --cpus-per-task=8        # <-- CPUs of each node
#SBATCH --gpus-per-node=1        # <-- GPUs of each node; 0 trains on CPUs
#SBATCH --time=24:00:00          # <-- a longer sweep is requeued and continues
#SBATCH --requeue                # preempted jobs and jobs of failed nodes are queued again
#SBATCH --signal=B:USR1@120      # signal this script two minutes before the time limit
#SBATCH --open-mode=append       # keep the output of the time before a requeue

# The store: a folder on the shared file system, or s3://bucket/prefix.  <--
export LMZOO_STORAGE="${LMZOO_STORAGE:-$PWD/runs}"
export PATH="$PWD/.venv/bin:$PATH" OMP_NUM_THREADS=1

# Every connection to Ray needs this token, so that other users of the nodes have no access. The
# metric servers check no token and are disabled (port -1 cannot be opened).
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))') || exit
export RAY_enable_metrics_collection=0 AUTOSCALER_METRIC_PORT=-1 DASHBOARD_METRIC_PORT=-1
export RAY_raylet_start_wait_time_s=300  # a shared file system may load Python slowly

# A folder of its own and free ports let several jobs share a node. With 0 Ray takes any free port;
# where it cannot (Ray Client, which is not used), the port follows from the job id.
# The folder is not in TMPDIR, because the paths of sockets must be short.
umask 077
temporary=$(TMPDIR='' mktemp -d --suffix="-lmzoo-$SLURM_JOB_ID")
ports="--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0"
node="--num-cpus=$SLURM_CPUS_PER_TASK --num-gpus=${SLURM_GPUS_ON_NODE:-0} --block"
node="$node --object-store-memory=500000000 --disable-usage-stats"

# Before the time limit the sweep is interrupted, and the job is requeued below. On SIGTERM (preemption,
# scancel) SLURM itself signals all processes of the job, and no finished epoch is lost.
set -m  # without it, bash makes background processes ignore SIGINT
driver="" requeue=""
trap 'requeue=yes; [ "$driver" ] && kill -INT "$driver"' USR1
trap 'echo "job $SLURM_JOB_ID is terminated"' TERM

# The head of the Ray cluster runs here, on the first node, and Ray writes its address to a file.
# shellcheck disable=SC2086  # the options are words
RAY_TMPDIR=$temporary ray start --head --port=0 --include-dashboard=false $ports $node \
  --ray-client-server-port=$((20000 + SLURM_JOB_ID % 10000)) > "$temporary/head.log" 2>&1 &
head=$!
until [ -s "$temporary/ray/ray_current_cluster" ]; do
  kill -0 $head 2> /dev/null || { cat "$temporary/head.log"; exit 1; }
  sleep 1
done
RAY_ADDRESS=$(cat "$temporary/ray/ray_current_cluster")
export RAY_ADDRESS

# The other nodes join it. The sweep starts at once and uses each node from the time it joins.
if [ "$SLURM_NNODES" -gt 1 ]; then
  srun --quiet --export=ALL --relative=1 --nodes=$((SLURM_NNODES - 1)) \
    --ntasks=$((SLURM_NNODES - 1)) --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    bash -c "exec ray start --address=$RAY_ADDRESS $ports $node > /dev/null" &
fi

# The sweep.
python "$@" &
driver=$!
[ "$requeue" ] && kill -INT $driver
while kill -0 $driver 2> /dev/null; do wait $driver; done  # a signal ends `wait` early
wait $driver
code=$?

trap '' USR1 TERM
echo "the study ended with exit code $code; ending Ray"  # SLURM reports its killed processes
kill $(jobs -p) 2> /dev/null
wait
srun --overlap --output=/dev/null --error=/dev/null rm -rf "$temporary"
if [ "$requeue" ] && [ $code = 130 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code
