#!/bin/bash
#SBATCH --job-name=@NAME@
#SBATCH --nodes=1
#SBATCH --gpus-per-node=@GPUS@
#SBATCH --cpus-per-task=8
#SBATCH --mem=64G
#SBATCH --time=08:00:00
#SBATCH --output=%x-%j.out
podman pull @IMAGE@
echo "serving on $(hostname):@PORT@"
podman run --rm \
  @PODMANGPU@ \
  --ipc=host \
  --network=host \
  -v "$SCRATCH/models:/models" \
  -e HF_HOME=/models \
  --entrypoint="" \
  @IMAGE@ \
  @COMMAND@
