#!/bin/bash
#SBATCH --job-name=@NAME@
#SBATCH --nodes=1
#SBATCH --gpus-per-node=@GPUS@
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=08:00:00
#SBATCH --output=%x-%j.out
module load apptainer
export APPTAINER_CACHEDIR="$SCRATCH/apptainer"
mkdir -p "$APPTAINER_CACHEDIR"
apptainer pull --force engine.sif docker://@IMAGE@
echo "serving on $(hostname):@PORT@"
apptainer exec @APPTAINERGPU@ \
  --bind "$SCRATCH/models:/models" \
  --env HF_HOME=/models \
  engine.sif \
  @COMMAND@
