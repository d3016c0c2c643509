"""Job files: YAML in, the core's jobs and schedules out, every problem with its line."""

from sexton_cli.jobfile.load import FileJob, JobFile, json_schema, load, load_file
from sexton_cli.jobfile.problems import JobFileError, Problem
from sexton_cli.jobfile.wire import messages_of
from sexton_cli.jobfile.write import file_of

__all__ = [
    "FileJob",
    "JobFile",
    "JobFileError",
    "Problem",
    "file_of",
    "json_schema",
    "load",
    "load_file",
    "messages_of",
]
