"""The page of binlake in Airflow's UI, and its data as JSON."""
