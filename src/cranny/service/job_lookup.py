"""Finds jobs, also those that the service no longer has in memory."""

from cranny.service.job_record import JobRecord
from cranny.service.rebuild import read_job
from cranny.service.service import Service


def find_job(service: Service, job_id: str) -> JobRecord:
    """Return the record of a job; one that was over long ago is read from the log."""
    with service.lock:
        records = service.scheduler.records
        if job_id in records.jobs or not records.had(job_id):
            return service.scheduler.find(job_id)
    return read_job(service.store, records, job_id)
