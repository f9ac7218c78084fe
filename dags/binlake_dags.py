"""Airflow's DAGs of each pipelines/<source>.yaml: binlake_<source>_bootstrap, _sync, _verify, _maintain and others."""

from pathlib import Path

from binlake_airflow.pipelines import dags_of
from binlake_airflow.sources import pipelines_folder

HERE = Path(__file__).parent
# A checkout carries its jobs/ beside dags/; an installed wheel carries its own.
JOBS = HERE.parent / "jobs"

globals().update(dags_of(pipelines_folder(HERE), jobs_folder=str(JOBS) if JOBS.is_dir() else None))
