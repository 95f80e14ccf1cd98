"""Files of tasks: what is read out of them, and what is wrong with them in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from armillary.errors import InputError
from armillary.runtime.pilot import read_profiles, read_sacct, read_tasks
from armillary.runtime.pilot.readers.any import read_work
from armillary.runtime.pilot.workload import EXECUTABLE, FUNCTION

HOW = {"nodes": 4, "cores": 8, "gpus": 2}
HEAD = "JobID|JobName|Submit|Start|End|NNodes|NCPUS|State"
DAY = "2026-01-31T08"
#: A profile with times since its beginning, as older releases write it.
PROFILE = """\
#time,event,comp,thread,uid,state,msg
0.0000,sync_abs,agent_executing.0000,MainThread,,,node-1:10.0.0.5:1764000000.0:1764000100.5:ntp
0.5000,get,agent_executing.0000,MainThread,task.000000,AGENT_EXECUTING_PENDING,agent_executing_queue
1.0000,launch_start,task.000000,,task.000000,,
1.2000,rank_start,task.000000,,task.000000,,a message, with commas, in it
4.2000,rank_stop,task.000000,,task.000000,,RP_EXEC_PID=12:13
2.0000,get,agent_executing.0000,MainThread,task.000001,AGENT_EXECUTING_PENDING,
2.1000,rank_start,task.000001,,task.000001,,
2.6000,rank_stop,task.000001,,task.000001,,
3.0000,get,agent_executing.0000,MainThread,task.000002,AGENT_EXECUTING_PENDING,
"""


#: Lines that RADICAL-Pilot 1.103 wrote when it ran `true` here: an agent's executor, whose two threads both begin the file, and a task.
EXECUTOR = """\
#time,event,comp,thread,uid,state,msg
1795110063.5197704,sync_abs,agent_executing.0000,MainThread,,,localhost:192.0.2.2:1795110063.5196621:1795110063.5196621:sys
1795110063.5200579,comp_start,agent_executing.0000,MainThread,agent_executing.0000,,
#time,event,comp,thread,uid,state,msg
1795110063.5951047,sync_abs,agent_executing.0000,Thread-2 (_work_loop),,,localhost:192.0.2.2:1795110063.5368478:1795110063.5368478:sys
1795110065.3762524,advance,agent_executing.0000,Thread-2 (_work_loop),task.000000,AGENT_EXECUTING,
1795110065.3763487,task_start,agent_executing.0000,Thread-2 (_work_loop),task.000000,,
1795110065.3802555,task_run_start,agent_executing.0000,Thread-2 (_work_loop),task.000000,,
1795110065.6125956,task_run_stop,agent_executing.0000,Thread-5 (_watch),task.000000,,
"""
TASK = """\
1795110065.4242091,launch_start,,MainThread,task.000000,AGENT_EXECUTING,
1795110065.4401810,launch_submit,,MainThread,task.000000,AGENT_EXECUTING,
1795110065.4854269,rank_start,,MainThread,task.000000,AGENT_EXECUTING,
1795110065.5055189,rank_stop,,MainThread,task.000000,AGENT_EXECUTING,RP_EXEC_PID=17128:RP_RANK_PID=17207
1795110065.5592360,launch_collect,,MainThread,task.000000,AGENT_EXECUTING,RP_LAUNCH_PID=17048
"""


def tasks(folder: Path, *rows: object) -> Path:
    path = folder / "t.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def test_a_task_list_becomes_work_whatever_the_order_of_its_lines(tmp_path: Path) -> None:
    path = tasks(
        tmp_path,
        {"id": "md", "command": ["./md"], "nodes": 2, "ranks": 4, "cores_per_rank": 3, "gpus_per_rank": 1, "seconds": 9.5, "after": ["f", 7], "stage": "md"},
        {"id": "f", "kind": "function", "function": "docking:score", "args": [1, {"x": 2}], "seconds": 2},
        {"id": 7, "kind": "executable", "command": ["true"]},
    )  # fmt: skip
    work = read_tasks(path, **HOW)
    assert work.kind.tolist() == [EXECUTABLE, FUNCTION, EXECUTABLE]
    assert (work.width.tolist(), work.cores.tolist(), work.gpus.tolist()) == ([2, 1, 1], [6, 1, 1], [2, 0, 0])
    assert work.seconds.tolist() == [9.5, 2.0, 0.0]
    assert work.missing.tolist() == [2, 0, 0]
    assert [work.name(i) for i in range(3)] == ["md", "f", "7"]
    assert work.stages == ("md", "tasks")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "b", "command": ["x"], "after": ["nobody"]}, 't.jsonl:2: after: unknown task "nobody"'),
        ({"id": "b", "command": ["x"], "after": ["b"]}, "task b waits for itself"),
        ({"id": "a", "command": ["x"]}, "t.jsonl:2: found the id"),
        ({"id": "b"}, "neither a command nor a function"),
        ({"id": "b", "command": ["x"], "function": "m:f"}, "both a command and a function"),
        ({"id": "b", "command": "x"}, "command: expected a list of words"),
        ({"id": "b", "function": "os.system"}, "function: expected module:name"),
        ({"id": "b", "kind": "function", "command": ["x"]}, "kind: found function with a command"),
        ({"id": "b", "kind": "job", "command": ["x"]}, 'unknown kind "job"'),
        ({"id": "b", "command": ["x"], "seconds": -1}, "seconds: found -1"),
        ({"id": "b", "command": ["x"], "seconds": "9"}, "seconds: found 9"),
        ({"id": "b", "command": ["x"], "nodes": 2, "ranks": 3}, "found 3 ranks on 2 nodes"),
        ({"id": "b", "command": ["x"], "nodes": 0}, "nodes: found 0"),
        ({"id": "b", "command": ["x"], "ranks": 1 << 40}, "ranks: found"),
        ({"id": "b", "function": "m:f", "nodes": 2}, "a function of several nodes"),
        ({"id": "b", "command": ["x"], "colour": 1}, 'unknown key "colour"'),
        ({"id": None, "command": ["x"]}, "id: found None"),
        ("[1]", "t.jsonl:2"),
        ('{"id": "b", "command": ["x"], "seconds": NaN}', "found NaN"),
    ],
)
def test_a_wrong_task_is_one_line_with_its_number(tmp_path: Path, row: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_tasks(tasks(tmp_path, {"id": "a", "command": ["x"]}, row), **HOW)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_circle_of_tasks_is_named(tmp_path: Path) -> None:
    rows = [{"id": f"t{i}", "command": ["x"], "after": [f"t{(i + 1) % 3}"]} for i in range(3)]
    with pytest.raises(InputError, match="waits for itself, through others or not"):
        read_tasks(tasks(tmp_path, *rows), **HOW)


def test_steps_are_the_tasks_of_their_job_and_what_never_ran_is_left_out(tmp_path: Path) -> None:
    rows = [
        HEAD,
        f"7|md|{DAY}:00:00|{DAY}:01:00|{DAY}:31:00|2|16|COMPLETED",
        f"7.batch|batch|{DAY}:01:00|{DAY}:01:00|{DAY}:31:00|1|8|COMPLETED",
        f"7.extern|extern|{DAY}:01:00|{DAY}:01:00|{DAY}:31:00|2|16|COMPLETED",
        f"7.0|run|{DAY}:02:00|{DAY}:02:00|{DAY}:03:00|2|12|COMPLETED",
        f"7.1|run|{DAY}:02:30|{DAY}:02:30|{DAY}:02:40|1|1|CANCELLED by 1000",
        f"8_3|array|{DAY}:00:30|{DAY}:05:00|{DAY}:05:20|1|3|FAILED",
        f"8_[4-9]|array|{DAY}:00:30|Unknown|Unknown|1|3|PENDING",
        f"9|never|{DAY}:00:40|None|{DAY}:05:20|1|3|CANCELLED by 1000",
    ]
    (tmp_path / "sacct.txt").write_text("\n".join(rows) + "\n")
    work = read_sacct(tmp_path / "sacct.txt", **HOW)
    assert [work.name(i) for i in range(3)] == ["8_3", "7.0", "7.1"]
    assert work.arrives.tolist() == [0.0, 90.0, 120.0]
    assert work.seconds.tolist() == [20.0, 60.0, 10.0]
    assert (work.width.tolist(), work.cores.tolist()) == ([1, 2, 1], [3, 6, 1])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"7|md|{DAY}:00:00|{DAY}:01:00|{DAY}:31:00|2|16|COMPLETED\n", "s.txt:1: found no column JobID"),
        (f"{HEAD}\n", "found no job that has begun and ended"),
        (f"{HEAD}\n7|md|{DAY}:00:00\n", "s.txt:2: found 3 cells; expected 8"),
        (f"{HEAD}\n7|md|{DAY}:00:00|soon|{DAY}:31:00|2|16|COMPLETED\n", 's.txt:2: Start: found "soon"'),
        (f"{HEAD}\n7|md|{DAY}:00:00|{DAY}:31:00|{DAY}:01:00|2|16|COMPLETED\n", "before the start"),
        (f"{HEAD}\n7|md|{DAY}:00:00|{DAY}:01:00|{DAY}:31:00|0|16|COMPLETED\n", 'NNodes: found "0"'),
        (f"{HEAD}\n7|md|{DAY}:00:00|{DAY}:01:00|{DAY}:31:00|2|1e9|COMPLETED\n", 'NCPUS: found "1e9"'),
    ],
)
def test_a_wrong_history_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "s.txt").write_text(text)
    with pytest.raises(InputError) as caught:
        read_sacct(tmp_path / "s.txt", **HOW)
    assert said in str(caught.value)


def test_profiles_are_put_on_one_clock_and_messages_may_have_commas(tmp_path: Path) -> None:
    (tmp_path / "a.prof").write_text(PROFILE)
    later = PROFILE.replace("1764000100.5", "1764000101.5").replace("task.00000", "task.00010")
    (tmp_path / "b.prof").write_text(later)
    work = read_profiles(tmp_path, **HOW)
    assert [work.name(i) for i in range(4)] == ["task.000000", "task.000100", "task.000001", "task.000101"]
    assert work.arrives.tolist() == [0.0, 1.0, 1.5, 2.5]
    assert [round(x, 6) for x in work.seconds] == [3.0, 3.0, 0.5, 0.5]


def test_a_pilots_folder_holds_the_profiles_of_components_and_of_tasks(tmp_path: Path) -> None:
    (tmp_path / "agent_executing.0000.prof").write_text(EXECUTOR)
    alone = read_profiles(tmp_path, **HOW)
    assert [round(x, 4) for x in alone.seconds] == [0.2323]
    (tmp_path / "task.000000").mkdir()
    (tmp_path / "task.000000" / "task.000000.prof").write_text(TASK)
    both = read_profiles(tmp_path, **HOW)
    assert [round(x, 4) for x in both.seconds] == [0.0201]  # The task's own events are closest to its body.
    (tmp_path / "task.000000" / "task.000000.prof").write_text("hello\n")
    with pytest.raises(InputError, match="expected the header"):
        read_profiles(tmp_path, **HOW)


def test_times_since_1970_stand_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.prof").write_text(EXECUTOR)
    other = EXECUTOR.replace("task.000000", "task.000001").replace(":1795110063.5196621:sys", ":1795110163.5196621:sys")
    (tmp_path / "b.prof").write_text(other)
    assert read_profiles(tmp_path, **HOW).arrives.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("time,event\n", "expected the header"),
        (PROFILE.replace("node-1:10.0.0.5", "node-1"), "expected host:ip"),
        (PROFILE.replace("4.2000", "soon"), 'p.prof:6: found "soon"'),
        (PROFILE.replace("4.2000", "1e300"), "expected a time"),
        (PROFILE.replace("rank_stop", "other"), "found no task that began and ended"),
        (PROFILE.replace("4.2000", "0.2000"), "found an end before its start"),
        (PROFILE + "5.0,x\n", "found 2 cells"),
    ],
)
def test_a_wrong_profile_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "p.prof").write_text(text)
    with pytest.raises(InputError) as caught:
        read_profiles(tmp_path / "p.prof", **HOW)
    assert said in str(caught.value)


def test_kinds_of_file_are_told_apart_by_their_content(tmp_path: Path) -> None:
    flow = {
        "name": "two", "schemaVersion": "1.5",
        "workflow": {
            "specification": {
                "files": [],
                "tasks": [
                    {"id": "a", "name": "a", "parents": [], "children": ["b"], "inputFiles": [], "outputFiles": []},
                    {"id": "b", "name": "b", "parents": ["a"], "children": [], "inputFiles": [], "outputFiles": []},
                ],
            },
            "execution": {"tasks": [{"id": "a", "runtimeInSeconds": 3.5, "coreCount": 2}, {"id": "b", "runtimeInSeconds": 1}]},
        },
    }  # fmt: skip
    for indent in (None, 1):
        (tmp_path / "w").write_text(json.dumps(flow, indent=indent))
        work = read_work(tmp_path / "w", **HOW)
        assert (work.seconds.tolist(), work.cores.tolist(), work.missing.tolist()) == ([3.5, 1.0], [2, 1], [0, 1])
    (tmp_path / "x").write_text(PROFILE)
    assert read_work(tmp_path / "x", **HOW).tasks == 2
    (tmp_path / "y").write_text("hello\n")
    with pytest.raises(InputError, match="none of the known beginnings"):
        read_work(tmp_path / "y", **HOW)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"found no \*.prof"):
        read_work(tmp_path / "empty", **HOW)
