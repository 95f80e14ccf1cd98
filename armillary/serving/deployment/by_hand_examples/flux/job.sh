#!/bin/bash
#flux: --job-name=@NAME@
#flux: --nodes=1
#flux: --nslots=1
#flux: --gpus-per-slot=@GPUS@
#flux: --time-limit=480m
#flux: --output=@NAME@.out
apptainer pull --force engine.sif docker://@IMAGE@
echo "serving on $(hostname):@PORT@"
flux run --ntasks=1 --gpus-per-task=@GPUS@ \
  apptainer exec @APPTAINERGPU@ \
  --bind "$SCRATCH/models:/models" \
  engine.sif \
  @COMMAND@
