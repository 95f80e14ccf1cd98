"""RADICAL-Pilot on `local.localhost`: one pilot, all descriptions submitted in one call. Its start is not part of the makespan."""

# mypy: ignore-errors
import time

import radical.pilot as rp
from work import read, say

started = time.monotonic()
work = read()
session = rp.Session()
try:
    pilots, tasks = rp.PilotManager(session=session), rp.TaskManager(session=session)
    described = {"resource": "local.localhost", "runtime": 15, "cores": work["slots"], "exit_on_error": True}
    pilot = pilots.submit_pilots(rp.PilotDescription(described))
    tasks.add_pilots(pilot)
    pilot.wait(rp.PMGR_ACTIVE)
    what = {"executable": work["command"][0], "arguments": work["command"][1:], "ranks": 1, "cores_per_rank": 1}
    tasks.submit_tasks([rp.TaskDescription(what) for _ in range(2)])
    tasks.wait_tasks()
    bootstrap = time.monotonic() - started
    began = time.monotonic()
    found = tasks.submit_tasks([rp.TaskDescription(what) for _ in range(work["executables"])])
    tasks.wait_tasks()
    ended = time.monotonic()
    codes = [0 if task.state == rp.DONE else 1 for task in found]
    say(bootstrap, began, ended, codes, [])
finally:
    session.close(download=False)
