"""Job files: YAML in, the core's jobs and schedules out, every problem with its line."""

from sexton_cli.jobfile.load import FileJob, JobFile, json_schema, load, load_file
from sexton_cli.jobfile.problems import JobFileError, Problem

__all__ = ["FileJob", "JobFile", "JobFileError", "Problem", "json_schema", "load", "load_file"]
