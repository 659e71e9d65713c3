#!/usr/bin/env bash
# Workers of a queue as an array of Slurm jobs: sbatch slurm.sh
#SBATCH --job-name=agentline-worker
#SBATCH --array=1-8
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --time=08:00:00
#SBATCH --requeue
# Two minutes before the time is over, the worker begins to finish its runs; after --drain, it returns them.
#SBATCH --signal=B:TERM@120
set -euo pipefail

# AGENTLINE_QUEUE and the sign-in of the agents, in a file that only you can read.
set -a
. "$HOME/.config/agentline/worker.env"
set +a

# `exec` lets the worker receive the signal in place of this script.
exec agentline worker -j "${SLURM_CPUS_PER_TASK:-1}" --drain 90s \
  --dir "${SLURM_TMPDIR:-${TMPDIR:-/tmp}}/agentline-$SLURM_JOB_ID"
