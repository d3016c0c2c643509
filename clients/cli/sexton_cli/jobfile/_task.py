"""From the model of a task to its message."""

import json

from sexton.v1 import job_pb2 as pb
from sexton_cli.jobfile import models


def task_message(task: models.Task) -> pb.Task:
    """Returns a task; what its fields may hold is judged by `sexton_records.tasks`."""
    if task.python is not None:
        args = ""
        if task.args:
            # In one order, so that equal arguments are the same definition.
            args = json.dumps(task.args, sort_keys=True, separators=(",", ":"))
        return pb.Task(python=pb.PythonTask(task=task.python, args_json=args))
    if task.shell is not None:
        return pb.Task(
            shell=pb.ShellTask(command=task.shell, env=_values(task.env), cwd=task.cwd or "")
        )
    assert task.http is not None, "the model has exactly one kind"
    return pb.Task(
        http=pb.HttpTask(
            method=task.http.method,
            url=task.http.url,
            headers=_values(task.http.headers),
            body=task.http.body,
            expect=task.http.expect,
        )
    )


def _values(values: dict[str, str | models.FromWorker]) -> dict[str, pb.EnvValue]:
    return {
        name: pb.EnvValue(value=value)
        if isinstance(value, str)
        else pb.EnvValue(from_worker=value.from_worker)
        for name, value in values.items()
    }
