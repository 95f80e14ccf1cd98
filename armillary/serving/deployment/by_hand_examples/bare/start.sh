#!/bin/bash
python3 -m venv engine
. engine/bin/activate
pip install @ENGINE@
export HF_HOME="$HOME/models"
@COMMAND@
