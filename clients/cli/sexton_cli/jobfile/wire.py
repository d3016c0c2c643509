"""From the jobs of a file to what the API takes."""

from sexton.v1 import job_pb2 as pb
from sexton_cli.jobfile._task import task_message
from sexton_cli.jobfile.load import FileJob, JobFile
from sexton_records.schedules import encode_schedules
from sexton_records.spec import encode_spec


def messages_of(file: JobFile) -> dict[str, pb.JobSpec]:
    """Returns the definitions of a file by `NAMESPACE/JOB`, with every default written out."""
    return {job.full_name: spec_message(job) for job in file.jobs}


def spec_message(job: FileJob) -> pb.JobSpec:
    """Returns a job's definition."""
    return encode_spec(
        job.definition(None),
        schedules=encode_schedules(job.spec),
        task=task_message(job.task),
        labels=dict(job.labels),
        description=job.description,
    )
